"""Plug-ins that ship as examples: each is one file that a scenario names as `module:Class`."""
