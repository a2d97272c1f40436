"""The subcommands that show a run: page, figures, tables, a live view."""
