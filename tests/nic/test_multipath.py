"""Is a queue pair of many paths whole, in order and fast, whatever is lost, cut, marked or shared?

Most fabrics here are NICs with a port on each of several planes: one switch a plane, or two ToRs under two
spines. Links are 400G and 500 ns long.
"""

import random
from typing import Any, ClassVar

import pytest

from actors.kernel.knobs import Knob
from actors.optional.multipath import Inflow, Multipath
from actors.wire.frame import PATHED, Frame, pathed_size
from actors.wire.message import STATUS_RETRY_EXCEEDED
from emu.api import Result, run
from emu.base.errors import ScenarioError
from emu.scenario.load import load_mapping
from emu.views.captures.packet_bytes import Row, packet
from tests.fabric.rig import Fabric
from tests.fabric.sections import graph, scenario
from tests.nic.test_states import ERR, FLUSHED, INIT, RESET, RTR, RTS, SUCCESS, ask, ended

US = 1_000_000
LOSSY = {"pfc": {"enabled": False}, "ecn": {"enabled": True, "kmin": "100KB", "kmax": "300KB", "pmax": 1}}
TWO_TIERS = {"kind": "multi_plane", "gpus_per_host": 1, "hosts": 4, "radix": 4, "link": "100G"}


def planes(count: int, nics: int = 2, pairs: int = 1, **sections: Any) -> Fabric:
    """NICs with a port on each of so many switches, and so many connections from NIC 0 to NIC 1."""
    links = [(f"nic-{nic}", f"plane-{plane}") for nic in range(nics) for plane in range(count)]
    transport = {"kind": "multipath", **sections.pop("transport", {})}
    return Fabric(scenario(graph(links), transport=transport, switch=LOSSY, **sections), [(0, 1)] * pairs)


def of_flows(
    ports: int, ends: list[tuple[int, int]], size: str, topology: dict[str, Any], **more: Any
) -> Result:
    """Flows of one queue pair each."""
    work = {"kind": "flows", "flows": [{"src": src, "dst": dst, "size": size} for src, dst in ends]}
    given = {
        "name": "paths",
        "topology": TWO_TIERS | {"planes": ports, "nic_ports": ports} | topology,
        "transport": {"kind": "multipath", **more.pop("transport", {})},
        "jobs": [{"name": "f", "workload": work}],
        **more,
    }
    return run(given, local=True, diagnose=False)


def took_ps(result: Result) -> int:
    """When the last flow was delivered."""
    times = [flow.delivered_ps for flow in result.summary.jobs["f"].flows]
    assert all(times), times
    return max(time or 0 for time in times)


# ---- rate, planes and faults


def test_one_queue_pair_is_k_times_as_fast_on_k_planes() -> None:
    """256 KiB a plane take as long on 1, 2, 4 and 8 planes, to the picosecond."""
    results = [of_flows(ports, [(0, 3)], f"{ports * 256}KiB", {}) for ports in (1, 2, 4, 8)]
    assert len({took_ps(result) for result in results}) == 1
    assert [plane.up_bytes for plane in results[-1].summary.fabric.planes] == [2**18] * 8
    assert results[-1].summary.jobs["f"].idle_ports == ""


def test_eight_planes_of_100g_carry_line_rate_less_headers() -> None:
    """4,096 of 4,202 bytes on the wire: 62 of headers, RETH 16, path 8, preamble and gap 20. MRC, with 166
    bytes of headers, was measured at 770 Gb/s."""
    result = of_flows(8, [(0, 3)], "8MiB", {}, run={"span": {"at": "30us", "for": "40us"}})
    span = result.summary.fabric.span
    assert span is not None
    assert span.delivered_bps == pytest.approx(800e9 * 4096 / 4202, rel=0.002)


