"""Does every queue pair go on or give up, whichever links of its NIC are down, and whenever?

Each transport, on NICs with one to three ports, a switch for each. Links go down and come back at drawn
times, at both ends of a connection, before, between and after its messages are posted. Every message ends: it
is delivered if links come back before the retries are used up, and fails after them if links stay away.
Links are 400G and 500 ns long.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.nic.queue_pair.queue_pair import ERROR, READY
from actors.wire.message import STATUS_FLUSHED, STATUS_RETRY_EXCEEDED, STATUS_SUCCESS
from tests.fabric.rig import Fabric
from tests.fabric.sections import graph, scenario

US = 1_000_000
TIMEOUT_US = 1048.576
"""4.096 us times 2^8 (InfiniBand specification, volume 1, section 9.7.6.1.3)."""
RETRIES = 2
GIVES_UP_US = TIMEOUT_US * (RETRIES + 1)
TCP_TIMEOUT = "500us"
TCP_GIVES_UP_US = 500 * (1 + 2 + 4)
"""RTO doubles (RFC 6298, section 5.5)."""
_TCP = {
    "recovery": {
        "kind": "tcp",
        "retries": RETRIES,
        "first_timeout": TCP_TIMEOUT,
        "least_timeout": TCP_TIMEOUT,
    },
    "congestion_control": {"kind": "cubic"},
}
TRANSPORTS: dict[str, dict[str, Any]] = {
    "go_back_n": {"recovery": {"kind": "go_back_n"}},
    "go_back_0": {"recovery": {"kind": "go_back_0"}},
    "selective_repeat": {"recovery": {"kind": "selective_repeat"}},
    "adaptive": {"adaptive_retransmission": {"enabled": True}},
    "dcqcn": {"congestion_control": {"kind": "dcqcn"}},
    "swift": {"congestion_control": {"kind": "swift"}},
    "tcp": _TCP,
    "multipath": {"kind": "multipath"},
    "one path": {"kind": "multipath", "paths": {"paths": 1}},
}
LOSSY = {"pfc": {"enabled": False}}


def planes(transport: str, ports: int, pairs: int = 1) -> Fabric:
    """Two NICs with a port on each of so many switches, and connections from NIC 0 to NIC 1."""
    links = [(f"nic-{nic}", f"plane-{port}") for nic in range(2) for port in range(ports)]
    section = {"timeout": 8, "retry_count": RETRIES, **TRANSPORTS[transport]}
    built = scenario(graph(links), transport=section, switch=LOSSY, routing={"convergence": "5us"})
    return Fabric(built, [(0, 1)] * pairs)


def cut(fabric: Fabric, nic: int, port: int, at_us: int, for_us: int = 0) -> None:
    """Take the link of a NIC's port away, for good or for a time."""
    link = f"nic-{nic}:plane-{port}"
    fabric.set_link(link, at_us * US, up=False)
    if for_us:
        fabric.set_link(link, (at_us + for_us) * US, up=True)


def statuses(fabric: Fabric, pair: int = 0) -> list[int]:
    """How each message ended, in order."""
    return [done.status for done in fabric.completions(pair)]


@given(
    transport=st.sampled_from(sorted(TRANSPORTS)),
    ports=st.integers(1, 3),
    posts=st.lists(st.tuples(st.integers(0, 120), st.sampled_from((1, 4096, 60_000, 400_000))), max_size=5),
    flaps=st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 60), st.integers(1, 60)), max_size=6
    ),
    both=st.booleans(),
)
def test_every_message_is_delivered_once_links_are_back(
    transport: str,
    ports: int,
    posts: list[tuple[int, int]],
    flaps: list[tuple[int, int, int, int]],
    both: bool,
) -> None:
    """No outage is longer than 120 us, which is less than one timeout."""
    fabric = planes(transport, ports)
    away: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for nic, port, at_us, for_us in flaps:
        for cut_port in range(ports) if both else (port % ports,):
            away.setdefault((nic, cut_port), []).append((at_us, at_us + for_us))
    for (nic, port), times in away.items():
        last_us = -1
        for begin_us, end_us in sorted(times):
            if begin_us > last_us:  # a link is cut once at a time
                cut(fabric, nic, port, begin_us, end_us - begin_us)
                last_us = end_us
    for at_us, size in sorted(posts):
        fabric.post(at_us * US, 0, size)
    fabric.run()
    assert statuses(fabric) == [STATUS_SUCCESS] * len(posts)
    assert [one.size_bytes for one in fabric.deliveries(0)] == [size for _, size in sorted(posts)]
    assert fabric.broken(at_rest=True) == []


