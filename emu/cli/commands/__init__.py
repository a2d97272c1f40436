"""The subcommands of `emu`, one file each, imported when asked for."""
