"""The subcommands of emu that are no door's: names and one-line helps, so that `emu --help` imports none."""

from typing import Final

GROUPS: Final = {
    "Run": {
        "run": "Run a scenario and judge its expectations.",
        "perf": "Run one collective over a range of sizes, as nccl-tests does.",
        "up": "Run a scenario's jobs again and again until stopped.",
        "sweep": "Run every combination of some values and print one table.",
        "slowdown": "Run jobs together and each alone, and compare their times.",
        "cross": "Run a scenario at packet and at flow level and compare.",
        "replay": "Repeat a live run with its injected faults, bit for bit.",
        "fork": "Continue a run from a snapshot with some values changed.",
    },
    "Write a scenario": {
        "list": "List the scenarios that come with emu or are in a directory.",
        "new": "Copy a scenario that comes with emu, to edit it.",
        "validate": "Check scenarios without running them.",
        "topo": "Show the fabric of a scenario.",
        "estimate": "Predict packet-hops, memory and time of a run.",
        "schema": "Print the schema of scenarios or summaries.",
        "compile": "Compile plug-ins with the packet path.",
    },
    "Break and watch a live run": {
        "fault": "Inject, clear and list faults of a live run.",
        "capture": "Capture packets of a live run for Wireshark.",
        "top": "Show jobs, ports, faults and verdict of a run as it is now.",
    },
    "Look at results": {
        "diagnose": "Name the causes of a slow or failed run, with evidence.",
        "report": "Write a run, a comparison or a sweep as one HTML page.",
        "plot": "Draw curves of runs and sweeps as SVG, PNG or PDF.",
        "compare": "Find the first device and time at which two runs differ.",
        "export": "Write the samples of a run as CSV, OpenMetrics or a timeline.",
    },
    "Weeks of a cluster": {},
    "Help": {
        "docs": "Show a page of the documentation.",
        "doctor": "Check what a run needs on this machine.",
        "bench": "Measure packet-hops per CPU second on fixed cases.",
    },
}
"""Heading -> subcommand -> what it does, in the order of the help; those of doors come behind."""
CORE: Final = {name: said for group in GROUPS.values() for name, said in group.items()}
"""Subcommand -> what it does. `emu.cli.main` knows in which module each is."""
