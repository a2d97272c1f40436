"""Does the arithmetic of the DCQCN paper come out, and is a headroom that is too small told?"""

from __future__ import annotations

from fractions import Fraction

import pytest

from actors.runtime.fabric import headroom_warnings
from actors.switch.thresholds import dcqcn_thresholds
from emu.scenario.resolve import build_topology
from tests.fabric.sections import scenario, star, zone


def test_the_12_mb_32_port_switch_of_the_paper() -> None:
    found = dcqcn_thresholds(12_000_000, 32, 22_400, 8)
    assert found.headroom_bytes == 5_734_400
    assert found.static_pfc_bytes == 24_475
    """Printed as 24.47 KB."""
    assert found.static_ecn_bytes == Fraction(24_475, 32)
    assert found.static_ecn_bytes < 1500
    assert found.dynamic_ecn_bytes == Fraction(195_800, 9)
    """21,755.6 B, printed as 21.75 KB."""


def test_headroom_that_leaves_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="5734400 bytes leaves nothing of 5000000"):
        dcqcn_thresholds(5_000_000, 32, 22_400, 8)


def test_a_headroom_below_the_formula_is_told_for_the_worst_port() -> None:
    # 2 x 500 ns at 400G is 50,000 B; three frames of 4,178 B and a pause of 84 B more.
    exact = {"buffer": {"headroom": f"{50_000 + 3 * 4178 + 84}B"}}
    less = {"buffer": {"headroom": f"{50_000 + 3 * 4178 + 83}B"}}
    for switch, told in ((exact, 0), (less, 1)):
        one = scenario(star(3), switch=switch)
        assert len(headroom_warnings(one, build_topology(one))) == told
    one = scenario(zone(2, 1, 1, uplink_delay="5us"), switch=exact)
    (line,) = headroom_warnings(one, build_topology(one))
    assert line == (
        "switch.buffer.headroom: 62618B is too small for 4 ports of switches"
        " (rtsw-0 to ctsw-0 needs 512618B): lossless classes may drop; use auto"
    )


def test_automatic_headroom_is_never_too_small_and_without_pfc_none_is_needed() -> None:
    for switch in ({}, {"buffer": {"headroom": "1KiB"}, "pfc": {"enabled": False}}):
        one = scenario(star(3), switch=switch)
        assert headroom_warnings(one, build_topology(one)) == []
