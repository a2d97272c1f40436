"""Files of other tools that a scenario can name: flows, topologies, traces, switch configurations."""
