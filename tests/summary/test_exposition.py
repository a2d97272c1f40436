"""Is what is served the Prometheus text format, and is it fast enough?"""

import re
from time import perf_counter

import pytest

from actors.kernel.device import Series, tally_of
from emu.cluster.pages.scrape import classes_in_use
from emu.counts.exposition import Exposition
from emu.preparing import load

LINE = re.compile(r'emu_[a-z0-9_]+(\{[a-z_]+="[^"\\\n]*"(,[a-z_]+="[^"\\\n]*")*\})? -?[0-9]+(\.[0-9]+)?')


def check_format(text: str) -> dict[str, str]:
    """Assert that a page is well-formed: HELP, TYPE, then lines, no series twice. Returns its series."""
    found: dict[str, str] = {}
    family = ""
    families: list[str] = []
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split(" ")[2]
            assert family not in families
            families.append(family)
        elif line.startswith("# TYPE "):
            assert line.split(" ")[2] == family
            assert line.split(" ")[3] in ("counter", "gauge")
        else:
            assert LINE.fullmatch(line), line
            series, value = line.rsplit(" ", 1)
            assert series.split("{", 1)[0] == family
            assert series not in found
            found[series] = value
    return found


def test_each_series_is_one_line_under_its_family() -> None:
    exposition = Exposition(
        [
            (
                "rtsw-0",
                [
                    Series("port_transmit_bytes", 0),
                    Series("pfc_paused_ps", 0, 3),
                    Series("buffer_used_bytes"),
                ],
            ),
            ("nic-0-0", [Series("port_transmit_bytes", 0), Series("nic_out_of_sequence")]),
        ]
    )
    assert check_format(exposition.render(tally_of([[84, 1_167_760, 7], [4194, 2]])).decode()) == {
        'emu_port_transmit_bytes_total{device="rtsw-0",port="0"}': "84",
        'emu_port_transmit_bytes_total{device="nic-0-0",port="0"}': "4194",
        'emu_pfc_paused_seconds_total{device="rtsw-0",port="0",priority="3"}': "0.000001167760",
        'emu_buffer_used_bytes{device="rtsw-0"}': "7",
        'emu_nic_out_of_sequence_total{device="nic-0-0"}': "2",
    }


def test_series_of_an_unused_priority_shows_up_once_it_is_not_zero() -> None:
    series = [Series("pfc_transmit_xoff_frames", 0, priority) for priority in range(8)]
    exposition = Exposition([("rtsw-0", series)], priorities=(3, 6))
    quiet = check_format(exposition.render(tally_of([[0] * 8])).decode())
    assert [name[-3] for name in quiet] == ["3", "6"]
    reported = check_format(exposition.render(tally_of([[0, 0, 0, 0, 0, 9, 0, 0]])).decode())
    assert reported['emu_pfc_transmit_xoff_frames_total{device="rtsw-0",port="0",priority="5"}'] == "9"


def test_classes_that_a_scenario_sends_in_are_shown_from_the_beginning() -> None:
    flow = {"src": 0, "dst": 1, "size": "1KiB", "priority": 1}
    job = {"name": "two", "workload": {"kind": "flows", "flows": [flow]}, "data_priority": 4}
    topology = {"kind": "star", "hosts": 2}
    scenario = {"name": "classes", "topology": topology, "transport": {"ack_priority": 5}, "jobs": [job]}
    assert classes_in_use(load(scenario).scenario) == (1, 3, 4, 5, 6)


def test_a_page_has_the_values_of_its_own_scrape() -> None:
    ports = [Series("port_transmit_bytes", 0), Series("port_transmit_bytes", 1), Series("queue_bytes", 0, 5)]
    exposition = Exposition([("rtsw-0", ports), ("rtsw-1", ports)], priorities=(3,))
    name = "emu_port_transmit_bytes_total"
    labels = [f'{name}{{device="rtsw-{at}",port="{port}"}}' for at in (0, 1) for port in (0, 1)]
    depth = 'emu_queue_bytes{device="rtsw-1",port="0",priority="5"}'
    for sent, held in (([1, 2, 3, 4], 0), ([1, 2, 3, 4], 7), ([1, 2, 5, 4], 7), ([1, 2, 3, 4], 0)):
        page = check_format(exposition.render(tally_of([[*sent[:2], 0], [*sent[2:], held]])).decode())
        expected = dict(zip(labels, map(str, sent), strict=True))
        assert page == expected | ({depth: str(held)} if held else {})


def test_family_without_a_line_is_left_out() -> None:
    exposition = Exposition([("rtsw-0", [Series("pfc_transmit_xoff_frames", 0, 1)])], priorities=(3,))
    assert exposition.render(tally_of([[0]])) == b""


def test_series_that_is_not_declared_is_refused() -> None:
    with pytest.raises(AssertionError, match="lacks"):
        Exposition([("rtsw-0", [Series("flow_bytes")])])


@pytest.mark.soak
def test_ten_thousand_series_are_rendered_within_a_scrape() -> None:
    devices = [
        (f"rtsw-{at}", [Series("port_transmit_bytes", port) for port in range(100)]) for at in range(100)
    ]
    exposition = Exposition(devices)
    took_s = []
    text = b""
    for again in range(5):
        tally = tally_of([at * port + again for port in range(100)] for at in range(100))
        begun_s = perf_counter()
        text = exposition.render(tally)
        took_s.append(perf_counter() - begun_s)
    assert text.count(b"\n") == 10_002
    assert min(took_s) < 0.02
