"""Do samples read back as they were written, and does the file grow only with what happens?"""

import base64
import json
import struct
import zlib
from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.kernel.device import Series
from emu.base.errors import UsageError
from emu.counts.collected import Changed, Sample, layouts_of
from emu.run_directory.samples import (
    Counted,
    Mixes,
    SampleReader,
    SampleWriter,
    digest_header,
    mixes_line,
    read_digests,
)

SENT = "port_transmit_bytes"
COUNTED = Counted.of(
    layouts_of(
        {
            4: [Series(SENT, 0), Series("queue_bytes", 0, 3), Series(SENT, 1)],
            9: [Series("nic_np_cnp_sent"), Series("nic_transmit_acks")],
        }
    ),
    "plotted",
)

counters = st.fixed_dictionaries(
    {
        4: st.lists(st.integers(0, 2**62), min_size=3, max_size=3),
        9: st.lists(st.integers(0, 3), min_size=2, max_size=2),
    }
)


def steps(values: list[dict[int, list[int]]]) -> list[list[tuple[int, list[int], list[int]]]]:
    """From each sample to the next, of each device what it was and what it is; it begins with zeros."""
    before = [{4: [0] * 3, 9: [0] * 2}, *values]
    return [
        [(number, last[number], now[number]) for number in now]
        for last, now in zip(before, values, strict=False)
    ]


@given(st.lists(counters, max_size=6), st.integers(0, 6))
def test_kept_counters_read_back_as_written_also_where_a_run_went_on(
    tmp_path_factory: pytest.TempPathFactory, values: list[dict[int, list[int]]], broken: int
) -> None:
    path = tmp_path_factory.mktemp("samples") / "samples.jsonl"
    samples = [Sample(at * 100, one) for at, one in enumerate(values)]
    news = [
        Changed(
            at * 100,
            {
                device: [
                    number
                    for place, (was, is_now) in enumerate(zip(last, now, strict=True))
                    if was != is_now
                    for number in (place, is_now)
                ]
                for device, last, now in step
            },
        )
        for at, step in enumerate(steps(values))
    ]
    writer = SampleWriter(COUNTED)
    path.write_text(COUNTED.text() + "".join(writer.text(one) for one in news[:broken]))
    again = SampleWriter(COUNTED)
    again.resume(SampleReader(path).changes())
    with path.open("a") as file:
        file.writelines(again.text(one) for one in news[broken:])
    reader = SampleReader(path)
    left_out = [Sample(at_ps, {4: one[4], 9: [one[9][0], 0]}) for at_ps, one in samples]
    assert list(reader) == left_out  # Acknowledgements are not plotted.
    assert [(one.metric, one.port, one.priority) for one in reader.series[4]] == [
        ("port_transmit_bytes", 0, -1),
        ("queue_bytes", 0, 3),
        ("port_transmit_bytes", 1, -1),
    ]


def test_a_file_that_grows_is_read_as_far_as_its_lines_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    writer = SampleWriter(COUNTED)
    lines = [writer.text(Changed(at, {4: [0, at, 2, 7]})) for at in (100, 200)]
    path.write_text(COUNTED.text() + lines[0] + lines[1][:-5])
    reader = SampleReader(path)
    assert reader.times_ps() == [100]
    path.write_text(COUNTED.text() + lines[0] + lines[1])
    assert [(at_ps, {**grown}) for at_ps, grown in reader.grown(["port_transmit_bytes"])] == [
        (100, {"port_transmit_bytes": ([0, 1], array("q", [100, 7]))}),
        (200, {"port_transmit_bytes": ([0], array("q", [100]))}),
    ]


def test_the_format_is_as_it_is_documented(tmp_path: Path) -> None:
    text = SampleWriter(COUNTED).text(Changed(100, {4: [0, 1, 2, 5], 9: [1, 9]}))
    record = json.loads(text)
    assert record["virtual_ps"] == 100
    assert list(record["grown"]) == ["port_transmit_bytes"]
    content = zlib.decompress(base64.b64decode(record["grown"]["port_transmit_bytes"]))
    assert struct.unpack("<2I2q", content) == (0, 1, 1, 5)
    assert list(json.loads(COUNTED.text()))[:3] == ["samples", "layouts", "devices"]


def test_another_version_and_a_file_without_a_header_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text(COUNTED.text().replace('"samples":2', '"samples":3', 1))
    with pytest.raises(
        UsageError, match=r"samples.jsonl: written by another release.*accepted: a run of this one"
    ):
        SampleReader(path)
    path.write_text('{"samples":')
    with pytest.raises(UsageError, match="does not say what was counted"):
        SampleReader(path)


def test_digests_read_back(tmp_path: Path) -> None:
    path = tmp_path / "digests.jsonl"
    lines = [mixes_line(100, {4: [0, 7], 9: [0, 2**62 - 1]}), mixes_line(200, {4: [2, 8]})]
    path.write_text(digest_header([(4, "rtsw-0"), (9, "nic-0-0")]) + "".join(lines))
    devices, points = read_digests(path)
    assert devices == [(4, "rtsw-0"), (9, "nic-0-0")]
    assert points == [Mixes(100, {(4, 0): 7, (9, 0): 2**62 - 1}), Mixes(200, {(4, 2): 8})]


@pytest.mark.parametrize(
    "text", ["", '{"digest_kind":2}\n', "nonsense\n", '{"digest_kind":2,"devices":[]}\n{"x":1}\n']
)
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "digests.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match="not the digests of a run"):
        read_digests(path)
