"""Does the page on scale work out from its own prices what it says it does?"""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([\d,]+), \d+ [MK]iB \| (.*) \|$", PAGE, re.MULTILINE)


def number(text: str) -> float:
    return float(text.replace(",", ""))


def prices() -> tuple[dict[int, float], dict[int, float], float]:
    """In us: a hop by hosts on a worker, a window by workers, a packet that crosses."""
    (hops,) = re.findall(r"^\| a packet-hop, \*h\* \| (.*?) \|", PAGE, re.MULTILINE)
    by_hosts = {
        int(number(hosts)): float(us) for us, hosts in re.findall(r"([\d.]+)(?: us)? with ([\d,]+)", hops)
    }
    windows = re.search(r"\*w\* = (\d+) us for two workers and (\d+) us for four", PAGE)
    crossing = re.search(r"^\| a packet that crosses, \*c\* \| ([\d.]+) us", PAGE, re.MULTILINE)
    assert windows is not None
    assert crossing is not None
    return by_hosts, {2: float(windows[1]), 4: float(windows[2])}, float(crossing[1])


def worked_out(workers: int, hosts: int, hops: float, windows: float, crossing: float) -> float:
    """T(N) of the page in seconds, for N workers on two cores that balance."""
    h_of, w_of, c = prices()
    turns = workers // 2
    h = h_of[max(hosts // workers, min(h_of))]
    return (turns * hops / workers * h + windows * w_of[workers] + turns * crossing / workers * c) / 1e6


@pytest.mark.parametrize(("hosts", "row"), ROWS, ids=[hosts for hosts, _ in ROWS])
def test_row_is_worked_out_from_the_prices(hosts: str, row: str) -> None:
    hops, windows, crossing, _, of_two, measured_two, of_four, measured_four = row.split(" | ")
    cross_two, cross_four = map(number, crossing.split(" / "))
    two = worked_out(2, int(number(hosts)), number(hops), number(windows), cross_two)
    four = worked_out(4, int(number(hosts)), number(hops), number(windows), cross_four)
    assert number(of_two) == pytest.approx(two, abs=0.0015)
    assert number(of_four) == pytest.approx(four, abs=0.0015)
    assert two == pytest.approx(number(measured_two), rel=0.15), "as the page says below its table"
    assert four == pytest.approx(number(measured_four), rel=0.26)


def test_there_are_rows_from_64_hosts_to_1024() -> None:
    assert [int(number(hosts)) for hosts, _ in ROWS] == [64, 128, 256, 512, 1024]
