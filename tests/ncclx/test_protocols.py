"""Does each protocol cost what its lines and flags do? Closed forms on one switch, as in `test_closed_forms`.

LL sends twice the data, and asks for no copy; LL128 sends 16/15 of it, and its copies have no latency.
Neither has slices: a step of its buffer is the most that goes at once.
"""

import math
from typing import Any, Final

import pytest

from actors.ncclx.protocols import PROTOCOLS, on_wire
from tests.ncclx.test_closed_forms import CTS, H, first, line, memory, part, sent, step, took_ps, wire

RING: Final = {"chunk_steps": 2, "slice_steps": 1}
"""Chunks of two slices of 128 KiB."""


def ll_lines(m: float) -> int:
    return 16 * math.ceil(m / 8)


def ll128_lines(m: float) -> int:
    return 128 * math.ceil(m / 120)


def flagged(m: float) -> float:
    """A copy with LL128."""
    return 2 * H + memory(m)


def ring_ll(n: int, s: int) -> float:
    """Nobody copies: slices go on as they come."""
    b = part(s, n)
    return CTS + 2 * (n - 1) * sent(ll_lines(b))


def ring_ll128(n: int, s: int) -> float:
    b = part(s, n)
    return max(flagged(b), CTS) + 2 * (n - 1) * (sent(ll128_lines(b)) + flagged(b))


def ring_even(n: int, s: int) -> float:
    """A chunk of two halves: the second is on the line while the first is reduced."""
    half = math.ceil(part(s, n) / 2 / 64) * 64
    round_ = max(2 * line(wire(half)), step(half))
    return first(half) + (2 * n - 3) * round_ + line(wire(half)) + step(half)


FORMS: Final[dict[str, Any]] = {"ll": ring_ll, "ll128": ring_ll128}


@pytest.mark.parametrize("protocol", FORMS)
def test_a_ring_takes_the_time_of_its_protocol_s_lines(protocol: str) -> None:
    wrong = []
    for ranks in (4, 8):
        for size in (64, 4 << 10, 32 << 10, 64 << 10):
            took = took_ps("all_reduce", "ring", ranks, size, ncclx={"protocol": protocol})
            form = FORMS[protocol](ranks, size)
            if abs(took - form) > 0.01 * form:
                wrong.append((ranks, size, took, round(form), round(took / form, 4)))
    assert wrong == []


@pytest.mark.parametrize("ranks", [4, 8])
def test_even_slices_of_a_small_chunk_overlap_the_copy_with_the_line(ranks: int) -> None:
    """Filled slices make one of a chunk of 128 KiB; even ones two of 64 KiB."""
    size = ranks * (128 << 10)
    took = took_ps("all_reduce", "ring", ranks, size, ncclx=RING | {"slices": "even"})
    assert took == pytest.approx(ring_even(ranks, size), rel=0.01)
    whole = took_ps("all_reduce", "ring", ranks, size, ncclx=RING)
    assert whole == pytest.approx(first(128 << 10) + 2 * (ranks - 1) * step(128 << 10), rel=0.01)


def test_an_even_slice_is_a_32nd_of_the_largest_at_least() -> None:
    """128 KiB / 32 = 4 KiB: a chunk of 4 KiB is one slice either way."""
    sizes = [
        took_ps("all_reduce", "ring", 4, 16 << 10, ncclx=RING | {"slices": one}) for one in ("filled", "even")
    ]
    assert sizes[0] == sizes[1]


def test_lines_are_whole() -> None:
    assert [int(on_wire(PROTOCOLS["ll"], m)) for m in (0, 1, 8, 9)] == [0, 16, 16, 32]
    assert [int(on_wire(PROTOCOLS["ll128"], m)) for m in (0, 1, 120, 121)] == [0, 128, 128, 256]
    assert [int(on_wire(PROTOCOLS["simple"], m)) for m in (0, 1, 121)] == [0, 1, 121]
