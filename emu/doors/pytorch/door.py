"""The door `pytorch`: scripts and traces of PyTorch."""

from typing import Final

from emu.base.doors import Command, Door

DOOR: Final = Door(
    commands={
        "torchrun": Command(
            "Run",
            "Emulate a step of a PyTorch script, without a GPU.",
            "emu.doors.pytorch.commands.torchrun:command",
        ),
    },
    readers=("emu.doors.pytorch.trace_files:READER",),
)
