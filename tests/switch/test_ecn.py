"""Does a queue mark what RED says, and nothing else?"""

from __future__ import annotations

import pytest

from actors.kernel.mixing import Stream
from actors.switch.ecn import EgressQueue, Red
from actors.wire.frame import ECN_CAPABLE, ECN_CONGESTED, ECN_NOT_CAPABLE
from emu.base.units import parse_rate, parse_size
from emu.scenario.sections.switch import EcnSection
from tests.fabric.rig import Fabric
from tests.fabric.sections import scenario, star
from tests.switch.frames import FULL_PS, frame_arrives

FULL_WIRE = 4194
"""A WRITE_ONLY of 4,096 B on the wire."""


def red(kmin: int, kmax: int, pmax: float) -> Red:
    queue = EgressQueue("switch", 0, 3, parse_rate("400G"), Stream(1, 2, 3))
    return Red(queue, kmin, kmax, int(pmax * (1 << 30)))


def test_nothing_up_to_kmin_and_everything_from_kmax_on() -> None:
    one = red(1000, 2000, 0.01)
    assert not any(one.marks(1000, 0, 0) for _ in range(100))
    assert all(one.marks(2000, 0, 0) for _ in range(100))
    assert one.stream.counter == 0


@pytest.mark.parametrize(("depth", "share"), [(1250, 0.05), (1500, 0.10), (1999, 0.1998)])
def test_between_them_the_share_rises_to_pmax(depth: int, share: float) -> None:
    one = red(1000, 2000, 0.2)
    count = 20_000
    marked = sum(one.marks(depth, 0, 0) for _ in range(count))
    # Six standard deviations of a fair draw.
    assert abs(marked - count * share) < 6 * (count * share * (1 - share)) ** 0.5


def test_equal_thresholds_are_a_step() -> None:
    one = red(1000, 1000, 0.5)
    assert not one.marks(1000, 0, 0)
    assert one.marks(1001, 0, 0)


def marking(**ecn: object) -> Fabric:
    return Fabric(scenario(star(3), switch={"ecn": {"enabled": True, "scaled": False, **ecn}}))


def queue_of_ten(fabric: Fabric, priority: int = 3, ecn: int = ECN_CAPABLE) -> list[int]:
    """Ten frames meet at port 2, one after the other; the ECN bits with which each left, in order."""
    frames = []
    for turn in range(10):
        frame = frame_arrives(fabric, turn, turn % 2, 2, priority)
        frame.ecn = ecn
        frames.append(frame)
    fabric.run()
    return [frame.ecn for frame in sorted(frames, key=lambda frame: frame.sent_ps)]


def test_a_queue_marks_at_dequeue_by_what_then_waits() -> None:
    # The first leaves at once; nine wait. Those that leave a queue of more than five are marked.
    fabric = marking(kmin=f"{5 * FULL_WIRE}B", kmax=f"{5 * FULL_WIRE + 1}B")
    assert queue_of_ten(fabric) == [ECN_CAPABLE] + [ECN_CONGESTED] * 4 + [ECN_CAPABLE] * 5
    assert fabric.total("queue_marked_frames") == 4


def test_kmin_0_marks_every_frame_that_waited_and_none_that_found_the_port_free() -> None:
    """A queue of 0 is not above Kmin: probability 0 in DCQCN's figure of RED (SIGCOMM'15), and in the switch
    of HPCC's ns-3, which compares what stays behind and so spares the last of a queue too."""
    alone = marking(kmin=0, kmax="1B")
    frames = [frame_arrives(alone, turn * (FULL_PS + 1), 0, 2) for turn in range(50)]
    both = marking(kmin=0, kmax="1B")
    frames += [frame_arrives(both, turn // 2 * (FULL_PS + 1), turn % 2, 2) for turn in range(100)]
    for frame in frames:
        frame.ecn = ECN_CAPABLE
    alone.run()
    both.run()
    assert [frame.ecn for frame in frames].count(ECN_CONGESTED) == both.total("queue_marked_frames") == 99
    assert alone.total("queue_marked_frames") == 0


def test_what_is_not_capable_is_never_marked() -> None:
    assert queue_of_ten(marking(kmin=0, kmax="1B"), ecn=ECN_NOT_CAPABLE) == [ECN_NOT_CAPABLE] * 10


def test_other_priorities_are_left_alone() -> None:
    assert queue_of_ten(marking(kmin=0, kmax="1B"), priority=6) == [ECN_CAPABLE] * 10
    assert queue_of_ten(marking(kmin=0, kmax="1B", priorities=[6]), priority=6).count(ECN_CONGESTED) == 9


def test_a_queue_with_a_profile_marks_by_its_own_thresholds_and_others_by_the_sections() -> None:
    profile = {"priorities": [6], "kmin": 0, "kmax": "1B", "pmax": "1/2"}
    ecn = {"kmin": f"{5 * FULL_WIRE}B", "kmax": f"{5 * FULL_WIRE + 1}B", "profiles": [profile]}
    assert queue_of_ten(marking(**ecn)).count(ECN_CONGESTED) == 4
    assert queue_of_ten(marking(**ecn), priority=6).count(ECN_CONGESTED) == 9
    assert queue_of_ten(marking(**ecn), priority=0).count(ECN_CONGESTED) == 0


def test_the_first_profile_that_names_a_queue_counts_and_scales_with_the_port() -> None:
    section = EcnSection.model_validate(
        {
            "priorities": (3,),
            "profiles": (
                {"priorities": (6,), "kmin": "10KB", "kmax": "20KB"},
                {"priorities": (6, 3), "kmin": "40KB", "kmax": "80KB"},
            ),
        }
    )
    kmins = [None if one is None else one.kmin_bytes for one in section.profiles_of()]
    assert kmins == [None, None, None, 40_000, None, None, 10_000, None]
    assert section.thresholds_at(parse_rate("100G"), section.profiles[1]) == (10_000, 20_000)


def test_thresholds_scale_with_the_rate_of_the_port() -> None:
    section = EcnSection()
    assert section.thresholds_at(parse_rate("400G")) == (parse_size("800KB"), parse_size("3200KB"))
    assert section.thresholds_at(parse_rate("100G")) == (200_000, 800_000)
    fixed = EcnSection(scaled=False)
    assert fixed.thresholds_at(parse_rate("100G")) == (800_000, 3_200_000)


def test_off_nothing_is_marked_nor_counted() -> None:
    fabric = Fabric(scenario(star(3)))
    assert queue_of_ten(fabric) == [ECN_CAPABLE] * 10
    assert all(
        series.metric != "queue_marked_frames" for device in fabric.devices() for series in device.series()
    )