@pytest.mark.parametrize(
    ("target", "kept"),
    [
        ("nic-0-0:tor-1-0", 3 / 4),  # one of four ports of the sender
        ("nic-3-0:tor-1-1", 3 / 4),  # of the receiver: nothing tells the sender but silence
        ("tor-1-0", 3 / 4),  # a T0
        ("tor-1-0:agg-1-0", 1),  # one of two ways of a plane
        ("agg-1-0", 1),  # a T1
    ],
)
def test_what_is_lost_costs_its_share_of_a_nic_and_comes_back(target: str, kept: float) -> None:
    kind = "link_down" if ":" in target else "switch_crash"
    fault = {"kind": kind, "at": "20us", "target": target}
    rates = []
    for lasts in ({}, {"for": "60us"}):
        result = of_flows(
            4,
            [(0, 3)],
            "8MiB" if not lasts else "16MiB",
            {},
            faults=[fault | lasts],
            run={"span": {"at": "240us" if lasts else "100us", "for": "40us"}},
        )
        span = result.summary.fabric.span
        assert span is not None
        rates.append(span.delivered_bps / (400e9 * 4096 / 4202))
    assert rates == pytest.approx([kept, 1], abs=0.01)


def share_of_line(result: Result, line_gbps: int) -> float:
    """What was delivered within the span, of the payload that links of this rate carry."""
    span = result.summary.fabric.span
    assert span is not None
    return span.delivered_bps / (line_gbps * 1e9 * 4096 / 4202)


def test_two_bytes_take_two_hops_more_across_a_t1() -> None:
    """A hop is a link of 500 ns, a switch of 300 ns and a packet of 110 bytes (90 and RETH, padded to 4) at
    100G. Two hops: MRC was measured at 5.09 and 6.54 us, which is 1.45, MPFT at 1.45 to 2.0 us.
    """
    below, across = (took_ps(of_flows(8, [(0, peer)], "2B", {})) for peer in (1, 3))
    assert across - below == 2 * (500_000 + 300_000 + 110 * 80)
    assert 1_450_000 <= across - below <= 2_000_000


def test_twenty_lost_uplinks_one_by_one_cost_nothing_while_each_plane_has_one() -> None:
    """20 of the 32 links between the sender's eight T0s and their T1s, one every 2 us; switches follow in 1
    us. All of the rate afterwards, and 1 % of the time of 16 MiB.
    """
    links = [f"tor-{plane}-0:agg-{plane}-{agg}" for agg in range(3) for plane in range(8)][:20]
    took = []
    for lost in ([], links):
        result = of_flows(
            8,
            [(0, 4)],
            "16MiB",
            {"hosts": 5, "radix": 8},
            routing={"convergence": "1us"},
            faults=[
                {"kind": "link_down", "at": f"{20 + 2 * number}us", "target": link}
                for number, link in enumerate(lost)
            ],
            run={"span": {"at": "90us", "for": "30us"}},
        )
        assert share_of_line(result, 800) == pytest.approx(1, abs=0.01)
        took.append(took_ps(result))
    assert took[0] < took[1] < 1.01 * took[0]


@pytest.mark.parametrize("end", [0, 3])
def test_four_lost_ports_of_eight_halve_the_rate(end: int) -> None:
    ports = [f"nic-{end}-0:tor-{plane}-{end // 2}" for plane in range(4)]
    faults = [{"kind": "link_down", "at": "10us", "target": port} for port in ports]
    span = {"span": {"at": "100us", "for": "40us"}}
    result = of_flows(8, [(0, 3)], "8MiB", {}, faults=faults, run=span)
    assert share_of_line(result, 800) == pytest.approx(1 / 2, abs=0.005)


@pytest.mark.parametrize(("uplink", "left"), [("400G", 1), ("100G", 1 / 4)])
def test_three_lost_uplinks_of_four_leave_what_the_fourth_carries(uplink: str, left: float) -> None:
    """Four NICs of 100G below a T0; switches follow in 1 us. One uplink of 400G carries all of them, one
    of 100G a quarter, of which windows leave 5 % at most.
    """
    fabric = {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 4, "spines": 4, "uplink": uplink}
    given = {
        "name": "uplinks",
        "topology": fabric | {"gpus_per_host": 1, "link": "100G"},
        "transport": {"kind": "multipath"},
        "routing": {"convergence": "1us"},
        "jobs": [
            {
                "name": "f",
                "workload": {
                    "kind": "flows",
                    "flows": [{"src": one, "dst": 4 + one, "size": "3MiB"} for one in range(4)],
                },
            }
        ],
        "faults": [
            {"kind": "link_down", "at": "20us", "target": f"rtsw-0:ctsw-{spine}"} for spine in range(3)
        ],
        "run": {"span": {"at": "100us", "for": "100us"}},
    }
    share = share_of_line(run(given, local=True, diagnose=False), 400)
    assert share == pytest.approx(left, rel=0.05)
    assert share < 1.001 * left