@given(
    transport=st.sampled_from(sorted(TRANSPORTS)),
    ports=st.integers(1, 3),
    nic=st.integers(0, 1),
    before=st.booleans(),
    posts_us=st.lists(st.integers(0, 120), min_size=1, max_size=4),
    down_us=st.lists(st.integers(0, 60), min_size=3, max_size=3),
)
def test_every_message_ends_if_links_stay_away(
    transport: str, ports: int, nic: int, before: bool, posts_us: list[int], down_us: list[int]
) -> None:
    """All links of one NIC go, one after the other, and none comes back; maybe it has sent before."""
    fabric = planes(transport, ports)
    sent = [0] if before else []
    for at_us in sent + [50 + at_us for at_us in sorted(posts_us)]:
        fabric.post(at_us * US, 0, 20_000)
    for port in range(ports):
        cut(fabric, nic, port, 40 + down_us[port])
    fabric.run()
    ends = statuses(fabric)
    assert len(ends) == len(sent) + len(posts_us)
    delivered = ends.count(STATUS_SUCCESS)
    left = len(ends) - delivered
    assert ends == [STATUS_SUCCESS] * delivered + ([STATUS_RETRY_EXCEEDED] + [STATUS_FLUSHED] * left)[:left]
    assert fabric.pair(fabric.connections[0]).state == (ERROR if left else READY)


@pytest.mark.parametrize("ports", [1, 2])
@pytest.mark.parametrize("sent_before", [False, True])
@pytest.mark.parametrize("transport", sorted(TRANSPORTS))
def test_who_cannot_send_gives_up_after_its_retries(transport: str, sent_before: bool, ports: int) -> None:
    """Posted 200 us after the links went, at a NIC whose ports are all down: three timeouts later its work
    request ends. A path, which is looked at every 8 us, may be so much late."""
    fabric = planes(transport, ports)
    if sent_before:
        fabric.post(0, 0, 20_000)
    for port in range(ports):
        cut(fabric, 0, port, 100)
    fabric.post(300 * US, 0, 20_000)
    fabric.run()
    last = fabric.completions(0)[-1]
    assert statuses(fabric) == [STATUS_SUCCESS] * sent_before + [STATUS_RETRY_EXCEEDED]
    after_us = last.time_ps / US - 300
    if transport == "tcp":
        assert after_us == pytest.approx(TCP_GIVES_UP_US, abs=1)
    elif transport == "adaptive":  # shorter ones come first, each twice the one before
        assert GIVES_UP_US < after_us < GIVES_UP_US + 2 * TIMEOUT_US
    else:
        assert GIVES_UP_US <= after_us < GIVES_UP_US + (9 if "path" in transport else 1)


@pytest.mark.parametrize("transport", sorted(TRANSPORTS))
def test_retries_do_not_run_while_a_port_is_up(transport: str) -> None:
    """The first of two ports is down for good: nothing fails, and no timer expires at the sender."""
    fabric = planes(transport, 2, pairs=2)
    for nic in range(2):
        cut(fabric, nic, 0, 0)
    for pair in range(2):
        fabric.post(20 * US, pair, 400_000)
    fabric.run()
    assert statuses(fabric, 0) == statuses(fabric, 1) == [STATUS_SUCCESS]
    assert fabric.total("nic_local_ack_timeout_err") == 0
