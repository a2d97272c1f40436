"""Sizes of a switch's buffer: what is set aside, and what must be.

Headroom by the formula (`actors.switch.buffer.headroom_bytes`, of a cable's delay: 5 ns a metre) or by the
table of a chip (`emu.devices.asic_headroom`), for each port and lossless class; what reserves and headroom
leave of a pool, or of each port's own buffer in a modular switch; what a priority group's profile comes to in
the numbers that switches count with. A configuration that leaves nothing is refused, one that may drop is
reported before the run.
"""

from collections.abc import Hashable, Iterator
from fractions import Fraction
from functools import cache
from typing import Any, Final, NamedTuple

from actors.fabric.model import FABRIC, Attachment, Role, Topology
from actors.kernel.counters import PFC_TRANSMIT_XOFF_FRAMES, QUEUE_MARKED_FRAMES
from actors.switch.buffer import ALPHA_BITS, headroom_bytes
from actors.wire.frame import PAUSE_WIRE_BYTES, PREAMBLE_GAP_BYTES
from emu.base.errors import Problem, ScenarioError
from emu.base.foreseen import LATE_MARKING, SHORT_HEADROOM, Foreseen
from emu.base.units import format_rate, format_size
from emu.devices.asic_headroom import ASICS, Asic, smallest_for
from emu.scenario.schema import Scenario
from emu.scenario.sections.switch import POOL_BYTES, QUANTUM_BYTES, BufferProfile, EcnSection, MarkingProfile

_KEPT: Final = "what devices of a kind share"


def kept(scenario: Scenario, topology: Topology) -> dict[Hashable, Any]:
    """What was worked out for one device of a scenario and holds for all that are like it: by what it is and
    all that it depends on. Devices with the same overrides share one object of the scenario (`Scenario.at`).
    """
    known: tuple[Scenario, dict[Hashable, Any]] | None = topology.derived.get(_KEPT)
    if known is None or known[0] is not scenario:
        known = topology.derived[_KEPT] = scenario, {}
    return known[1]


def kind_of(scenario: Scenario, topology: Topology, switch: int) -> int:
    """A number that switches have in common whose buffers are alike, with the same sections and ports."""
    shared = kept(scenario, topology)
    found: int | None = shared.get(("kind", switch))
    if found is None:
        node, nodes, at = topology.nodes[switch], topology.nodes, scenario.at
        ends = tuple(
            (
                end.rate_bps,
                end.delay_ps,
                nodes[end.peer].role is Role.NIC,
                id(at(topology, end.peer)) if scenario.overrides else 0,
            )
            for end in topology.ports(switch)
        )
        kinds = shared.setdefault("kinds", {})
        equal = node.model, node.tier, id(at(topology, switch)), ends
        found = shared["kind", switch] = kinds.setdefault(equal, len(kinds))
    return found


def ingress_latency_ps(scenario: Scenario, topology: Topology, node: int) -> int:
    """The fixed latency from a frame's last bit at this device until it is acted on."""
    own = scenario.at(topology, node)
    return own.nic.latency_ps if topology.nodes[node].role is Role.NIC else own.switch.latency_ps


def pause_response_ps(scenario: Scenario, topology: Topology, node: int, rate_bps: int) -> int:
    """How long this device's port takes to obey a pause; to take in an update of credits, no time."""
    if scenario.credited:
        return 0
    own = scenario.at(topology, node)
    if topology.nodes[node].role is Role.NIC:
        return own.nic.response_at(rate_bps)
    return own.switch.pfc.response_at(rate_bps)


def fitting_asic(topology: Topology, switch: int) -> Asic:
    """The chip that a box with these ports has."""
    return ASICS[smallest_for(sum(end.rate_bps for end in topology.ports(switch)))]


