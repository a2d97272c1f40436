"""Is whatever comes from outside refused in one line before it has taken much memory, whatever its form?

Each command runs in a process of its own that may have 1.5 GB of addresses, of which Python and numpy take a
third: what was read whole before, or grew as it was read, ends here with a MemoryError and status 4.
"""

from __future__ import annotations

import gzip
import os
import pickle
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from emu.base.outside import MOST_PARTS, file_bytes, json_of, parts_in, unpacking
from emu.base.spelling import did_you_mean, shown

ROOT = Path(__file__).parents[2]
FIT = ROOT / "scenarios/fit"
ADDRESSES = 1_500_000_000


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))


def packed(place: Path, parts: list[tuple[bytes, int]]) -> None:
    """Write a gzip file of these texts, each so many times."""
    with gzip.open(place, "wb", compresslevel=1) as file:
        for part, times in parts:
            for _ in range(times):
                file.write(part)


def zeros(place: Path) -> None:
    place.symlink_to("/dev/zero")


def deep(place: Path) -> None:
    place.write_text("[" * 100_000)


def lists(place: Path) -> None:
    """Of three bytes each, of which Python makes 60."""
    place.write_text('{"answers": [' + "[]," * 5_000_000 + "[]]}")


def doubling(place: Path) -> None:
    lines = ["A=" + "x" * 32, *["A=$A$A"] * 40, "torchrun pretrain_gpt.py --num-layers 32 $A"]
    place.write_text("#!/bin/bash\n" + "\n".join(lines) + "\n")


def spaces(place: Path) -> None:
    packed(place, [(b'{"traceEvents": ["kernel"', 1), (b" " * 1_000_000, 280), (b"]}", 1)])


def short_lists(place: Path) -> None:
    packed(place, [(b'{"traceEvents": ["kernel", ', 1), (b"[]," * 1_000_000, 30), (b"[]]}", 1)])


def opcodes(place: Path) -> None:
    place.write_bytes(b"\x80\x04](" + b"N" * 20_000_000 + b"e.")


@pytest.mark.parametrize(
    ("make", "words", "said"),
    [
        (zeros, "validate quickstart --set @{}", "--set @{}: larger than 64 MiB; accepted: a file with key"),
        (zeros, "fit {} fit_gke_b200", "{}: larger than 16 MiB; accepted: one log"),
        (zeros, f"fit --counters {{}} {FIT / 'gke_b200.log'} fit_gke_b200", "{}: larger than 16 MiB"),
        (zeros, "accept sonic --config-db {}", "{}: larger than 16 MiB; accepted: a config_db.json"),
        (zeros, "import {}", "{}: the file is too large"),
        (deep, "accept sonic --config-db {}", "{}: nested more than 32 deep; accepted: less"),
        (deep, "accept --compare {} {}", "{}: no answers of `emu accept`; accepted: what its --out wrote"),
        (lists, "accept --compare {} {}", "{}: no answers of `emu accept`; accepted: what its --out wrote"),
        (doubling, "import {}", "{}:1: with its variables put in, the script is longer than 1048576 char"),
        (spaces, "import {}", "{}: is too large; accepted: at most 268435456 bytes, unpacked"),
        (short_lists, "import {}", " values in 90000031 bytes; accepted: what torch"),
        (opcodes, "import {}", "the pickle goes on; accepted: at most 2000000 opcodes"),
    ],
)
def test_what_is_too_large_is_refused_in_one_line(
    tmp_path: Path, make: Callable[[Path], None], words: str, said: str
) -> None:
    names: dict[Callable[[Path], None], str] = {
        spaces: "a.json.gz",
        short_lists: "a.json.gz",
        opcodes: "trace_rank_0",
        doubling: "a.sh",
    }
    place = tmp_path / names.get(make, "a.json")
    make(place)
    done = subprocess.run(
        [sys.executable, "-m", "emu.cli.main", *words.format(*[place] * 2).split()],
        cwd=tmp_path,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=_limited,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr[-2000:]
    (line,) = done.stderr.splitlines()
    assert said.format(place) in line
    assert len(line) < 1000


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a":' * 100_000, "[" + "1," * MOST_PARTS + "1]", "9" * 5000, "[1", "\ud800", "NaN,"],
    ids=range(7),
)
def test_json_that_cannot_be_read_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        json_of(text)


def test_json_is_read_up_to_its_most_parts() -> None:
    text = "[" + "1," * (MOST_PARTS - 1) + "1]"
    assert parts_in(text.encode()) == MOST_PARTS
    assert json_of(text) == [1] * MOST_PARTS


def test_a_file_is_read_up_to_its_limit_and_refused_a_byte_beyond(tmp_path: Path) -> None:
    place = tmp_path / "a"
    place.write_bytes(b"x" * (1 << 20))
    assert len(file_bytes(place, "less", 1 << 20)) == 1 << 20
    place.write_bytes(b"x" * ((1 << 20) + 1))
    with pytest.raises(Exception, match=f"{place}: larger than 1 MiB; accepted: less"):
        file_bytes(place, "less", 1 << 20)


def test_a_packed_file_is_unpacked_whole_and_a_cut_one_is_refused() -> None:
    data = bytes(range(256)) * 20_000
    whole = gzip.compress(data)
    assert b"".join(unpacking(whole)) == b"".join(unpacking(data)) == data
    assert max(map(len, unpacking(whole))) <= 1 << 20
    for cut in (whole[:-9], whole[:1000]):
        with pytest.raises(ValueError, match="is cut off"):
            list(unpacking(cut))
    with pytest.raises(ValueError, match="cannot be unpacked"):
        list(unpacking(whole[:3] + b"\xff" + whole[4:]))


def test_a_large_value_is_quoted_by_its_beginning() -> None:
    for value in ("x" * 10**6, 10**5000, [[0] * 10**6] * 3, {"a" * 10**6: 1}, b"x" * 10**6):
        assert len(shown(value)) <= 64


@pytest.mark.parametrize("value", ["a'b", 12, [1, "a", [2]], (1, 2), {"a": [1], "b": None}, b"x", 1.5, True])
def test_a_small_value_is_quoted_as_python_writes_it(value: object) -> None:
    assert shown(value) == repr(list(value) if isinstance(value, tuple) else value)


def test_a_long_key_has_no_nearest_word() -> None:
    assert did_you_mean("topolgy", ["topology"]) == "; did you mean 'topology'?"
    assert did_you_mean("x" * 100_000, ["topology"] * 1000) == ""


def test_a_dump_of_a_rank_that_is_not_in_the_group_it_calls_is_refused(tmp_path: Path) -> None:
    call = {
        "profiling_name": "nccl:all_reduce",
        "process_group": ("0", "default_pg"),
        "input_sizes": [[1000]],
        "input_dtypes": ["Float"],
        "output_sizes": [[1000]],
        "output_dtypes": ["Float"],
        "time_created_ns": 1,
        "collective_seq_id": 1,
    }
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    dump = {"version": "2.4", "entries": [call], "pg_config": groups}
    for rank, said in ((7, "rank 7 calls all_reduce in group '0' of ranks [0, 1]; accepted: "), (1, "")):
        place = tmp_path / f"nccl_trace_rank_{rank}"
        place.write_bytes(pickle.dumps(dump))
        done = subprocess.run(
            [sys.executable, "-m", "emu.cli.main", "import", str(place)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == (2 if said else 0)
        assert done.stderr.count("\n") == 1 or not said
        assert said in done.stderr
