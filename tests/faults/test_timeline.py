"""Do overlapping faults leave each link in the state that the rules say, at every instant?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.scenario.faults.events import LinkChange, LinkFault, link_changes


def down(at_ps: int, for_ps: int = 0, link: int = 0) -> LinkFault:
    return LinkFault(at_ps, up=False, links=(link,), for_ps=for_ps)


def up(at_ps: int, link: int = 0) -> LinkFault:
    return LinkFault(at_ps, up=True, links=(link,))


def changes(*faults: LinkFault) -> list[tuple[int, bool, int]]:
    """(time, up, fault) of each change of link 0."""
    return [(change.at_ps, change.up, change.fault) for change in link_changes(faults)]


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ([down(10)], [(10, False, 0)]),
        ([down(10, 5)], [(10, False, 0), (15, True, 0)]),
        ([down(10), up(20)], [(10, False, 0), (20, True, 1)]),
        ([up(20)], []),
        ([down(10), down(12)], [(10, False, 0)]),
        ([down(10, 5), down(12, 10)], [(10, False, 0), (22, True, 1)]),
        ([down(10, 20), down(12, 5)], [(10, False, 0), (30, True, 0)]),
        ([down(10, 20), up(15)], [(10, False, 0), (15, True, 1)]),
        ([down(10, 20), up(15), down(18, 4)], [(10, False, 0), (15, True, 1), (18, False, 2), (22, True, 2)]),
        ([down(10, 5), down(15, 5)], [(10, False, 0), (20, True, 1)]),
        ([down(10), up(10)], [(10, False, 0)]),
        ([down(5), up(10), down(10)], [(5, False, 0)]),
        ([down(10, 5), up(15)], [(10, False, 0), (15, True, 1)]),
        ([up(20), down(10)], [(10, False, 1), (20, True, 0)]),
        ([down(0)], [(0, False, 0)]),
    ],
)
def test_a_link_is_down_while_anything_holds_it(
    faults: list[LinkFault], expected: list[tuple[int, bool, int]]
) -> None:
    assert changes(*faults) == expected


def test_links_are_independent_and_sorted_by_time_then_number() -> None:
    faults = [LinkFault(10, up=False, links=(7, 3), for_ps=5), down(10, 1, link=5)]
    assert link_changes(faults) == (
        LinkChange(10, 3, False, 0),
        LinkChange(10, 5, False, 1),
        LinkChange(10, 7, False, 0),
        LinkChange(11, 5, True, 1),
        LinkChange(15, 3, True, 0),
        LinkChange(15, 7, True, 0),
    )


def is_down(faults: list[LinkFault], at_ps: int) -> bool:
    """The rule itself: some fault holds the link just after `at_ps`, and no repair ended its hold."""
    repairs = [fault.at_ps for fault in faults if fault.up]
    return any(
        fault.at_ps <= at_ps
        and (not fault.for_ps or at_ps < fault.at_ps + fault.for_ps)
        and not any(fault.at_ps < repair <= at_ps for repair in repairs)
        for fault in faults
        if not fault.up
    )


FAULTS = st.lists(
    st.builds(
        LinkFault,
        at_ps=st.integers(min_value=0, max_value=12),
        up=st.booleans(),
        links=st.just((0,)),
        for_ps=st.integers(min_value=0, max_value=6),
    ).map(lambda fault: fault._replace(for_ps=0) if fault.up else fault),
    max_size=6,
)


@given(FAULTS)
def test_the_state_after_every_instant_is_the_one_the_rule_gives(faults: list[LinkFault]) -> None:
    found = link_changes(faults)
    assert [change.up for change in found] == [place % 2 == 1 for place in range(len(found))]
    assert len({change.at_ps for change in found}) == len(found)
    for at_ps in range(20):
        state = [change.up for change in found if change.at_ps <= at_ps]
        assert (bool(state) and not state[-1]) == is_down(faults, at_ps)
    for change in found:
        assert faults[change.fault].at_ps <= change.at_ps