def test_what_never_happened_is_named_and_planes_are_counted() -> None:
    result = of_flows(2, [(0, 3)], "64KiB", {})
    assert "switch.ecn" in {one.feature for one in result.summary.never_fired}
    assert [plane.up_bytes for plane in result.summary.fabric.planes] == [32_768] * 2


# ---- loss


@pytest.mark.parametrize(("every", "least"), [(100, 0.86), (10, 0.5)])
def test_random_loss_costs_little(every: int, least: float) -> None:
    """Meta: 86 % of throughput at 1 %, useful at 10 %. Bit errors, on each of the links of a way."""
    whole = of_flows(2, PERMUTATION, "2MiB", {"hosts": 8})
    errors = {"bit_error_rate": 1 / (every * 4 * 4182 * 8)}
    lossy = of_flows(2, PERMUTATION, "2MiB", {"hosts": 8}, link=errors)
    share = lossy.summary.fabric.drops.by_reason["corrupt"] / (8 * 512)  # type: ignore[union-attr]
    assert share == pytest.approx(1 / every, rel=0.5)
    assert mean_rate(lossy) / mean_rate(whole) >= least


PERMUTATION = [(0, 5), (1, 4), (2, 7), (3, 6), (4, 1), (5, 0), (6, 3), (7, 2)]


def mean_rate(result: Result) -> float:
    """The mean over flows of what each had for its time."""
    flows = result.summary.jobs["f"].flows
    return sum(flow.bytes / (flow.delivered_ps or 1) for flow in flows) / len(flows)


@pytest.mark.soak
def test_64_nodes_keep_86_percent_of_throughput_at_one_percent_of_loss() -> None:
    ends = [(node, (node + 17) % 64) for node in range(64)]
    fabric = {"hosts": 64, "radix": 16, "link": "200G"}
    whole = of_flows(2, ends, "8MiB", fabric)
    lossy = of_flows(2, ends, "8MiB", fabric, link={"bit_error_rate": 7.5e-8})
    assert mean_rate(lossy) / mean_rate(whole) >= 0.86


@pytest.mark.parametrize("seed", range(8))
def test_messages_are_whole_and_in_order_whatever_is_lost(seed: int) -> None:
    """Data, acknowledgements and probes lost at random on the way in and out, links cut and mended."""
    dice = random.Random(seed)
    count = dice.choice((1, 2, 3))
    fabric = planes(count, transport={"mtu": 1024, "ack_every": dice.choice((1, 3))})
    share = dice.choice((0.0, 0.02, 0.3))
    for plane in range(min(count, 2)):
        for port in (0, 1):
            fabric.tap(f"plane-{plane}", port, lambda _, dice=dice: dice.random() < share)  # type: ignore[misc]
    sizes = [dice.choice((0, 1, 1024, 5000, 60_000)) for _ in range(30)]
    for size in sizes:
        fabric.post(0, 0, size)
    for _ in range(dice.choice((0, 3))):
        link = f"nic-{dice.randrange(2)}:plane-{dice.randrange(count)}"
        down = dice.randrange(60) * US
        fabric.set_link(link, down, up=False)
        fabric.set_link(link, down + dice.randrange(1, 40) * US, up=True)
    fabric.run()
    assert [one.size_bytes for one in fabric.deliveries(0)] == sizes
    assert [done.status for done in fabric.completions(0)] == [0] * len(sizes)
    assert fabric.broken(at_rest=True) == []


