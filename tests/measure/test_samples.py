"""Do samples read back as they were written, and does the file grow only with what happens?"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.kernel.device import Series
from emu.errors import UsageError
from emu.measure.collected import Sample
from emu.measure.run_directory.samples import (
    Mixes,
    MixWriter,
    SampleReader,
    SampleWriter,
    digest_header,
    read_digests,
    series_line,
)

SERIES = {
    4: [Series("port_transmit_bytes", 0), Series("port_transmit_bytes", 1)],
    9: [Series("nic_transmit_acks")],
}

counters = st.fixed_dictionaries(
    {
        4: st.lists(st.integers(0, 3), min_size=2, max_size=2),
        9: st.lists(st.integers(0, 3), min_size=1, max_size=1),
    }
)


@given(st.lists(counters, max_size=6))
def test_samples_read_back_as_written(
    tmp_path_factory: pytest.TempPathFactory, values: list[dict[int, list[int]]]
) -> None:
    path = tmp_path_factory.mktemp("samples") / "samples.jsonl"
    writer = SampleWriter()
    samples = [Sample(at * 100, one) for at, one in enumerate(values)]
    path.write_text("".join(writer.text(sample) for sample in samples) + series_line(SERIES))
    reader = SampleReader(path)
    assert list(reader) == samples
    assert [(one.metric, one.port) for one in reader.series[4]] == [
        ("port_transmit_bytes", 0),
        ("port_transmit_bytes", 1),
    ]


def test_sample_in_which_nothing_changed_is_a_line_without_values() -> None:
    writer = SampleWriter()
    writer.text(Sample(100, {4: [1, 2], 9: [3]}))
    assert writer.text(Sample(200, {4: [1, 2], 9: [3]})) == '{"virtual_ps":200,"changed":{}}\n'
    assert writer.text(Sample(300, {4: [1, 5], 9: [3]})) == '{"virtual_ps":300,"changed":{"4":[1,5]}}\n'


def test_file_that_broke_off_says_so(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text(SampleWriter().text(Sample(100, {4: [1, 2]})))
    with pytest.raises(UsageError, match="broke off"):
        SampleReader(path)


def test_digests_read_back(tmp_path: Path) -> None:
    path = tmp_path / "digests.jsonl"
    writer = MixWriter()
    lines = [
        writer.text(at_ps, {4: mixes, 9: (2**62 - 1,)}) for at_ps, mixes in ((100, (7,)), (200, (7, 0, 8)))
    ]
    path.write_text(digest_header([(4, "rtsw-0"), (9, "nic-0-0")]) + "".join(lines))
    kind, devices, points = read_digests(path)
    assert kind == 2
    assert devices == [(4, "rtsw-0"), (9, "nic-0-0")]
    assert points == [Mixes(100, {(4, 0): 7, (9, 0): 2**62 - 1}), Mixes(200, {(4, 2): 8})]


def test_mixes_go_on_behind_a_line_that_was_written_before() -> None:
    writer = MixWriter()
    writer.resume({"4": [0, 7, 2, 8]})
    assert writer.text(300, {4: (7, 0, 9)}) == '{"virtual_ps":300,"mixed":{"4":[2,9]}}\n'


@pytest.mark.parametrize("text", ["", "{}\n", "nonsense\n", '{"digest_kind":2,"devices":[]}\n{"x":1}\n'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "digests.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match="not the digests of a run"):
        read_digests(path)
