"""Does an effect stand where most of its nearby runs are worse, and only there?"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emu.views.diagnosis.chaos import stands


def of(*values: float) -> Callable[[int], float | None]:
    """What the runs at 100, 200, 300 and 400 ns give; those beyond cannot be had."""
    return lambda nudge_ns: values[nudge_ns // 100 - 1] if nudge_ns // 100 <= len(values) else None


@pytest.mark.parametrize(
    ("bad", "good", "found"),
    [
        # One good run is above two of the bad ones: two pairs of 25 are reversed, which is as many as may be.
        ([110, 111, 120, 121, 122], [100, 100, 100, 100, 112], True),
        # Above three of them.
        ([110, 111, 111, 121, 122], [100, 100, 100, 100, 112], False),
        # An equal one is no worse.
        ([110, 110, 110, 121, 122], [100, 100, 100, 100, 110], False),
        # The medians are 105 and 100: as far apart as they have to be.
        ([105] * 5, [100] * 5, True),
        ([104.9] * 5, [100] * 5, False),
    ],
)
def test_at_most_two_pairs_of_25_are_reversed_and_medians_are_five_percent_apart(
    bad: list[float], good: list[float], found: bool
) -> None:
    assert stands(of(*bad[1:]), of(*good[1:]), bad[0], good[0]) is found


def test_where_a_run_cannot_be_had_those_that_were_decide() -> None:
    assert stands(of(120), of(100), 120, 100)
    assert not stands(of(104), of(100), 104, 100)