def asic_of(scenario: Scenario, topology: Topology, switch: int) -> Asic | None:
    """The chip whose buffer a switch has. With `auto` none where a pool is given, where every port has a
    buffer of its own, or links have credits: that is no box with one of these chips."""
    own = scenario.at(topology, switch).switch.buffer
    if own.asic != "auto":
        return ASICS.get(own.asic)
    if own.pool_bytes is not None or scenario.credited or is_deep(scenario, topology, switch):
        return None
    return fitting_asic(topology, switch)


def pool_bytes(scenario: Scenario, topology: Topology, switch: int) -> int:
    """The whole buffer of a switch that has one for all ports."""
    own = scenario.at(topology, switch).switch.buffer
    if own.pool_bytes is not None:
        return own.pool_bytes
    asic = asic_of(scenario, topology, switch)
    return POOL_BYTES if asic is None else asic.pool_bytes


def port_headroom_bytes(
    scenario: Scenario,
    topology: Topology,
    switch: int,
    end: Attachment,
    asic: Asic | None,
    profile: BufferProfile,
) -> int:
    """Headroom of a lossless priority group of this profile at a port of a switch with this chip: as
    configured, or what `auto` is."""
    configured = profile.headroom_bytes
    return auto_headroom_bytes(scenario, topology, switch, end, asic) if configured is None else configured


def auto_headroom_bytes(
    scenario: Scenario, topology: Topology, switch: int, end: Attachment, asic: Asic | None
) -> int:
    """What `headroom: auto` is here: the larger of what loses nothing and what boxes with this chip ship."""
    needed = needed_headroom_bytes(scenario, topology, switch, end)
    return needed if asic is None else max(needed, asic.headroom_bytes(end.rate_bps, end.delay_ps))


def auto_headrooms_bytes(scenario: Scenario, topology: Topology, switch: int, asic: Asic | None) -> list[int]:
    """`auto_headroom_bytes` of every port of a switch, worked out once for ports that differ in nothing."""
    known: dict[tuple[int, int, bool, int], int] = {}
    found: list[int] = []
    for end in topology.ports(switch):
        to_nic = topology.nodes[end.peer].role is Role.NIC
        # A scenario keeps what its overrides make of it, so the same object says the same of two peers.
        kind = end.rate_bps, end.delay_ps, to_nic, id(scenario.at(topology, end.peer))
        if kind not in known:
            known[kind] = auto_headroom_bytes(scenario, topology, switch, end, asic)
        found.append(known[kind])
    return found


def shared_headroom_bytes(scenario: Scenario, topology: Topology, switch: int) -> int | None:
    """What all priority groups of a switch share of headroom; None where each has its own.

    A box that has less than its ports would take at once lets them share what it has, and here never less
    than loses nothing.
    """
    shared = kept(scenario, topology)
    alike = "headroom", kind_of(scenario, topology, switch)
    if alike not in shared:
        shared[alike] = _shared_headroom_bytes(scenario, topology, switch)
    found: int | None = shared[alike]
    return found


def _shared_headroom_bytes(scenario: Scenario, topology: Topology, switch: int) -> int | None:
    section = scenario.at(topology, switch).switch
    asic = asic_of(scenario, topology, switch)
    if section.buffer.headroom_pool_bytes is not None or asic is None or not section.pfc.enabled:
        return section.buffer.headroom_pool_bytes
    if sum(headroom for _, headroom in _set_aside(scenario, topology, switch)) <= asic.headroom_pool_bytes:
        return None
    return max(asic.headroom_pool_bytes, _least_headroom_bytes(scenario, topology, switch))


def _least_headroom_bytes(scenario: Scenario, topology: Topology, switch: int) -> int:
    """What all lossless groups of a switch need if all are stopped at once, or are given."""
    section = scenario.at(topology, switch).switch
    profiles = section.buffer.profiles_of()
    lossless = [profiles[priority].headroom_bytes for priority in section.pfc.priorities]
    taken = 0
    for least in auto_headrooms_bytes(scenario, topology, switch, None):
        taken += sum(least if given is None else given for given in lossless)
    return taken


