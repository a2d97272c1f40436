"""Is the subject of a rank's timer taken apart as it was packed, and does no other timer have it?"""

from itertools import product

import pytest

from actors.ncclx.rank.timer_subjects import COMPUTED, CONNECTED, LATER, WATCHED, Timers

TURNS = 3


@pytest.mark.parametrize("connects", [False, True])
def test_every_timer_has_a_subject_of_its_own_in_the_order_of_the_kinds(connects: bool) -> None:
    """They lie without a gap behind 0, which is no program's."""
    for streams, groups in product((1, 2, 5), (0, 1, 4)):
        timers = Timers(streams, groups, connects)
        kinds = [(COMPUTED, streams), (WATCHED, groups)]
        kinds += [(CONNECTED, groups)] if connects else []
        kinds += [(LATER + turn, streams) for turn in range(TURNS)]
        wanted = [(kind, number) for kind, count in kinds for number in range(count)]
        subjects = range(1, len(wanted) + 1)
        assert [timers.subject(kind, number) for kind, number in wanted] == list(subjects)
        assert [timers.parts(subject) for subject in subjects] == wanted
