"""The compiled packet path: which modules it has, how it is built, and when an import gets it."""
