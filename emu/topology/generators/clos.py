"""Pieces that the generated Clos fabrics share: servers, meshes, stripes.

Servers; meshes, where every switch of one tier is joined to every switch of the next; stripes, where the
aggregation switches of a pod are dealt over the core; and the rate of a link that keeps a ratio.

Ratios. Published fabrics state how many switches they have and by how much each tier is oversubscribed. Both
are knobs, and the rate of the links between two tiers follows from them:

    rate of an uplink = rate below the switch / oversubscription / number of uplinks

With the published counts the rates come out as the real ones (400G). A fabric with fewer racks, hosts or
spines keeps the ratios of the large one, which is what most questions about congestion depend on.

Stripes. Uplink u of aggregation switch a (its place in the pod, or in its plane of the pod) leads to core
switch (a x uplinks + u) mod cores, in every pod alike, so that a core switch reaches every pod. With (k/2)^2
cores that is the wiring of the k-ary fat tree (Al-Fares and others, SIGCOMM'08).

Not modelled: spare ports, cables of different length within a tier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

from actors.fabric.model import Fault
from emu.topology.generators.builder import Assembly
from emu.units import MAX_QUANTITY


class Server(NamedTuple):
    """The node numbers of a server."""

    host: int
    gpus: tuple[int, ...]
    nics: tuple[int, ...]


def add_servers(
    fabric: Assembly, count: int, gpus_per_host: int, rack_of: Callable[[int], int]
) -> list[Server]:
    """Servers with a NIC for each GPU: `host-<h>`, `gpu-<h>-<i>`, `nic-<h>-<i>`; `rack_of` a host's index."""
    servers: list[Server] = []
    for index in range(count):
        host = fabric.host(f"host-{index}", rack_of(index))
        gpus = tuple(fabric.gpu(f"gpu-{index}-{i}", host, i) for i in range(gpus_per_host))
        nics = tuple(fabric.nic(f"nic-{index}-{i}", host, i) for i in range(gpus_per_host))
        servers.append(Server(host, gpus, nics))
    return servers


def add_host_links(fabric: Assembly, servers: Sequence[Server], rate_bps: int, delay_ps: int) -> None:
    """The links inside the servers, GPUs before NICs. They come after all fabric links."""
    for server in servers:
        for device in (*server.gpus, *server.nics):
            fabric.host_link(server.host, device, rate_bps, delay_ps)


def mesh(
    fabric: Assembly,
    lowers: Sequence[int],
    uppers: Sequence[int],
    rate_bps: int,
    delay_ps: int,
    parallel: int = 1,
) -> None:
    """Join every switch of one tier to every switch of the next, by `parallel` links."""
    for lower in lowers:
        for upper in uppers:
            for _ in range(parallel):
                fabric.link(lower, upper, rate_bps, delay_ps)


def stripe(
    fabric: Assembly, aggs: Sequence[int], cores: Sequence[int], uplinks: int, rate_bps: int, delay_ps: int
) -> None:
    """Deal the uplinks of a pod's aggregation switches over the core."""
    for place, agg in enumerate(aggs):
        for uplink in range(uplinks):
            fabric.link(agg, cores[(place * uplinks + uplink) % len(cores)], rate_bps, delay_ps)


def uplink_bps(below_bps: int, oversubscription: Fraction, uplinks: int) -> int:
    """The rate of each of a switch's uplinks that keeps the ratio, rounded down to whole bit/s."""
    return below_bps * oversubscription.denominator // (oversubscription.numerator * max(uplinks, 1))


def check_uplink(key: str, rate_bps: int) -> list[Fault]:
    """A fault where a ratio leaves nothing for the uplinks, or more than can be counted."""
    if rate_bps > MAX_QUANTITY:
        return [Fault((key,), f"asks for uplinks of {rate_bps} bit/s", f"at most {MAX_QUANTITY} bit/s")]
    if rate_bps > 0:
        return []
    return [Fault((key,), "leaves uplinks of less than 1 bit/s", "less oversubscription, or fewer uplinks")]


def check_stripe(keys: tuple[str, str], aggs: int, uplinks: int, cores: int) -> list[Fault]:
    """A fault where the uplinks of a pod do not spread evenly over the core; `keys` of uplinks and cores."""
    if cores == 0 or aggs * uplinks % cores == 0:
        return []
    reason = f"{aggs} x {uplinks} uplinks of a pod do not divide among {cores} core switches"
    return [Fault((keys[1],), reason, f"a divisor of {aggs * uplinks}, or another {keys[0]}")]


def check_ports(nic_ports: int) -> list[Fault]:
    """A fault for NICs of no or more than two fabric ports."""
    if nic_ports in {1, 2}:
        return []
    return [Fault(("nic_ports",), f"a NIC of {nic_ports} ports", "1 or 2")]
