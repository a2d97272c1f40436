"""What a check of a scenario foresees: a warning before the run, and how to know after it that it came true.

A warning names a setting and what is wrong with it. The counters that would show the trouble, and the value
that would avoid it, go with it, so that a diagnosis can name the setting as a cause and repair it
(`emu.views.diagnosis.true_warnings`).
"""

from typing import Final, NamedTuple

SHORT_HEADROOM: Final = "short_headroom"
"""The cause of lossless frames that are lost for want of headroom."""
LOSSY: Final = "lossy_class"
"""The cause of frames that are lost since no pause stops their senders."""
LATE_MARKING: Final = "late_marking"
"""The cause of pauses where ECN could have acted before."""


class Foreseen(NamedTuple):
    """Trouble that a setting may make."""

    what: str
    """The key, its value and what is wrong with it."""
    effect: str
    """What may happen."""
    remedy: str
    """What would avoid it; empty if nothing is known."""
    cause: str
    """The cause that a diagnosis names."""
    devices: tuple[str, ...]
    """Where it would show."""
    reasons: tuple[str, ...]
    """Reasons of frames that are dropped then."""
    setting: tuple[str, str] = ("", "")
    """A key and a value, as `--set` has them, with which it would not happen; empty if none is known."""
    counters: tuple[str, ...] = ()
    """Counters of these devices that are not 0 then, where no frame is dropped."""
    silent: tuple[str, ...] = ()
    """Counters of them that are 0 then."""

    @property
    def line(self) -> str:
        """The warning."""
        return f"{self.what}: {self.effect}" + (f"; {self.remedy}" if self.remedy else "")
