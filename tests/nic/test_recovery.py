"""What do the recovery schemes make of loss and reordering?

NIC 0 writes to NIC 1 through one switch; links are 400G (20 ps a byte) and 500 ns long, latencies are zero.
A full packet of MTU 1024 has 1,024 + 62 + 20 = 1,106 B on the wire and takes 22,120 ps, an acknowledgement of
86 B 1,720 ps. `corrupt_every: 256` loses every 256th data packet that comes to NIC 1.
"""

from typing import Any

import pytest

from actors.kernel.event import NEVER_PS
from actors.wire.frame import ACKNOWLEDGE, Frame
from emu.base.errors import ScenarioError
from tests.fabric.rig import Fabric
from tests.fabric.sections import scenario, star

MESSAGE = 4 * 2**20
PACKETS = 4096
PACKET_PS = 22_120
RUN_PS = 1_000_000_000
"""1 ms; the pattern of losses repeats every few microseconds."""


def lossy(scheme: str, every: int = 256, messages: int = 0, **transport: Any) -> Fabric:
    """NIC 1 loses every so many-th data packet; `messages` of 4 MiB are posted at time 0."""
    sections = {"mtu": 1024, "recovery": {"kind": scheme}, **transport}
    fabric = Fabric(scenario(star(2), nic={"corrupt_every": every}, transport=sections), [(0, 1)])
    for _ in range(messages):
        fabric.post(0, 0, MESSAGE)
    return fabric


def test_go_back_0_completes_no_message_longer_than_the_distance_of_losses() -> None:
    fabric = lossy("go_back_0", messages=1)
    fabric.run(RUN_PS)
    assert fabric.deliveries(0) == []
    assert fabric.completions(0) == []
    assert fabric.total("nic_rx_icrc_encapsulated") > RUN_PS // 10_000_000


def test_go_back_0_completes_what_is_shorter() -> None:
    fabric = lossy("go_back_0")
    for _ in range(100):
        fabric.post(0, 0, 100 * 1024)
    fabric.run()
    assert [done.status for done in fabric.completions(0)] == [0] * 100
    assert [d.size_bytes for d in fabric.deliveries(0)] == [102_400] * 100
    assert fabric.total("nic_retransmitted_frames") > 0


