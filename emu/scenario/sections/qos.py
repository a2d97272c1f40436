"""Section `switch.qos`: the queue and the priority group of a packet, by its DSCP.

Four maps, as SONiC has them: DSCP_TO_TC_MAP, TC_TO_QUEUE_MAP, TC_TO_PRIORITY_GROUP_MAP and
MAP_PFC_PRIORITY_TO_QUEUE. A map is written as its exceptions; what it does not name keeps its default: the
class selector of a DSCP (its upper three bits), and the number itself for all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

from emu.scenario.section import Refusal, RefusedError, Section
from emu.scenario.yaml.values import Reading
from emu.spelling import shown

SELECTORS: Final = tuple(dscp >> 3 for dscp in range(64))
"""The traffic class of every DSCP by its class selector bits."""
SAME: Final = tuple(range(8))
SELECTED: Final = tuple(8 * priority for priority in range(8))
"""The DSCP of every priority: its class selector."""


def table(default: tuple[int, ...], values: int) -> Reading:
    """A map from the places of `default` to numbers below `values`, read as its exceptions."""
    accepted = f"a mapping of 0 to {len(default) - 1} to 0 to {values - 1}, like {{3: 4}}"

    def read(value: object) -> tuple[int, ...]:
        if isinstance(value, tuple) and len(value) == len(default):
            return value
        if not isinstance(value, dict):
            raise RefusedError(f"{shown(value)} is not a mapping", accepted)
        full = list(default)
        for key, number in value.items():
            text = str(key)
            if not (text.isascii() and text.isdigit() and len(text) < 3 and int(text) < len(default)):
                raise RefusedError(f"{shown(key)} is no key of this map", accepted)
            if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < values:
                raise RefusedError(f"{shown(number)} is out of range", accepted)
            full[int(text)] = number
        return tuple(full)

    def show(value: Any) -> object:
        return {str(at): to for at, (to, usual) in enumerate(zip(value, default, strict=True)) if to != usual}

    numbers = {"type": "integer", "minimum": 0, "maximum": values - 1}
    schema = {"type": "object", "patternProperties": {"^[0-9]{1,2}$": numbers}, "additionalProperties": False}
    return Reading(read, show, accepted, schema, f"map of 0..{len(default) - 1} to 0..{values - 1}")


DscpToClass = Annotated[tuple[int, ...], table(SELECTORS, 8)]
ClassMap = Annotated[tuple[int, ...], table(SAME, 8)]
PriorityToDscp = Annotated[tuple[int, ...], table(SELECTED, 64)]


class QosSection(Section):
    """DSCP to traffic class to queue and priority group."""

    dscp_to_tc: DscpToClass = SELECTORS
    """Traffic class of a DSCP. SONiC: DSCP_TO_TC_MAP."""
    tc_to_queue: ClassMap = SAME
    """Egress queue of a traffic class; scheduling, ECN and `egress_limit` are the queue's. SONiC:
    TC_TO_QUEUE_MAP."""
    tc_to_priority_group: ClassMap = SAME
    """Ingress priority group of a traffic class; a group is lossless if `pfc.priorities` has its number, and
    pauses that priority. SONiC: TC_TO_PRIORITY_GROUP_MAP."""
    pfc_priority_to_queue: ClassMap = SAME
    """Egress queue that a pause of a priority stops. SONiC: MAP_PFC_PRIORITY_TO_QUEUE."""

    def check(self) -> Iterator[Refusal]:
        """Refuse one queue for two priorities: one's resume would let go what the other's pause holds."""
        if len(dict.fromkeys(self.pfc_priority_to_queue)) != 8:
            yield Refusal(
                ("pfc_priority_to_queue",), "two priorities stop one queue", "each queue for one priority"
            )

    @property
    def plain(self) -> bool:
        """Whether all maps are the default."""
        ours = (self.tc_to_queue, self.tc_to_priority_group, self.pfc_priority_to_queue)
        return self.dscp_to_tc == SELECTORS and ours == (SAME, SAME, SAME)
