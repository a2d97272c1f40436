"""The door `reproduce`: published figures beside ours."""

from typing import Final

from emu.base.doors import Command, Door

DOOR: Final = Door(
    commands={
        "reproduce": Command(
            "Run",
            "Print published figures beside ours.",
            "emu.doors.reproduce.commands.reproduce:command",
        ),
    },
)
