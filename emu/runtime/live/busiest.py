"""Which of those that a fault may hit is busiest, and how does every worker come to know?

A fault with the target `busiest ...` is aimed at a sync point, at the time it occurs: by what each
candidate's ports have sent since the last sampling point of the grid (`run.sample_every`) but one. So one to
two such intervals are looked at. Of equals the first in the order of the fabric's numbers is taken, also
where none has sent anything.

Each worker knows its own ports. In the round in which the sync point is passed it says which candidate of
its own is busiest, as one integer that is less the more was sent, and the least of all is taken with the
other minima of the round (`emu.runtime.sync.window`). So all workers aim alike without another round, and the
answer depends on counters at virtual times alone. The marks live in the ports and are saved with them.

A fault that is injected into a live run strikes `AIM_AFTER_PS` after it was made, so that it can be aimed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from actors.kernel.event import NEVER_PS
from actors.nic.nic import Nic
from actors.port.link import Port
from actors.switch.switch import Switch
from emu.build.switches import fabric_ports
from emu.runtime.sync.partition import Partition
from emu.scenario.faults.targets import Candidate

ORDER_BITS: Final = 20
MOST_BYTES: Final = (1 << 41) - 1
"""More than this sent in two intervals counts as this."""


class Meter:
    """What the ports of one partition have sent of late."""

    def __init__(self, partition: Partition) -> None:
        self._ports: dict[int, list[Port]] = {
            int(device.number): fabric_ports(device)
            for device in partition.devices
            if isinstance(device, Switch | Nic)
        }

    def mark(self) -> None:
        """A sampling point of the grid is passed."""
        for ports in self._ports.values():
            for port in ports:
                port.marked_before_bytes = port.marked_bytes
                port.marked_bytes = port.sent_bytes

    def busiest(self, candidates: Sequence[Candidate]) -> int:
        """The busiest that lives here, for the reduction; NEVER_PS if none does."""
        found = int(NEVER_PS)
        for order, one in enumerate(candidates):
            ports = self._ports.get(one.node)
            if ports is not None:
                sent = sum(int(ports[at].sent_bytes - ports[at].marked_before_bytes) for at in one.ports)
                found = min(found, MOST_BYTES - min(sent, MOST_BYTES) << ORDER_BITS | order)
        return found


def chosen(candidates: Sequence[Candidate], busiest: int) -> str:
    """The name of what the reduction found."""
    return candidates[busiest & (1 << ORDER_BITS) - 1].spot.name
