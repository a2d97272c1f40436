"""What do the sections of all kinds of fabric share? Their base, and the defaults of rates and delays.

Delays are the 500 ns that simulators of such fabrics agree on (about 100 m of fibre). Whether the counts of a
section can be connected is said by the fabric's generator, in the section's keys.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from emu.scenario.sections.section import Section
from emu.units import parse_rate, parse_time

LINK_200G_BPS: Final = parse_rate("200G")
LINK_400G_BPS: Final = parse_rate("400G")
DELAY_500NS_PS: Final = parse_time("500ns")

Count = Annotated[int, Field(ge=1, le=65536)]
CountOrNone = Annotated[int, Field(ge=0, le=65536)]


class TopologySection(Section):
    """Base of the fabrics."""

    kind: str
    """Which kind of fabric."""