def test_a_gap_is_sent_again_at_once_and_once() -> None:
    """One packet of 64 is lost: nothing waits for a timer, and nothing else is sent again."""
    seen: list[int] = []

    def lose(frame: Frame) -> bool:
        seen.append(frame.psn)
        return len(seen) == 9

    fabric = planes(1, transport={"mtu": 1024, "paths": {"paths": 2}})
    fabric.tap("plane-0", 1, lose)
    fabric.post(0, 0, 64 * 1024)
    fabric.run()
    again = [psn for psn in seen if seen.count(psn) > 1]
    assert again == [seen[8]] * 2
    assert fabric.total("nic_retransmitted_frames") == 1
    assert fabric.deliveries(0)[0].time_ps < 8 * US


@pytest.mark.parametrize("lost", [(3,), (3, 4, 9), (0,), (255,), (2, 200, 250)])
def test_the_vector_says_which_of_the_last_256_came(lost: tuple[int, ...]) -> None:
    inflow = Inflow()
    for seq in range(300):
        if seq not in lost:
            inflow.came(seq)
            bits = int.from_bytes(inflow.vector(), "little")
            for back in range(256):
                there = seq - back < 0 or seq - back not in lost
                assert bits >> back & 1 == there, (seq, back)


# ---- shares


def test_an_incast_is_fair_and_settled_within_two_round_trips() -> None:
    """Seven send to one over a switch. A round trip is 2.2 us and the queue that the first windows make."""
    links = [(f"nic-{nic}", "plane-0") for nic in range(8)]
    given = scenario(graph(links), transport={"kind": "multipath"}, switch=LOSSY)
    fabric = Fabric(given, [(nic, 7) for nic in range(7)])
    for connection in range(7):
        for _ in range(64):
            fabric.post(connection, connection, 16_384)
    fabric.run()
    first_ps = 2 * (2_200_000 + 7 * 4 * 4202 * 20)
    came = [
        sum(one.size_bytes for one in fabric.deliveries(connection) if first_ps < one.time_ps <= 100 * US)
        for connection in range(7)
    ]
    assert max(came) / min(came) < 1.05
    assert sum(came) * 8 / (100 * US - first_ps) * 1e12 == pytest.approx(400e9 * 4096 / 4202, rel=0.03)


# ---- states of queue pairs


@pytest.mark.parametrize("nic", ["nic-0-0", "nic-3-0"], ids=["sender", "receiver"])
@pytest.mark.parametrize("kind", ["qp_error", "nic_reset"])
def test_an_error_ends_a_flow_as_one_of_rc_and_no_other(kind: str, nic: str) -> None:
    """By flush, or for want of answers after `timeout` and `retry_count`."""
    found = []
    for transport in ("rc", "multipath"):
        result = of_flows(
            2,
            [(0, 3), (1, 2)],
            "1MiB",
            {},
            transport={"kind": transport, "timeout": 4},
            faults=[{"kind": kind, "at": "20us", "target": nic}],
        )
        found.append([flow.status for flow in result.summary.jobs["f"].flows])
        assert result.summary.ending == "finished"
    assert found[0] == found[1]
    assert found[0][0] != "success"
    assert found[0][1] == "success"


@pytest.mark.parametrize("rank", [0, 1])
def test_what_is_posted_to_a_queue_pair_in_error_comes_back_in_order(rank: int) -> None:
    fabric = planes(2, transport={"timeout": 4})
    for number in range(40):
        fabric.post(0, 0, 16_384, number=number)
    ask(fabric, 5 * US, ERR, rank=rank)
    fabric.run()
    done = ended(fabric)
    statuses = [status for _, status in done]
    good = statuses.count(SUCCESS)
    unanswered = [STATUS_RETRY_EXCEEDED] * rank
    assert [number for number, _ in done] == list(range(40))
    assert statuses == [SUCCESS] * good + unanswered + [FLUSHED] * (40 - good - rank)
    assert 0 < good < 40
    assert fabric.broken(at_rest=True) == []


