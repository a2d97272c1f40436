"""Do streams go through their lists in order, wait for events, and never pass one that was not recorded?"""

from graphlib import CycleError, TopologicalSorter

from hypothesis import given
from hypothesis import strategies as st

from actors.ncclx.rank.streams import CALL, COMPUTE, NOTHING, RECORD, WAIT, Streams

Instruction = tuple[int, int, int]
EVENTS = 3
COMPUTES: Instruction = (int(COMPUTE), 5, 0)
CALLS: Instruction = (int(CALL), 0, 0)


def test_a_stream_stops_at_what_takes_time_and_behind_an_event_that_is_not_recorded() -> None:
    streams = Streams([[(int(WAIT), 0, 1), CALLS], [COMPUTES, (int(RECORD), 0, 0)]], 1, 2, single=False)
    streams.begin(0)
    assert (streams.step(streams.each[0], 100), streams.step(streams.each[1], 100)) == (NOTHING, COMPUTE)
    streams.each[1].over()
    assert (streams.step(streams.each[1], 700), streams.moved) == (NOTHING, True)
    assert (streams.step(streams.each[0], 700), list(streams.waited_ps)) == (CALL, [0, 600])
    assert not streams.done()
    streams.each[0].over()
    assert streams.done()


def test_an_operation_of_a_benchmark_is_the_instruction_at_its_place() -> None:
    streams = Streams([[CALLS, COMPUTES, CALLS]], 0, 1, single=True)
    streams.begin(1)
    assert (streams.step(streams.each[0], 0), streams.each[0].place) == (COMPUTE, 1)
    streams.each[0].over()
    assert streams.done()


def test_only_streams_that_wait_for_what_happened_look_again() -> None:
    streams = Streams([[CALLS], [CALLS], [COMPUTES]], 0, 1, single=False)
    for stream, waited in zip(list(streams.each), (1, 2, -1), strict=True):
        stream.waits_for = waited
    streams.wake_for(2)
    assert [stream.waits_for for stream in streams.each] == [1, 0, -1]


@st.composite
def scripts(draw: st.DrawFn) -> list[list[Instruction]]:
    """Lists with waits anywhere, and each event recorded in one place."""
    waits = [(int(WAIT), event, 0) for event in range(EVENTS)]
    line = st.lists(st.sampled_from([COMPUTES, CALLS, *waits]), max_size=5)
    lists = draw(st.lists(line, min_size=1, max_size=4))
    for event in range(EVENTS):
        chosen = draw(st.sampled_from(lists))
        chosen.insert(draw(st.integers(0, len(chosen))), (int(RECORD), event, 0))
    return lists


@given(scripts())
def test_streams_come_to_their_ends_unless_their_waits_form_a_circle(lists: list[list[Instruction]]) -> None:
    """As a graph: an instruction is behind the one before it, and a wait behind the record of its event."""
    record = {
        one[1]: (stream, place)
        for stream, line in enumerate(lists)
        for place, one in enumerate(line)
        if one[0] == RECORD
    }
    graph: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for stream, line in enumerate(lists):
        for place, (kind, event, _) in enumerate(line):
            graph[stream, place] = {(stream, place - 1)} if place else set()
            if kind == WAIT:
                graph[stream, place].add(record[event])
    try:
        TopologicalSorter(graph).prepare()
        ends = True
    except CycleError:
        ends = False
    streams = Streams(lists, EVENTS, 1, single=False)
    streams.begin(0)
    for _ in graph:
        for number, one in enumerate(list(streams.each)):
            if streams.step(streams.each[number], 0) != NOTHING:
                one.over()
    for number in range(len(lists)):
        streams.step(streams.each[number], 0)
    assert streams.done() == ends
