"""The door `weeks`: training jobs and clusters over weeks."""

from typing import Final

from emu.base.doors import Command, Door

DOOR: Final = Door(
    commands={
        "campaign": Command(
            "Weeks of a cluster",
            "Follow a training job for weeks: failures, recovery, goodput.",
            "emu.doors.weeks.commands.campaign:command",
        ),
        "schedule": Command(
            "Weeks of a cluster",
            "Follow the jobs of a cluster: queue, placement, waits.",
            "emu.doors.weeks.commands.schedule:command",
        ),
    },
)
