"""Are samples as rows what the run counted, and frames what pandas takes?"""

import csv
import io
from pathlib import Path

import pytest

from emu import api
from emu.base.errors import UsageError
from emu.cli.main import main

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> api.Result:
    place = tmp_path_factory.mktemp("tidy") / "run"
    return api.run(ROOT / "scenarios/start/tiny_flap.yaml", local=True, out=place)


def rows_of(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, str]]:
    assert main(["export", "csv", *words]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def test_the_last_row_of_each_counter_is_its_value_in_the_table_of_ports(
    capsys: pytest.CaptureFixture[str], result: api.Result
) -> None:
    rows = rows_of(capsys, str(result.directory), "--series", "port_transmit_bytes")
    assert result.directory is not None
    with (result.directory / "ports.csv").open(encoding="utf-8", newline="") as file:
        ports = {(row["device"], row["port"]): row["port_transmit_bytes"] for row in csv.DictReader(file)}
    last = {(row["device"], row["port"]): row["value"] for row in rows}
    assert last
    assert all(ports[place] == value for place, value in last.items())
    assert {place for place, value in ports.items() if value not in ("0", "")} == set(last)


def test_patterns_choose_devices_and_every_thins_the_times(
    capsys: pytest.CaptureFixture[str], result: api.Result
) -> None:
    run = str(result.directory)
    every = rows_of(capsys, run, "--series", "port_*_bytes", "--device", "rtsw-*")
    assert {row["device"].partition("-")[0] for row in every} == {"rtsw"}
    assert {row["series"] for row in every} == {"port_transmit_bytes"}  # What a peer receives is not kept.
    fewer = rows_of(capsys, run, "--series", "port_*_bytes", "--device", "rtsw-*", "--every", "200us")
    times_ps = [int(row["virtual_ps"]) for row in fewer]
    assert len(set(times_ps)) == len({time_ps // 200_000_000 for time_ps in times_ps})
    assert set(times_ps) < {int(row["virtual_ps"]) for row in every}


def test_a_pattern_that_fits_nothing_is_reported_the_nearest_name(
    capsys: pytest.CaptureFixture[str], result: api.Result
) -> None:
    assert main(["export", "csv", str(result.directory), "--series", "queu_bytes"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "--series queu_bytes: fits nothing that was recorded; did you mean 'queue_bytes'?" in err
    assert main(["export", "csv", str(result.directory), "--series", "port_receive_bytes"]) == 2
    assert "others are kept with run.sample_series: all" in capsys.readouterr().err


def test_frames_have_the_columns_of_the_files(result: api.Result) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed (an optional library)")
    flows = [flow for job in result.summary.jobs.values() for flow in job.flows]
    assert list(result.frame("flows")["completed_ps"]) == [flow.completed_ps for flow in flows]
    assert list(result.frame("collectives").columns)[:2] == ["job", "op"]
    samples = result.frame("samples")
    assert list(samples.columns)[:2] == ["virtual_ps", "device"]
    sent = samples[
        (samples.series == "port_transmit_bytes") & (samples.virtual_ps == samples.virtual_ps.max())
    ]
    assert sent.value.sum() == result.frame("ports").port_transmit_bytes.sum()


def test_parquet_has_the_rows_of_csv(
    capsys: pytest.CaptureFixture[str], result: api.Result, tmp_path: Path
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (an optional library)")
    words = ["export", "parquet", str(result.directory), "--device", "rtsw-*"]
    assert main([*words, "--out", str(tmp_path / "rows.parquet")]) == 0
    capsys.readouterr()
    table = parquet.read_table(tmp_path / "rows.parquet").to_pylist()
    shown = [{name: "" if cell is None else str(cell) for name, cell in row.items()} for row in table]
    assert shown == rows_of(capsys, str(result.directory), "--device", "rtsw-*")


def test_a_frame_of_samples_needs_a_directory() -> None:
    result = api.run(ROOT / "scenarios/start/tiny_flap.yaml", local=True)
    with pytest.raises(UsageError, match="accepted: a run with out=DIR"):
        result.frame("samples")
