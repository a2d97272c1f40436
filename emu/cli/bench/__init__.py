"""The cases of `emu bench`, and one run of a case in a process of its own."""