def needed_headroom_bytes(scenario: Scenario, topology: Topology, switch: int, end: Attachment) -> int:
    """The least headroom with which this port loses nothing in a lossless class."""
    response = pause_response_ps(scenario, topology, end.peer, end.rate_bps)
    ingress = ingress_latency_ps(scenario, topology, switch)
    return headroom_bytes(end.rate_bps, end.delay_ps, scenario.largest_frame_bytes, response, ingress)


def pool_notes(scenario: Scenario, topology: Topology) -> Iterator[str]:
    """A line where a pool is given and nothing says whose headroom goes with it: `auto` is then less than a
    box ships."""
    for switch in () if scenario.credited else topology.switches:
        section = scenario.at(topology, switch).switch
        buffer = section.buffer
        profiles = buffer.profiles_of()
        auto = any(profiles[one].headroom_bytes is None for one in section.pfc.priorities)
        given = buffer.pool_bytes is not None and buffer.asic == "auto"
        if not (given and auto and section.pfc.enabled) or is_deep(scenario, topology, switch):
            continue
        end = max(topology.ports(switch), key=lambda port: port.rate_bps)
        needed = needed_headroom_bytes(scenario, topology, switch, end)
        box = fitting_asic(topology, switch)
        shipped = box.headroom_bytes(end.rate_bps, end.delay_ps)
        if shipped > needed:
            yield (
                f"switch.buffer.pool is given, so `headroom: auto` of {topology.nodes[switch].name} is what "
                f"a port of {format_rate(end.rate_bps)} needs here, {needed:,} B; a box ships {shipped:,} B"
                " (switch.buffer.asic chooses one)"
            )
            return


def headroom_warnings(scenario: Scenario, topology: Topology) -> list[str]:
    """`headroom_foreseen` as lines."""
    return [one.line for one in headroom_foreseen(scenario, topology)]


def headroom_foreseen(scenario: Scenario, topology: Topology) -> list[Foreseen]:
    """A warning for each configured headroom that is less than some port needs, or all ports of a switch at
    once, and for pauses that lapse: it drops, counted, in the run."""
    if scenario.credited:
        return []
    return [
        *_short(scenario, topology),
        *_oversubscribed(scenario, topology),
        *_lapsing(scenario, topology),
    ]


