"""Is headroom by the formula enough in the worst case, and is less than enough noticed?

NIC 0 streams at 400G into a switch whose way out carries 1G and whose threshold is nothing, so that the first
frame that waits crosses XOFF. Meanwhile the switch sends full frames back to NIC 0: the pause frame has to
wait for the one in progress. When that frame began is what is varied.
"""

import pytest

from actors.switch.buffer import HEADROOM_OVERRUN, headroom_bytes
from emu.base.errors import ScenarioError
from emu.devices.asic_headroom import ASICS
from emu.devices.buffer_sizes import (
    asic_of,
    headroom_warnings,
    needed_headroom_bytes,
    needed_quanta,
    pool_bytes,
    port_headroom_bytes,
    shared_headroom_bytes,
    shared_pool_bytes,
)
from emu.scenario.resolve import build_topology
from tests.fabric.rig import Fabric
from tests.fabric.sections import Section, scenario, star

REVERSE_OFFSETS_PS = range(0, 84_000, 6_000)


def test_headroom_formula_by_hand() -> None:
    # 2 x 500 ns + 905 quanta of 1,280 ps + 300 ns = 2,458,400 ps, at 400G 122,920 B; 3 x 4,178 + 84.
    assert headroom_bytes(400 * 10**9, 500_000, 4178, 1_158_400, 300_000) == 135_538
    # 2 x 500 ns at 100G are 12,500 B; nothing else but the frames.
    assert headroom_bytes(100 * 10**9, 500_000, 1106, 0, 0) == 15_902
    # Parts of a byte are rounded up: 2 x 1 ns at 3G are 0.75 B.
    assert headroom_bytes(3 * 10**9, 1_000, 0, 0, 0) == 85