def test_goodput_of_go_back_n_is_the_closed_form() -> None:
    # Of 256 packets that come, one is lost. The one behind it, a packet time later, brings forth a NAK, which
    # is back after two links of 500 ns and 86 B. What left between the lost packet and the NAK's return is in
    # vain: the next packet's time, a round trip, and the packet in progress.
    out_ps = 2 * 500_000 + PACKET_PS  # from the end of a packet's serialisation until its last bit is there
    back_ps = 2 * 500_000 + 2 * 1_720
    in_vain = -(-(out_ps + PACKET_PS + back_ps) // PACKET_PS)
    assert in_vain == 93
    useful = (256 - 1 - in_vain) / 256
    expected_bps = 400e9 * useful * 1024 / 1106
    fabric = lossy("go_back_n", messages=4)
    fabric.run()
    delivered = fabric.deliveries(0)
    goodput_bps = sum(d.size_bytes for d in delivered) * 8e12 / delivered[-1].time_ps
    assert goodput_bps == pytest.approx(expected_bps, rel=0.02)


def test_selective_repeat_sends_again_only_what_was_lost() -> None:
    fabric = lossy("selective_repeat", messages=4)
    fabric.run()
    assert len(fabric.deliveries(0)) == len(fabric.completions(0)) == 4
    lost = fabric.total("nic_rx_icrc_encapsulated")
    assert lost >= 4 * PACKETS // 256
    assert fabric.total("nic_retransmitted_frames") == lost
    assert fabric.total("nic_local_ack_timeout_err") == 0
    assert fabric.total("nic_duplicate_request") == 0
    assert fabric.broken() == []


def test_selective_repeat_keeps_the_link_nearly_full_where_go_back_n_cannot() -> None:
    last = {}
    for scheme in ("go_back_n", "selective_repeat"):
        fabric = lossy(scheme, messages=5)
        fabric.run()
        last[scheme] = fabric.deliveries(0)[-1].time_ps
    floor_ps = 5 * PACKETS * PACKET_PS * 257 // 256
    assert last["selective_repeat"] < 1.01 * floor_ps
    assert last["go_back_n"] > 1.4 * floor_ps


def test_selective_repeat_has_at_most_a_window_in_flight() -> None:
    recovery = {"kind": "selective_repeat", "window": "32KiB"}
    fabric = Fabric(scenario(star(2), transport={"mtu": 1024, "recovery": recovery}), [(0, 1)])
    fabric.post(0, 0, 2**20)
    pair = fabric.pair(fabric.connections[0])
    while fabric.run_events(1):
        assert pair.next_psn - pair.una_psn <= 32
    # 32 packets per round trip: 2 links each way, the packet twice, the acknowledgement twice.
    round_trip_ps = 4 * 500_000 + 2 * PACKET_PS + 2 * 1_720
    assert fabric.deliveries(0)[0].time_ps == pytest.approx(32 * round_trip_ps, rel=0.05)


def lose_once(*psns: int) -> Any:
    """Lose the first packet with each of these PSNs (of connection 0, counted from its first)."""
    waiting = list(psns)

    def lose(frame: Frame) -> bool:
        if frame.payload_bytes and frame.psn in waiting:
            waiting.remove(frame.psn)
            return True
        return False

    return lose


def tapped(scheme: dict[str, Any], *lost: int, first: int = 0, **transport: Any) -> Fabric:
    """A fabric whose NIC 0 begins at PSN `first` and loses these PSNs, a time for each mention."""
    sections = {"mtu": 1024, "timeout": 4, "recovery": scheme, **transport}
    fabric = Fabric(scenario(star(2), transport=sections), [(0, 1)])
    fabric.set_first_psn(0, first)
    for nic in fabric.nics:
        for pair in nic.pairs:
            pair.message_psn = pair.expected_psn
            nic.recovery.prepare(pair)
    fabric.tap("nic-0", 0, lose_once(*(psn & 0xFFFFFF for psn in lost)))
    return fabric


SCHEMES: list[dict[str, Any]] = [
    {"kind": "go_back_n"},
    {"kind": "go_back_n", "placement": "out_of_order", "reorder": 8},
    {"kind": "go_back_0"},
    {"kind": "selective_repeat"},
    {"kind": "selective_repeat", "reorder": 8, "window": "64KiB"},
]


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize(
    "lost", [(0,), (99,), (50, 51, 52), (50, 50), (10, 99), (0, 0, 0), (98, 99)], ids=str
)
def test_every_scheme_delivers_everything_once_and_in_order(
    scheme: dict[str, Any], lost: tuple[int, ...]
) -> None:
    base = 0xFFFFFF - 40  # PSNs wrap within the first message
    fabric = tapped(scheme, *(base + at for at in lost), first=base)
    for size in (60 * 1024, 39 * 1024 + 1, 0, 5000):
        fabric.post(0, 0, size, immediate=size & 0xFFFF)
    fabric.run()
    assert [d.size_bytes for d in fabric.deliveries(0)] == [60 * 1024, 39 * 1024 + 1, 0, 5000]
    assert [done.status for done in fabric.completions(0)] == [0] * 4
    receiver = fabric.completions(fabric.connections[0].reversed())
    assert [done.number for done in receiver] == [
        size & 0xFFFF for size in (60 * 1024, 39 * 1024 + 1, 0, 5000)
    ]
    assert fabric.broken(at_rest=True) == []
    assert fabric.total("nic_delivered_bytes") >= fabric.posted_bytes


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_lost_acknowledgements_cost_a_timeout_at_most(scheme: dict[str, Any]) -> None:
    fabric = tapped(scheme)
    lost = [0]

    def lose(frame: Frame) -> bool:
        lost[0] += frame.opcode == ACKNOWLEDGE
        return frame.opcode == ACKNOWLEDGE and lost[0] <= 200 and lost[0] % 3 != 1

    fabric.tap("nic-1", 0, lose)
    for _ in range(4):
        fabric.post(0, 0, 30 * 1024)
    fabric.run()
    assert [d.size_bytes for d in fabric.deliveries(0)] == [30 * 1024] * 4
    assert [done.status for done in fabric.completions(0)] == [0] * 4


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_a_run_goes_on_from_its_state_in_the_midst_of_recovery(scheme: dict[str, Any]) -> None:
    def make() -> Fabric:
        sections = {"mtu": 1024, "timeout": 4, "recovery": scheme}
        return Fabric(scenario(star(2), nic={"corrupt_every": 61}, transport=sections), [(0, 1)])

    whole, first, second = make(), make(), make()
    for fabric in (whole, first):
        for size in (30_000, 50_000, 20_000):
            fabric.post(0, 0, size)
    whole.run()
    first.run_events(260)
    second.load(first.save())
    second.run()
    assert second.digest() == whole.digest()


def test_out_of_order_placement_does_not_send_again_what_was_only_overtaken() -> None:
    for placement, again in (("in_order", True), ("out_of_order", False)):
        scheme = {"kind": "go_back_n", "placement": placement}
        fabric = tapped(scheme)
        tap = fabric.tap("switch", 1)
        held: list[Frame] = []

        def delay(frame: Frame, tap: Any = tap, held: list[Frame] = held) -> bool:
            if frame.payload_bytes and frame.psn % 10 == 3 and not held:
                held.append(frame)
                return True
            if held and frame.psn % 10 == 7:
                late = held.pop()
                late.time_ps = tap.queue.now_ps + tap.SHARE_PS + 1
                late.key = tap.onwards
                tap.queue.push(late)
            return False

        tap.lose = delay
        fabric.post(0, 0, 200 * 1024)
        fabric.run(NEVER_PS)
        assert [d.size_bytes for d in fabric.deliveries(0)] == [200 * 1024]
        assert (fabric.total("nic_retransmitted_frames") > 0) == again
        assert fabric.total("nic_out_of_sequence") > 0


def test_adaptive_retransmission_begins_short_and_doubles_and_counts_no_retry_before_the_full_timeout() -> (
    None
):
    adaptive = {"enabled": True, "least": "10us"}
    sections = {"timeout": 4, "retry_count": 1, "adaptive_retransmission": adaptive}
    fabric = Fabric(scenario(star(2), transport=sections), [(0, 1)])
    tap = fabric.tap("nic-0", 0, lambda frame: True)
    fabric.post(0, 0, 1000)
    fabric.run()
    # 4.096 us x 2^4 = 65.536 us. Waits: 10, 20, 40, then 65.536 twice (one retry, then it gives up).
    assert len(tap.seen) == 5
    assert fabric.total("nic_roce_adp_retrans") == 3
    assert fabric.total("nic_local_ack_timeout_err") == 2
    (failed,) = fabric.completions(0)
    assert failed.status == 12
    assert failed.time_ps == 10_000_000 + 20_000_000 + 40_000_000 + 2 * 65_536_000 + 1_000 + 250_000


@pytest.mark.parametrize(
    ("transport", "reported"),
    [
        ({"recovery": {"kind": "go_back"}}, "go_back"),
        ({"recovery": {"kind": "selective_repeat", "window": "1KiB"}}, "holds no packet"),
        ({"timeout": 1, "adaptive_retransmission": {"enabled": True, "least": "9us"}}, "longer than"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(transport: dict[str, Any], reported: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario(star(2), transport=transport)
    assert reported in str(caught.value)
