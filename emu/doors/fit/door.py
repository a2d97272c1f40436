"""The door `fit`: knobs from logs of real runs."""

from typing import Final

from emu.base.doors import Command, Door

DOOR: Final = Door(
    commands={
        "fit": Command(
            "Write a scenario",
            "Fit knobs to logs of nccl-tests and perftest.",
            "emu.doors.fit.commands.fit:command",
        ),
    },
)
