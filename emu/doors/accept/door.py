"""The door `accept`: published acceptance tests."""

from typing import Final

from emu.base.doors import Command, Door

DOOR: Final = Door(
    commands={
        "accept": Command(
            "Run",
            "Run published acceptance tests: SONiC's, BMWG drafts'.",
            "emu.doors.accept.commands.accept:command",
        ),
    },
)
