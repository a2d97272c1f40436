"""How does a device learn that routing takes a link out of use, or back?

Every switch, and every NIC with more than one port, hears of each link by itself, a convergence delay after
the link changed. A device that goes down takes all its links at once, so what follows from them is worked out
once, as the last of an instant's changes and before what arrives in it.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

SETTLED: Final[i64] = 1
"""In the place of a port of CONFIGURATION: the changes of this instant are in. Changes themselves have 0."""


def learn(down: list[int], subject: i64) -> None:
    """Keep the ordered list of links that are out of use: subject = link x 2 + up."""
    link: int = subject >> 1
    if subject & 1:
        if link in down:
            down.remove(link)
    elif link not in down:
        down.append(link)
        down.sort()
