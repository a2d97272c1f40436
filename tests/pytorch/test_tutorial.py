"""Do the commands of docs/bucket_size.md run as the page shows? Those that emulate take minutes: `soak`."""

import re
from pathlib import Path

import pytest

from tests.tutorials.pages import commands, executed

pytest.importorskip(
    "torch", reason="torch is not installed: `make setup-torch` installs it", exc_type=ImportError
)
PAGE = (Path(__file__).parents[2] / "docs" / "bucket_size.md").read_text("utf-8")


def test_the_commands_that_record_print_what_the_page_has() -> None:
    recording = PAGE[: PAGE.index("## The fabric")]
    assert executed(recording, False) == (recording, [])


def test_the_page_concludes_what_its_tables_have() -> None:
    tables = [one.output for one in commands(PAGE) if "--what-if" in one.command]
    fabrics, buckets = ([float(ms) for ms in re.findall(r" (\d\.\d{3}) ", table)] for table in tables)
    assert fabrics[0] < fabrics[1] < 1.01 * fabrics[0] < 1.1 * fabrics[0] < fabrics[2]
    assert fabrics[1] == buckets[0]
    assert min(buckets) == buckets[2] > 0.97 * buckets[0]
    assert max(buckets) == buckets[4]


@pytest.mark.soak
def test_all_commands_print_what_the_page_has() -> None:
    assert executed(PAGE, False) == (PAGE, [])
