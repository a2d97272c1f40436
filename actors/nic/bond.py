"""Through which of a NIC's ports does a queue pair send?

The ports are one bond with one address. Each queue pair has a home port: in turn by its index (`per_qp`),
or the first (`first`). When a port's link goes down, its queue pairs go on through the next port that is
up, and send again what is not acknowledged, since the NIC knows that what was on that link is lost: no
timer needs to run out at this end. When the link comes back they go home. The context of a queue pair is
the NIC's, so neither shows in verbs. Acknowledgements leave where the packet came in.

Source: HPN (SIGCOMM'24), section 4: dual-ToR without stacking, queue pair context shared by both ports.

Not modelled: LACP, ARP and route announcements of the host (switches learn after `routing.convergence`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from actors.nic.notification import lost
from actors.nic.port import NicPort
from actors.nic.queue_pair import ERROR

if TYPE_CHECKING:
    from actors.nic.nic import Nic


def set_homes(nic: Nic, *, spread: bool) -> None:
    """Give every queue pair its home port, before time begins."""
    count = len(nic.ports())
    for pair in nic.pairs:
        pair.home_port = pair.index % count if spread else 0
        pair.port = pair.home_port


def rebond(nic: Nic, now: i64) -> None:
    """A port changed state: queue pairs that belong elsewhere now move, the others keep their turn."""
    ports: list[NicPort] = nic.ports()
    count: i64 = len(ports)
    if count == 1:
        return
    left: i64 = 0
    for pair in nic.pairs:
        port: i64 = _best(ports, pair.home_port)
        if port != pair.port:
            left |= 1 << pair.port
    if left == 0:
        return
    waiting = [pair for pair in nic.pairs if pair.active and (left >> pair.port) & 1]
    number: i64 = 0
    while number < count:
        if (left >> number) & 1:
            ports[number].drain_round()
        number += 1
    for pair in nic.pairs:
        before: i64 = pair.port
        pair.port = _best(ports, pair.home_port)
        if pair.port != before and not ports[before].up and pair.state != ERROR:
            nic.failovers += 1
            if pair.una_psn < pair.high_psn:
                lost(nic, pair, now)
                nic.recovery.on_timeout(nic, pair, now)
                if pair.has_packets():
                    nic.activate(pair, now)
    for pair in waiting:
        if pair.has_packets():
            nic.activate(pair, now)


def _best(ports: list[NicPort], home: i64) -> i64:
    """The home port if it is up, else the next that is, else the home port."""
    count: i64 = len(ports)
    step: i64 = 0
    while step < count:
        number: i64 = (home + step) % count
        if ports[number].up:
            return number
        step += 1
    return home
