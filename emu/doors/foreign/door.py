"""The door `foreign`: files of other tools that become scenarios."""

from typing import Final

from emu.base.doors import Command, Door

DOOR: Final = Door(
    commands={
        "import": Command(
            "Write a scenario",
            "Write a scenario from files of other tools.",
            "emu.doors.foreign.commands.importing:command",
        ),
    },
)
