"""Acceptance suites: published test plans for AI fabrics, carried out on an emulated one."""
