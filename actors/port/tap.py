"""Who looks at the frames that arrive at a port, without a part in the run?"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from actors.wire.frame import Frame


@mypyc_attr(allow_interpreted_subclasses=True)
class Tap:
    """Sees the frames that arrive at a port, as a port mirror does; `Port.set_tap` puts it there.

    Subclass it for captures and checks. A frame is only lent: it goes on, and changes. What a tap keeps is no
    part of a snapshot and never of the answer.
    """

    def saw(self, frame: Frame, now: i64) -> None:
        """A frame arrived whole at `now`, before the device does anything with it."""
        raise NotImplementedError