@pytest.mark.parametrize("gap_ps", [20_000, US, 30 * US])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_queue_pair_that_is_reset_in_use_begins_anew(rank: int, gap_ps: int) -> None:
    """Packets of its former life may be under way still: none of them counts. 20 messages follow."""
    fabric = planes(2, transport={"timeout": 4})
    for number in range(40):
        fabric.post(0, 0, 16_384, number=number)
    ask(fabric, 5 * US, ERR, rank=rank)
    for end in (0, 1):
        for step, state in enumerate((RESET, INIT, RTR, RTS)):
            ask(fabric, 5 * US + gap_ps + step * 10_000, state, psn=77, rank=end)
    for number in range(40, 60):
        fabric.post(6 * US + gap_ps, 0, 1000 + number, number=number)
    fabric.run()
    assert ended(fabric)[-20:] == [(number, SUCCESS) for number in range(40, 60)]
    sizes = [one.size_bytes for one in fabric.deliveries(0)]
    assert sizes[-20:] == [1000 + number for number in range(40, 60)]
    assert set(sizes[:-20]) == {16_384}


# ---- what is equal


def test_a_run_goes_on_from_its_state_with_lost_packets_and_a_failed_path() -> None:
    def make() -> Fabric:
        fabric = planes(2, pairs=3, nic={"corrupt_every": 7}, transport={"paths": {"probe": "10us"}})
        for connection in range(3):
            fabric.post(0, connection, 2**19)
        fabric.set_link("nic-1:plane-0", 5 * US, up=False)
        fabric.set_link("nic-1:plane-0", 60 * US, up=True)
        return fabric

    whole, first, second = make(), make(), make()
    whole.run()
    first.run(40 * US)
    second.load(first.save())
    second.run()
    assert second.digest() == whole.digest()
    assert whole.total("nic_paths_failed") > 0
    assert whole.total("nic_path_probes") > 0


def test_frames_have_their_size_by_the_headers_that_they_carry() -> None:
    sizes: dict[int, set[int]] = {}

    def look(frame: Frame) -> bool:
        sizes.setdefault(int(frame.opcode), set()).add(frame.wire_bytes - frame.payload_bytes)
        return False

    fabric = planes(1)
    for port in (0, 1):
        fabric.tap("plane-0", port, look)
    fabric.post(0, 0, 3 * 4096)
    fabric.run()
    # 62 and 20 of every packet; path 8; RETH 16 in each of a WRITE; AETH 4, vector 32 and share 4.
    assert sizes == {0xC6: {106}, 0xC7: {106}, 0xC8: {106}, 0xD1: {130}}
    assert pathed_size(0x1E, 0) == 90
    assert int(PATHED) == 0xC0


COLLECTIVE = {
    "name": "sums",
    "topology": {
        "kind": "multi_plane",
        "planes": 2,
        "nic_ports": 2,
        "gpus_per_host": 1,
        "hosts": 4,
        "radix": 4,
    },
    "transport": {"kind": "multipath"},
    "nic": {"corrupt_every": 50},
    "payload": "real",
    "jobs": [{"name": "f", "workload": {"kind": "collective", "op": "all_reduce", "sizes": ["256KiB"]}}],
    "faults": [{"kind": "link_down", "at": "20us", "target": "nic-1-0:tor-0-0", "for": "40us"}],
}


def test_sums_of_real_payload_are_right_and_the_digest_is_one_for_any_workers() -> None:
    one = run(COLLECTIVE, local=True, diagnose=False)
    assert one.summary.jobs["f"].collectives[0].wrong == 0
    assert one.summary.fabric.nic_retransmitted_frames
    assert run(COLLECTIVE, local=True, workers=3, diagnose=False).summary.digest == one.summary.digest


