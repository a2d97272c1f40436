"""Are numbers written as Python and the declaration of the series have them?"""

from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis.strategies import integers
from librt.strings import BytesWriter

from actors.kernel.device import tally_of
from emu.counts.lines import Lines, write_number, write_seconds

LARGEST = 2**62


@given(integers(-LARGEST, LARGEST))
@example(999)
@example(1000)
@example(1_000_001)
@example(-1000)
def test_a_number_is_written_in_decimal(number: int) -> None:
    out = BytesWriter()
    write_number(out, number)
    assert out.getvalue().decode() == str(number)


@given(integers(1, LARGEST))
@example(10**12 - 1)
@example(10**12)
@example(7)
def test_time_is_written_in_seconds_to_the_ps(time_ps: int) -> None:
    out = BytesWriter()
    write_seconds(out, time_ps)
    text = out.getvalue().decode()
    assert Decimal(text).scaleb(12) == time_ps
    assert len(text.partition(".")[2]) == 12


def test_no_time_is_a_zero() -> None:
    out = BytesWriter()
    write_seconds(out, 0)
    assert out.getvalue() == b"0"


@pytest.mark.parametrize(("seconds", "written"), [(False, b"\na 5\nb 0\na 3"), (True, None)])
def test_lines_have_the_numbers_at_their_places(seconds: bool, written: bytes | None) -> None:
    tally = tally_of([[0, 5], (), (3,)])
    assert tally.listed() == [0, 5, 3]
    lines = Lines([b"\na ", b"\nb ", b"\na "], [1, 0, 2], seconds)
    out = BytesWriter()
    lines.write(out, tally)
    assert out.getvalue() == (written or b"\na 0.000000000005\nb 0\na 0.000000000003")
    assert lines.not_zero(tally) == [1, 2]
