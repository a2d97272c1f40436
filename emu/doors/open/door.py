"""The door `open`: runs that other programs drive."""

from typing import Final

from emu.base.doors import Command, Door

DOOR: Final = Door(
    commands={
        "serve": Command(
            "Run",
            "Let programs post transfers and collectives over a socket.",
            "emu.doors.open.commands.serve:command",
        ),
    },
)
