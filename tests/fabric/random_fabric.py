"""What does a fabric that nobody would think of look like?

From a seed: a topology with odd rates and lengths, thresholds from tight to generous, dynamic and static, and
traffic. Headroom is by the formula, the pool is what reserves and headroom need and a little to share, so
that it is used up. A `varied` one routes, recovers and controls congestion in any way; a `faulty` one has
watchdogs, and up to six faults.
"""

from __future__ import annotations

from random import Random
from typing import Any

from actors.fabric.model import Topology
from emu.base.errors import ScenarioError
from emu.devices.buffer_sizes import shared_pool_bytes
from emu.scenario.fault_schedule import scripted
from emu.scenario.resolve import build_topology
from emu.scenario.schema import Scenario
from tests.fabric.rig import Fabric
from tests.fabric.sections import graph, scenario, star, zone

RATES = ("40G", "100G", "100G", "200G", "400G", "400G", "400G", "56G")
DELAYS = ("1ns", "100ns", "500ns", "500ns", "777777ps", "3us")
MTUS = (256, 1024, 4096, 4096)
GENEROUS_BYTES = 10**12


def random_topology(random: Random) -> tuple[dict[str, Any], int]:
    """A fabric's section, and how many NICs it has."""
    shape = random.randrange(3)
    if shape == 0:
        nics = random.randint(2, 7)
        rates = {link: random.choice(RATES) for link in range(nics)}
        delays = {f"d{link}": random.choice(DELAYS) for link in range(nics)}
        return star(nics, rates, **delays), nics
    if shape == 1:
        racks, hosts, spines = random.randint(2, 3), random.randint(1, 4), random.randint(1, 3)
        more = {
            "uplinks_per_leaf_spine": random.randint(1, 2),
            "link": random.choice(RATES),
            "uplink": random.choice(RATES),
            "nic_delay": random.choice(DELAYS),
            "uplink_delay": random.choice(DELAYS),
        }
        return zone(racks, hosts, spines, **more), racks * hosts
    switches = random.randint(2, 4)
    nics = random.randint(switches, 6)
    links = [(f"nic-{nic}", f"sw-{nic % switches}") for nic in range(nics)]
    links += [(f"sw-{at}", f"sw-{at + 1}") for at in range(switches - 1)]
    if switches > 2 and random.random() < 0.5:
        links.append(("sw-0", f"sw-{switches - 1}"))
    rates = {link: random.choice(RATES) for link in range(len(links))}
    delays = {f"d{link}": random.choice(DELAYS) for link in range(len(links))}
    return graph(links, rates, **delays), nics


def random_switch(random: Random) -> dict[str, Any]:
    """A switch's section, all but its pool."""
    return {
        "latency": random.choice((0, 0, "1ns", "300ns", "500ns")),
        "buffer": {
            "alpha": random.choice(("1/64", "1/8", "1/8", "1/2", "1", "8")),
            "reserve": random.choice((0, "1KiB", "4KiB", "8KiB")),
            "xon_offset": random.choice(("auto", 0, "2KiB", "20KiB")),
        },
        "pfc": {
            "quanta": random.choice((65535, 65535, 5000, 600)),
            "response": random.choice((0, "auto", "100ns", "1us")),
        },
    }


def random_thresholds(random: Random, reserve: object, pool_bytes: int) -> dict[str, Any]:
    """Static thresholds for all groups or for one, or another alpha for one; for most fabrics nothing."""
    static = {
        "xoff": f"{max(1, pool_bytes // random.choice((1, 2, 10, 1000)))}B",
        "xon": random.choice(("auto", 0, "1B")),
    }
    alpha = {"alpha": random.choice(("1/64", "1/2", "8"))}
    kind = random.randrange(8)
    if kind == 0:
        return static
    if kind > 2:
        return {}
    one = {"priorities": [random.choice((3, 6))], "reserve": reserve}
    return {"profiles": [{**one, **(static if kind == 1 else alpha)}]}


