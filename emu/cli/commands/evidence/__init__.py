"""The subcommands that hold emu against evidence of others: logs of a cluster, plans of acceptance tests."""