def congested(
    offset_ps: int,
    pool: str,
    headroom: str,
    full_pool: bool,
    response: str = "auto",
    ended: bool = True,
    quanta: int = 65535,
    size_bytes: int = 300_000,
) -> Fabric:
    """The worst case described above; with `full_pool` another port's frame holds all there is to share."""
    buffer: Section = {"alpha": "1/65536", "reserve": 0, "headroom": headroom, "pool": pool}
    switch: Section = {"latency": "300ns", "buffer": buffer, "pfc": {"response": "1us", "quanta": quanta}}
    nic: Section = {"pfc_response": response}
    transport: Section = {"timeout": 0, "ack_every": 4096}  # acknowledgements would take room from the stream
    fabric = Fabric(
        scenario(star(4, {2: "1G"}), switch=switch, nic=nic, transport=transport), [(0, 2), (1, 2), (3, 0)]
    )
    if full_pool:
        fabric.post(0, 1, 2 * 4096)
    fabric.post(1_000_000, 0, size_bytes)
    fabric.post(offset_ps, 2, size_bytes * 2 // 3)
    if ended:
        fabric.run()
    return fabric


def pool_with(headrooms: int, shared_bytes: int) -> str:
    """A pool that leaves `shared_bytes` for sharing: two lossless priorities of four ports."""
    return f"{2 * headrooms + shared_bytes}B"


# Three ports of 400G as above; at 1G the NIC takes 394 quanta: 1,000 + 201,728 + 300 ns are 25,379 B
# and, with 12,534 + 84 for the frames, 37,997.
ALL_PORTS_BYTES = 3 * 135_538 + 37_997


@pytest.mark.parametrize(
    ("full_pool", "worst_bytes"),
    [
        # The window is 122,920 B of wire, 84 for the pause frame and up to 4,178 for the frame it waits for:
        # 127,182 B, in which 31 frames of 4,178 B begin. In the buffer each counts 4,158.
        (False, 31 * 4158),
        # The crossing frame comes on top. It is the first of its message, and has a RETH.
        (True, 32 * 4158 + 16),
    ],
)
def test_headroom_by_the_formula_survives_the_worst_case_and_is_nearly_used_up(
    full_pool: bool, worst_bytes: int
) -> None:
    peak = 0
    for offset_ps in REVERSE_OFFSETS_PS:
        fabric = congested(offset_ps, pool_with(ALL_PORTS_BYTES, 4_200), "auto", full_pool)
        (switch,) = fabric.switches
        assert fabric.broken(at_rest=True, lossless=True) == []
        assert switch.buffer.pool_bytes == 4_200
        group = switch.buffer.groups[3]
        assert group.headroom_bytes == 135_538
        peak = max(peak, group.headroom_peak_bytes)
    assert peak == worst_bytes


FRAME_PS = 83_560
"""A packet in the middle of a message: 4,178 B on the wire at 400G."""
RESPONSE_PS = 1_038_020
"""With it the window of 2 x 500 ns, this and 300 ns is 116,901 B: with the pause frame one byte more than 28
frames."""
BOUND_BYTES = 116_901 + 84 + 3 * 4178
SLOW_PORT_BYTES = 293 + 84 + 3 * 4178
"""The same at 1G."""
WORST_FRAMES = 31
"""28 that begin in the window and one in its last byte, one while the pause waits for a whole frame, and the
one that crosses. In the buffer each counts without preamble and gap, and the first has a RETH."""
WORST_BYTES = WORST_FRAMES * 4158 + 16


def worst_of_all(headroom: str, pool: str) -> Fabric:
    """The pause is due 10 ps after the frame began that is in its way: less than a byte is left over."""
    response = f"{RESPONSE_PS}ps"
    trial = congested(0, pool, headroom, full_pool=True, response=response, ended=False)
    group = trial.switches[0].buffer.groups[3]
    pfc = group.pfc
    assert pfc is not None
    while not group.stopped:
        assert trial.run_events(1)
    due_ps = int(trial.queue.now_ps)
    while pfc.sent[3] == 0:
        assert trial.run_events(1)
    waited_ps = int(trial.queue.now_ps) - due_ps
    later_ps = (FRAME_PS - 10 - waited_ps) % FRAME_PS  # what is in the way ends so much later
    return congested(later_ps, pool, headroom, full_pool=True, response=response)


def test_the_bound_is_reached_to_the_frame_and_with_a_frame_less_of_headroom_one_is_dropped() -> None:
    assert BOUND_BYTES == WORST_FRAMES * 4178 + 1
    fabric = worst_of_all("auto", pool_with(3 * BOUND_BYTES + SLOW_PORT_BYTES, 4_200))
    group = fabric.switches[0].buffer.groups[3]
    assert group.headroom_bytes == BOUND_BYTES
    assert group.headroom_peak_bytes == WORST_BYTES
    assert fabric.broken(at_rest=True, lossless=True) == []
    for given_bytes, lost in ((BOUND_BYTES - 4178, 1), (WORST_BYTES - 1, 1), (WORST_BYTES, 0)):
        fabric = worst_of_all(f"{given_bytes}B", pool_with(4 * given_bytes, 4_200))
        assert fabric.total("port_dropped_frames", "headroom_overrun") == lost, given_bytes


def test_headroom_a_tenth_too_small_overruns_and_says_so() -> None:
    fabric = congested(0, "64MB", "120KB", full_pool=False)
    assert fabric.total("port_dropped_frames", "headroom_overrun") > 0
    assert fabric.total("port_dropped_frames", "no_shared_room") == 0
    assert fabric.broken() == []


def test_pauses_of_the_least_quanta_hold_and_of_half_that_lapse_until_headroom_overruns() -> None:
    # At half the quanta a pause frame waits for a full frame, of 4,178 B or with the largest headers 16 more,
    # and for another pause frame, 84 B: 2 x 4,262 B / 64 B.
    least = needed_quanta(scenario(star(4)))
    assert 2 * (4178 + 84) / 64 <= least <= 2 * (4178 + 16 + 84) / 64 + 1
    pool, overruns = pool_with(ALL_PORTS_BYTES, 4_200), [0, 0]
    for at, quanta in enumerate((least, least // 2)):
        for offset_ps in REVERSE_OFFSETS_PS[::3]:
            one = congested(offset_ps, pool, "auto", True, ended=False, quanta=quanta, size_bytes=2_000_000)
            one.run(60_000_000)
            overruns[at] += one.switches[0].ports[0].dropped[HEADROOM_OVERRUN]
    assert overruns[0] == 0 < overruns[1]


def test_quanta_that_are_too_short_are_announced_and_less_than_a_pause_frame_refused() -> None:
    least = needed_quanta(scenario(star(4)))
    for quanta, lines in ((least, 0), (least - 1, 1)):
        one = scenario(star(4), switch={"pfc": {"quanta": quanta}})
        assert len(headroom_warnings(one, build_topology(one))) == lines
    with pytest.raises(ScenarioError, match="quanta"):  # 64 B, and a pause frame has 84
        scenario(star(4), switch={"pfc": {"quanta": 1}})


SHIPPED: dict[str, dict[int, dict[int, int]]] = {
    "tomahawk5": {
        25: {5: 91_440, 40: 94_742},
        50: {5: 106_934, 40: 113_538},
        100: {5: 147_066, 40: 160_274, 300: 258_572},
        200: {5: 229_362, 40: 255_778, 300: 452_374},
        400: {5: 393_192, 40: 446_024, 300: 839_216},
        800: {5: 729_488, 40: 835_406, 300: 1_621_536},
    },
    "tomahawk4": {
        25: {5: 75_438, 40: 78_740, 300: 103_378},
        50: {5: 91_694, 40: 98_298, 300: 147_574},
        100: {5: 129_032, 40: 142_240, 300: 240_538},
        200: {5: 214_122, 40: 240_792, 300: 437_134},
        400: {5: 371_348, 40: 424_434, 300: 817_372},
    },
    "tomahawk3": {
        100: {5: 68_580, 40: 74_422, 300: 117_348, 1000: 233_172, 2000: 398_526},
        400: {5: 178_562, 40: 201_930, 300: 373_888},
    },
}
"""`xoff` of pg_profile_lookup.ini of Dell's Z9864F, Z9664F and Z9332F, by Gb/s and metres.

Up to 50G the files of the Z9864F have at 300 m what they have at 100G; at 400G and 1,000 m or more the Z9332F
has a cell less.
"""


@pytest.mark.parametrize(
    ("asic", "rate", "metres"),
    [(asic, rate, m) for asic, rates in SHIPPED.items() for rate, cables in rates.items() for m in cables],
)
def test_headroom_of_a_chip_is_what_its_boxes_ship_to_the_byte(asic: str, rate: int, metres: int) -> None:
    section: Section = {"buffer": {"asic": asic, "pool": "100MB"}}
    fabric = {
        "kind": "star",
        "hosts": 2,
        "gpus_per_host": 1,
        "link": f"{rate}G",
        "nic_delay": f"{5 * metres}ns",
    }
    one = scenario(fabric, switch=section)
    topology = build_topology(one)
    (switch,) = topology.switches
    profiles = one.switch.buffer.profiles_of()
    chip = asic_of(one, topology, switch)
    ends = topology.ports(switch)
    sizes = [port_headroom_bytes(one, topology, switch, end, chip, profiles[3]) for end in ends]
    assert sizes == [SHIPPED[asic][rate][metres]] * 2
    left = 100_000_000 - 2 * 8 * 4096 - 4 * sizes[0]  # two lossless priorities, two ports
    assert shared_pool_bytes(one, topology, switch) == left
    assert Fabric(one, []).switches[0].buffer.groups[3].headroom_bytes == sizes[0]


@pytest.mark.parametrize("asic", ASICS)
def test_headroom_of_a_chip_grows_with_rate_and_cable_and_is_never_less_than_what_is_needed(
    asic: str,
) -> None:
    chip = ASICS[asic]
    for delays in (range(0, 4_000_000, 500_000), range(25_000, 30_000, 1_000)):
        for rates in (range(10, 810, 40), (25, 40, 50, 100, 200, 400, 800)):
            table = [[chip.headroom_bytes(rate * 10**9, delay) for delay in delays] for rate in rates]
            assert all(row == sorted(row) for row in table)
            assert all(list(column) == sorted(column) for column in zip(*table, strict=True))
            assert all(size % chip.cell_bytes == 0 for row in table for size in row)
    slow = scenario(star(4), switch={"buffer": {"asic": asic}}, nic={"pfc_response": "100us"})
    topology = build_topology(slow)
    (switch,) = topology.switches
    for end in topology.ports(switch):
        least = needed_headroom_bytes(slow, topology, switch, end)
        assert port_headroom_bytes(slow, topology, switch, end, ASICS[asic], slow.switch.buffer) == least


BOXES = {
    (32, "400G"): ("Tomahawk 3", 66_394_076),
    (33, "400G"): ("Tomahawk 4", 113_620_296),
    (64, "400G"): ("Tomahawk 4", 113_620_296),
    (65, "400G"): ("Tomahawk 5", 162_539_680),
    (128, "200G"): ("Tomahawk 4", 113_620_296),
    (129, "400G"): ("Tomahawk 5", 162_539_680),
}
"""By number of ports and their rate: the chip of a box with that many, and its pool in buffers_defaults."""


@pytest.mark.parametrize(("ports", "rate"), BOXES)
def test_by_default_a_switch_is_the_smallest_box_that_has_its_ports(ports: int, rate: str) -> None:
    """Groups have headroom of their own as long as the box has enough for all, then they share the box's."""
    chip, pool = BOXES[ports, rate]
    fabric = {"kind": "star", "hosts": ports, "gpus_per_host": 1, "link": rate, "nic_delay": "500ns"}
    one = scenario(fabric, switch={"buffer": {"asic": "auto"}})
    topology = build_topology(one)
    (switch,) = topology.switches
    found = asic_of(one, topology, switch)
    assert found is not None
    assert (found.title, pool_bytes(one, topology, switch)) == (chip, pool)
    each = found.headroom_bytes(topology.ports(switch)[0].rate_bps, 500_000)
    least = needed_headroom_bytes(one, topology, switch, topology.ports(switch)[0])
    assert each > 1.5 * least
    shared = shared_headroom_bytes(one, topology, switch)
    if 2 * ports * each <= found.headroom_pool_bytes:
        assert shared is None
    else:
        assert shared == max(found.headroom_pool_bytes, 2 * ports * least)
    held = shared or 2 * ports * each
    assert shared_pool_bytes(one, topology, switch) == pool - ports * 8 * 4096 - held
    built = Fabric(one, []).switches[0].buffer
    assert built.headroom_pool_bytes == (shared or 0)
    assert built.groups[3].headroom_bytes == each
    assert headroom_warnings(one, topology) == []


@pytest.mark.parametrize(
    "sections",
    [
        {"switch": {"buffer": {"asic": "auto", "pool": "64MB"}}},
        {"switch": {"buffer": {"asic": "none"}}},
        {"switch": {"buffer": {"asic": "auto"}, "deep_buffer": {"where": "all"}}},
        {"switch": {"buffer": {"asic": "auto"}}, "link": {"flow_control": "credits"}},
    ],
)
def test_a_switch_that_is_no_box_of_a_known_chip_has_the_bytes_that_it_needs(sections: Section) -> None:
    one = scenario(star(4), **sections)
    topology = build_topology(one)
    (switch,) = topology.switches
    assert asic_of(one, topology, switch) is None
    assert pool_bytes(one, topology, switch) == 64_000_000
    for end in topology.ports(switch):
        least = needed_headroom_bytes(one, topology, switch, end)
        assert port_headroom_bytes(one, topology, switch, end, None, one.switch.buffer) == least