def random_ways(random: Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """A routing policy, and a scheme of recovery that ends whatever is lost; packets may overtake."""
    schemes: tuple[dict[str, Any], ...] = (
        {"kind": "go_back_n"},
        {"kind": "go_back_n", "placement": "out_of_order", "reorder": random.choice((1, 16, 128))},
        {"kind": "selective_repeat", "reorder": random.choice((0, 8, 64))},
    )
    recovery = random.choice(schemes)
    overtake = {"allow_reordering": True}
    flowlets = {"gap": random.choice(("100ns", "5us")), "entries": random.choice((1, 16, 4096))}
    policies: tuple[dict[str, Any], ...] = (
        {"kind": "e_ecmp"},
        {"kind": "ecmp", "hash": random.choice(("crc16", "crc32", "xor_fold", "toeplitz"))},
        {"kind": "path_pinning"},
        {"kind": "flowlet", **flowlets},
        {"kind": "spray", "order": random.choice(("round_robin", "random")), **overtake},
        {"kind": "adaptive", "granularity": random.choice(("packet", "flowlet")), **flowlets, **overtake},
    )
    return random.choice(policies), recovery


def random_control(random: Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """A congestion control with clocks so quick that they tick in a short run, and what switches mark."""
    controls: tuple[dict[str, Any], ...] = (
        {"kind": "none"},
        {"kind": "dcqcn", "byte_counter": "20KB", "increase_timer": "5us", "alpha_timer": "3us"},
        {"kind": "swift", "target": "4us", "window": "64KB"},
        {"kind": "hybrid", "byte_counter": "30KB", "increase_timer": "7us", "target": "3us"},
        {"kind": "hpcc", "base_rtt": random.choice(("2us", "13us"))},
    )
    control = {**random.choice(controls), "cnp_interval": random.choice(("1us", "50us"))}
    kmin = random.choice((1_000, 5_000, 20_000))
    marking = {"enabled": True, "scaled": False, "kmin": f"{kmin}B", "kmax": f"{4 * kmin}B", "pmax": "1/2"}
    return control, marking


FAULTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("link_flap", "any *:*", {"down": "1us", "up": "2us", "flaps": 3}),
    ("degrade", "any *:*", {"rate": "10G", "loss": "1/30"}),
    ("degrade", "any *:*", {"bit_errors": "1/1000000"}),
    ("delay", "any *:*", {"added": "300ns", "jitter": "500ns"}),
    ("pause_storm", "any switch", {}),
    ("pause_storm", "nic", {}),
    ("pause_storm", "nic", {}),
    ("pause_loss", "switch", {}),
    ("pause_loss", "nic", {}),
    ("switch_crash", "any switch", {}),
    ("nic_reset", "any nic", {}),
    ("qp_error", "any nic", {}),
    ("slow_receiver", "any nic", {"rate": "5G"}),
    ("headroom_drift", "any switch", {"headroom": "2KiB"}),
    ("alpha_drift", "any switch", {"alpha": "1/256"}),
    ("ecn_drift", "any switch", {"kmin": "1KB", "kmax": "2KB"}),
    ("pfc_drift", "any switch", {}),
    ("dscp_drift", "any switch", {"dscp": 24, "queue": 1}),
    ("hash_seed_drift", "any switch", {"seed": 77}),
)
"""Kinds, what each hits, and its own keys."""
WHOLE = ("link_flap", "nic_reset", "qp_error")
"""What ends by itself, or lasts."""


def random_faults(random: Random) -> list[dict[str, Any]]:
    """Up to six faults of any kind while the traffic runs."""
    faults = []
    for _ in range(random.randint(2, 6)):
        kind, target, keys = random.choice(FAULTS)
        fault = {
            "kind": kind,
            "target": target,
            "at": f"{random.randrange(random.choice((1, 12_000)))}ns",
            **keys,
        }
        if kind not in WHOLE:
            fault["for"] = f"{random.randrange(500, 20_000)}ns"
        faults.append(fault)
    return faults


def fits(scenario: Scenario, topology: Topology) -> bool:
    """Whether there is on this fabric what the faults break."""
    try:
        scripted(scenario, topology)
    except ScenarioError:
        return False
    return True


def random_fabric(
    seed: int,
    lossy: bool = False,
    lossless: tuple[int, ...] = (3, 6),
    varied: bool = False,
    faulty: bool = False,
) -> Fabric:
    """A fabric with connections and posts at priorities 3 and 6: `lossless` are, with `lossy` neither is."""
    random = Random(seed)
    topology, nics = random_topology(random)
    switch = random_switch(random)
    sections: dict[str, dict[str, Any]] = {
        "nic": {
            "latency": random.choice((0, 0, "200ns")),
            "pfc_response": random.choice((0, "auto", "100ns", "1us")),
        },
        "transport": {
            "mtu": random.choice(MTUS),
            "ack_every": random.choice((1, 1, 2, 7, 64)),
            "timeout": 4 if lossy else 14 if 6 in lossless else 6,
        },
    }
    switch["pfc"]["priorities"] = list(lossless)
    if varied:
        ways = Random(seed + 2_000_000)
        sections["routing"], recovery = random_ways(ways)
        sections["routing"]["convergence"] = ways.choice(("1us", "1ms"))
        sections["transport"]["recovery"] = recovery
        sections["transport"]["adaptive_retransmission"] = {"enabled": ways.random() < 0.3, "least": "10us"}
        sections["nic"]["corrupt_every"] = ways.choice((0, 0, 50))
        control, marking = random_control(Random(seed + 5_000_000))
        sections["transport"]["congestion_control"] = control
        switch["ecn"] = marking
    faults: list[dict[str, Any]] = []
    if faulty:
        woes = Random(seed + 6_000_000)
        faults = random_faults(woes)
        if not lossy:
            switch["pfc"]["watchdog"] = {
                "enabled": woes.random() < 0.7,
                "detection": woes.choice(("1us", "5us")),
                "restoration": woes.choice(("1us", "10us")),
                "action": woes.choice(("drop", "forward")),
            }
    if lossy:
        switch["pfc"]["enabled"] = False
        switch["buffer"]["reserve"] = random.choice(("4KiB", "8KiB"))
    generous = {**switch, "buffer": {**switch["buffer"], "pool": f"{GENEROUS_BYTES}B"}}
    trial = scenario(topology, seed=seed, switch=generous, **sections)
    wired = build_topology(trial)
    needed = max(GENEROUS_BYTES - shared_pool_bytes(trial, wired, node) for node in wired.switches)
    shared = random.choice((5_000, 10_000, 50_000, 50_000, 500_000))
    switch["buffer"]["pool"] = f"{needed + shared}B"
    reserve = switch["buffer"]["reserve"]
    switch["buffer"] |= random_thresholds(Random(seed + 4_000_000), reserve, needed + shared)
    connections = []
    for _ in range(random.randint(1, 12)):
        src, dst = random.sample(range(nics), 2)
        if random.random() < 0.5:
            dst = 0 if src else 1
        connections.append((src, dst))
    priorities = [random.choice((3, 3, 6)) for _ in connections]
    given = {"switch": switch, **sections}
    faults = [one for one in faults if fits(scenario(topology, seed=seed, faults=[one], **given), wired)]
    fabric = Fabric(scenario(topology, seed=seed, faults=faults, **given), connections, priorities)
    for _ in range(random.randint(1, 25)):
        connection = fabric.connections[random.randrange(len(connections))]
        if random.random() < 0.2:
            connection = connection.reversed()
        size = random.choice((0, 1, 64, 4096, 10_000, 50_000, 150_000))
        at_ps = random.choice((0, 0, 0, random.randrange(100) * 20_000, random.randrange(10**7)))
        fabric.post(at_ps, connection, size, immediate=random.choice((None, 7)))
    return fabric