def needed_quanta(scenario: Scenario) -> int:
    """The least quanta of a pause with which a class that stays stopped never starts again.

    It is sent again at half the quanta, and the pause frame may wait for the largest frame and for that
    of another class; a quantum is 64 B at any rate.
    """
    waits = scenario.largest_frame_bytes + PREAMBLE_GAP_BYTES + PAUSE_WIRE_BYTES
    return -(-2 * waits // QUANTUM_BYTES)


OVERRUN: Final = "headroom_overrun"


def _lapsing(scenario: Scenario, topology: Topology) -> list[Foreseen]:
    needed = needed_quanta(scenario)
    given: dict[str, int] = {}
    switches: dict[str, list[str]] = {}
    for switch in topology.switches:
        pfc = scenario.at(topology, switch).switch.pfc
        if pfc.enabled and pfc.quanta < needed:
            key = scenario.key_at(topology, switch, "switch.pfc.quanta")
            given[key] = pfc.quanta
            switches.setdefault(key, []).append(topology.nodes[switch].name)
    return [
        Foreseen(
            f"{key}: {quanta} is too short: a pause may lapse before it is repeated",
            "lossless classes may drop",
            f"at least {needed}",
            SHORT_HEADROOM,
            tuple(switches[key]),
            (OVERRUN,),
            (key, str(needed)),
        )
        for key, quanta in sorted(given.items())
    ]


def _short(scenario: Scenario, topology: Topology) -> list[Foreseen]:
    whole = scenario.switch.buffer
    given = any(one.headroom_bytes is not None for one in (whole, *whole.profiles))
    if not given and not any(one.has("switch.buffer") for one in scenario.overrides):
        return []  # `auto` is what is needed
    short: dict[str, int] = {}
    switches: dict[str, dict[str, None]] = {}
    worst: dict[str, tuple[int, int, str]] = {}
    for switch in topology.switches:
        name = topology.nodes[switch].name
        section = scenario.at(topology, switch).switch
        if not section.pfc.enabled:
            continue
        profiles = section.buffer.profiles_of()
        used = {
            scenario.key_at(topology, switch, f"{section.buffer.key_of(one)}.headroom"): one.headroom_bytes
            for one in (profiles[priority] for priority in section.pfc.priorities)
        }
        for end in topology.ports(switch):
            needed = needed_headroom_bytes(scenario, topology, switch, end)
            for key, configured in used.items():
                if configured is not None and needed > configured:
                    short[key] = short.get(key, 0) + 1
                    switches.setdefault(key, {})[name] = None
                    if needed > worst.get(key, (0, 0, ""))[0]:
                        worst[key] = needed, configured, f"{name} to {topology.nodes[end.peer].name}"
    return [
        Foreseen(
            f"{key}: {configured}B is too small for {short[key]} ports of switches ({where} needs {needed}B)",
            "lossless classes may drop",
            "use auto",
            SHORT_HEADROOM,
            tuple(switches[key]),
            (OVERRUN,),
            (key, "auto"),
        )
        for key, (needed, configured, where) in sorted(worst.items())
    ]


def _oversubscribed(scenario: Scenario, topology: Topology) -> list[Foreseen]:
    worst: dict[str, tuple[int, str, int]] = {}
    switches: dict[str, list[str]] = {}
    for switch in topology.switches:
        name = topology.nodes[switch].name
        section = scenario.at(topology, switch).switch
        own = section.buffer
        shared = own.headroom_pool_bytes
        if shared is None or not section.pfc.enabled or is_deep(scenario, topology, switch):
            continue
        needed = _least_headroom_bytes(scenario, topology, switch)
        key = scenario.key_at(topology, switch, "switch.buffer.headroom_pool")
        if needed > shared:
            worst[key] = max(worst.get(key, (0, "", 0)), (needed, name, shared))
            switches.setdefault(key, []).append(name)
    return [
        Foreseen(
            f"{key}: {shared}B for all ports is less than the {most}B that {name} may"
            " need if all are stopped at once",
            "lossless classes may drop",
            "",
            SHORT_HEADROOM,
            tuple(switches[key]),
            (OVERRUN,),
            (key, f"{most}B"),
        )
        for key, (most, name, shared) in sorted(worst.items())
    ]


def _set_aside(scenario: Scenario, topology: Topology, switch: int) -> Iterator[tuple[int, int]]:
    """What reserves and what headroom take of a switch's buffer, port by port."""
    section = scenario.at(topology, switch).switch
    pfc = section.pfc
    profiles = section.buffer.profiles_of()
    reserve = sum(profile.reserve_bytes for profile in profiles)
    lossless = [profiles[priority] for priority in pfc.priorities] if pfc.enabled else []
    asic = asic_of(scenario, topology, switch)
    for auto in auto_headrooms_bytes(scenario, topology, switch, asic):
        given = [auto if one.headroom_bytes is None else one.headroom_bytes for one in lossless]
        yield reserve, sum(given)


def port_pools_bytes(scenario: Scenario, topology: Topology, switch: int) -> list[int]:
    """What is left of each port's own buffer in a modular switch. ScenarioError if nothing is, or if it is
    to do what it cannot."""
    section = scenario.at(topology, switch).switch
    if section.buffer.limited:
        reason = f"{topology.nodes[switch].name} is modular: its egress queues are short, and have no limit"
        accepted = "0, or switch.deep_buffer.where: none"
        key = next(one for one in section.buffer.limits if getattr(section.buffer, one))
        key = key.removesuffix("_bytes")
        key = scenario.key_at(topology, switch, f"switch.buffer.{key}")
        raise ScenarioError([Problem(scenario.name, 0, key, reason, accepted)])
    whole = section.deep_buffer.port_buffer_bytes
    pools = [whole - sum(taken) for taken in _set_aside(scenario, topology, switch)]
    if min(pools, default=1 << 30) < scenario.largest_frame_bytes:
        reason = f"reserves and headroom of a port of {topology.nodes[switch].name} leave no shared part"
        accepted = "a larger buffer, or less reserve or headroom"
        key = scenario.key_at(topology, switch, "switch.deep_buffer.port_buffer")
        raise ScenarioError([Problem(scenario.name, 0, key, reason, accepted)])
    return pools


def shared_pool_bytes(scenario: Scenario, topology: Topology, switch: int) -> int:
    """What is left of a switch's buffer after reserves and headroom; of all ports' own buffers, where
    they share none."""
    shared = kept(scenario, topology)
    alike = "pool", kind_of(scenario, topology, switch)
    found: int | None = shared.get(alike)
    if found is None:
        found = shared[alike] = _shared_pool_bytes(scenario, topology, switch)
    return found


def _shared_pool_bytes(scenario: Scenario, topology: Topology, switch: int) -> int:
    if is_deep(scenario, topology, switch):
        return sum(port_pools_bytes(scenario, topology, switch))
    section = scenario.at(topology, switch).switch
    whole = pool_bytes(scenario, topology, switch)
    taken = list(_set_aside(scenario, topology, switch))
    headroom = shared_headroom_bytes(scenario, topology, switch)
    if headroom is None or not section.pfc.enabled:
        headroom = sum(stopped for _, stopped in taken)
    reserves = sum(reserve for reserve, _ in taken)
    left = whole - reserves - headroom
    if left < scenario.largest_frame_bytes:
        name = topology.nodes[switch].name
        count = len(topology.ports(switch))
        reason = (
            f"reserves of {format_size(reserves)} and headroom of {format_size(headroom)} of the {count} "
            f"ports of {name} leave no shared pool in {format_size(whole)}"
        )
        least = format_size(reserves + headroom + scenario.largest_frame_bytes)
        accepted = f"a pool of at least {least}, or less reserve or headroom"
        key = scenario.key_at(topology, switch, "switch.buffer.pool")
        raise ScenarioError([Problem(scenario.name, 0, key, reason, accepted)])
    return left


class Share(NamedTuple):
    """What a priority group gets of a switch's buffer, as the switch counts it."""

    alpha_fixed: int
    xoff_bytes: int
    xon_bytes: int
    xon_offset_bytes: int
    reserve_bytes: int
    headroom_bytes: int | None


def shares_of(scenario: Scenario, topology: Topology, switch: int, alpha_fixed: int) -> list[Share]:
    """By priority, at a switch; `alpha_fixed` is that of groups without a profile of their own."""
    buffer = scenario.at(topology, switch).switch.buffer
    found = []
    for profile in buffer.profiles_of():
        alpha = alpha_fixed if profile is buffer else fixed_alpha(profile.alpha)
        static = profile.xoff_bytes or 0
        xon = profile.resumes_at(scenario.largest_frame_bytes)
        found.append(
            Share(0 if static else alpha, static, *xon, profile.reserve_bytes, profile.headroom_bytes)
        )
    return found


@cache
def fixed_alpha(alpha: Fraction) -> int:
    """An alpha as switches count it."""
    return int(Fraction(alpha) * (1 << ALPHA_BITS))


def is_deep(scenario: Scenario, topology: Topology, node: int) -> bool:
    """Whether a device is a modular switch."""
    if scenario.credited:  # then every port has its lanes
        return False
    here = topology.nodes[node]
    if here.role is not Role.SWITCH:
        return False
    section = scenario.at(topology, node).switch.deep_buffer
    if section.where == "auto":
        return scenario.topology.kind == "llama3" and here.model == "ctsw"
    return section.where == "all" or (section.where == "spines" and here.tier == 2)


class _Late(NamedTuple):
    """A Kmin above XOFF."""

    kmin_bytes: int
    xoff_bytes: int
    priority: int
    switch: str
    value_bytes: int
    """Kmin with which marking begins at half of XOFF there."""

    @property
    def excess_bytes(self) -> int:
        """How far Kmin lies above XOFF."""
        return self.kmin_bytes - self.xoff_bytes


def late_marking_foreseen(scenario: Scenario, topology: Topology) -> list[Foreseen]:
    """A warning for each Kmin that lies above the XOFF of its lossless queue, of the worst port.

    A switch marks by the depth of an egress queue, and pauses by what an ingress priority group holds. Frames
    that come in by one port fill both alike, so with Kmin above the most that a group may hold before it
    pauses, a queue fed by one port pauses its senders and never tells them to slow down. DCQCN (Zhu et al.,
    SIGCOMM 2015, section 4) therefore sets Kmin below what XOFF leaves.
    """
    if scenario.credited or not any(one.ecn_capable for one in scenario.transports):
        return []
    worst: dict[str, _Late] = {}
    switches: dict[str, dict[str, None]] = {}
    for switch in topology.switches:
        section = scenario.at(topology, switch).switch
        if not section.pfc.enabled or not isinstance(section.ecn, EcnSection) or not section.ecn.enabled:
            continue
        if is_deep(scenario, topology, switch) or section.buffer.admission.kind != "thresholds":
            continue
        pool_bytes = shared_pool_bytes(scenario, topology, switch)
        rate_bps = max(end.rate_bps for end in topology.ports(switch) if end.kind == FABRIC)
        marking, groups = section.ecn.profiles_of(), section.buffer.profiles_of()
        for priority in section.pfc.priorities:
            profile = marking[priority]
            if profile is None:
                continue
            kmin_bytes, _ = section.ecn.thresholds_at(rate_bps, profile)
            xoff_bytes = xoff_at_most_bytes(groups[priority], pool_bytes)
            if kmin_bytes <= xoff_bytes:
                continue
            key = scenario.key_at(topology, switch, f"{_key_of(section.ecn, profile)}.kmin")
            name = topology.nodes[switch].name
            switches.setdefault(key, {})[name] = None
            value_bytes = profile.kmin_bytes * xoff_bytes // (2 * kmin_bytes)
            late = _Late(kmin_bytes, xoff_bytes, priority, name, value_bytes)
            if key not in worst or late.excess_bytes > worst[key].excess_bytes:
                worst[key] = late
    return [
        Foreseen(
            f"{key}: marking begins at {one.kmin_bytes}B, above XOFF of priority group {one.priority}"
            f" ({one.xoff_bytes}B at most on {one.switch})",
            "ECN cannot act before PFC where frames come in by one port",
            f"{one.value_bytes}B would be half of XOFF",
            LATE_MARKING,
            tuple(switches[key]),
            (),
            (key, f"{one.value_bytes}B"),
            (PFC_TRANSMIT_XOFF_FRAMES,),
            (QUEUE_MARKED_FRAMES,),
        )
        for key, one in sorted(worst.items())
    ]


def xoff_at_most_bytes(profile: BufferProfile, pool_bytes: int) -> int:
    """The most that a priority group holds, its reserve included, before it pauses. The dynamic threshold is
    alpha x (pool - used), so that a group alone holds alpha / (1 + alpha) of the pool."""
    share = Fraction(profile.alpha)
    dynamic_bytes = int(pool_bytes * share / (1 + share))
    return profile.reserve_bytes + (profile.xoff_bytes or dynamic_bytes)


def _key_of(section: EcnSection, profile: MarkingProfile) -> str:
    places = [f".profiles[{at}]" for at, one in enumerate(section.profiles) if one is profile]
    return "".join(["switch.ecn", *places])