# ---- what is refused


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        (
            {"transport": {"kind": "mrc"}},
            "transport.kind: there is no transport 'mrc'; accepted: rc, multipath",
        ),
        (
            {"transport": {"kind": "multipath", "recovery": {"kind": "selective_repeat"}}},
            "transport.recovery.kind: multipath has its own rules in place of it",
        ),
        (
            {"transport": {"kind": "multipath", "congestion_control": {"kind": "dcqcn"}}},
            "transport.congestion_control.kind: multipath has its own rules",
        ),
        ({"transport": {"paths": {"paths": 2}}}, "transport.paths: a reliable connection has no paths"),
        (
            {"transport": {"kind": "multipath", "paths": {"paths": 32}}},
            "transport.paths.paths: 32 is out of range; accepted: at most 31",
        ),
        ({"transport": {"kind": "nobody:Paths"}}, "does not load"),
        ({"transport": {"kind": "multipath"}, "link": {"flow_control": "credits"}}, "link.flow_control"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused_by_key(sections: dict[str, Any], said: str) -> None:
    job = {"name": "a", "workload": {"kind": "permutation", "size": "1MiB"}}
    with pytest.raises(ScenarioError) as error:
        load_mapping({"name": "x", "topology": TWO_TIERS, "jobs": [job], **sections})
    assert said in str(error.value)


def test_pfc_is_off_unless_it_is_written() -> None:
    job = {"name": "a", "workload": {"kind": "permutation", "size": "1MiB"}}
    given = {"name": "x", "topology": TWO_TIERS, "jobs": [job], "transport": {"kind": "multipath"}}
    plain = load_mapping(given).scenario.switch
    assert (plain.pfc.enabled, plain.ecn.enabled) == (False, True)
    written = load_mapping(given | {"switch": {"pfc": {"priorities": [3, 6]}}}).scenario.switch
    assert (written.pfc.enabled, written.ecn.enabled) == (True, True)


def test_a_read_is_refused() -> None:
    flows = {"kind": "flows", "verb": "read", "flows": [{"src": 0, "dst": 3, "size": "64KiB"}]}
    given = {"name": "x", "topology": TWO_TIERS | {"planes": 1}, "transport": {"kind": "multipath"}}
    with pytest.raises(ScenarioError, match="multipath has no READ"):
        run(given | {"jobs": [{"name": "a", "workload": flows}]}, local=True)


class OnePath(Multipath):
    """A transport of one's own: the same, with one path at each port."""

    knobs: ClassVar[tuple[Knob, ...]] = (Knob("paths", "number", 1, 1, 31, "Paths at each port."),)


def test_a_transport_of_ones_own_takes_its_place() -> None:
    own = of_flows(2, [(0, 3)], "64KiB", {}, transport={"kind": f"{__name__}:OnePath"}, switch=LOSSY)
    ours = of_flows(2, [(0, 3)], "64KiB", {}, transport={"paths": {"paths": 1}}, switch=LOSSY)
    assert own.summary.digest == ours.summary.digest


@pytest.mark.parametrize(
    ("opcode", "payload", "behind_bth"),
    [
        (0xC7, 4096, "0500002a00000000" + "00" * 12 + "00001000"),  # WRITE_MIDDLE: path 5, sequence 42; RETH
        (0xD1, 0, "1f000000" + "0500002a00000000" + "ff" * 32 + "00000064"),  # AETH, path, vector, 100 Mb/s
        (0xDE, 0, "0500002a00000000"),  # a probe
    ],
)
def test_captured_bytes_have_the_headers_of_a_path(opcode: int, payload: int, behind_bth: str) -> None:
    """Nothing is padded: headers, payload and ICRC fill the size on the wire."""
    size = int(pathed_size(opcode & 0x3F, payload))
    row = Row(0, 0, 0, 64, 3, 0, 0, opcode, 24, 0, 0x1F, 50_000, 1, 2, 7, 9, payload, size, 5 << 24 | 42, 100)
    whole, length = packet(row, b"\xff" * 32 if opcode == 0xD1 else b"", bytes(6), bytes(6), 9000)
    assert len(whole) == length == size - 20 - 4
    assert int.from_bytes(whole[38:40], "big") == length - 34  # UDP's length
    assert whole[54 : 54 + len(behind_bth) // 2].hex() == behind_bth
    assert len(whole) == 54 + len(behind_bth) // 2 + payload + 4
