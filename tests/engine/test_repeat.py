"""Jobs that repeat begin again when they are done, and the run ends where it is told to."""

from itertools import pairwise
from pathlib import Path

import pytest

from emu import api

ROOT = Path(__file__).resolve().parents[2]
COLLECTIVE = ROOT / "scenarios/start/tiny_all_reduce.yaml"
FLOWS = ROOT / "scenarios/workloads/flow_table.yaml"
MS = 10**9


def repeated(path: Path, parts: int, max_time: str) -> api.Result:
    return api.run(
        path,
        overrides={"run.repeat": True, "run.max_time": max_time},
        local=True,
        parts=parts,
        diagnose=False,
    )


@pytest.mark.parametrize("path", [COLLECTIVE, FLOWS], ids=["collective", "flows"])
def test_a_repeated_run_has_one_digest_and_ends_finished_at_its_max_time(path: Path) -> None:
    results = [repeated(path, parts, "6ms") for parts in (1, 3)]
    assert {(one.outcome.ending, one.outcome.virtual_ps) for one in results} == {("finished", 6 * MS)}
    assert len({one.summary.digest for one in results}) == 1
    (job,) = results[0].summary.jobs.values()
    once = api.run(path, local=True, diagnose=False)
    (first,) = once.summary.jobs.values()
    assert job.status == first.status == "success"
    assert job.start_ps is not None
    assert first.end_ps is not None
    assert job.start_ps > first.end_ps
    assert job.end_ps is not None
    assert job.end_ps < 6 * MS
    sent = [sum(link.data_bytes for link in one.summary.fabric.links) for one in (results[0], once)]
    assert sent[0] >= 2 * sent[1]


def test_a_round_begins_two_management_delays_after_the_one_before() -> None:
    run = api.stepped(COLLECTIVE, {"run.repeat": True, "run.max_time": "20ms"})
    loaded = api.load(COLLECTIVE).scenario
    job = loaded.jobs[0].name
    assert run.advance(20 * MS + 1) == "finished"
    rows = run.operations(job)
    assert [number for number, *_ in rows] == list(range(len(rows)))
    assert len(rows) > 3
    for (_, _, end_ps, status), (_, start_ps, _, _) in pairwise(rows):
        assert status == 0
        # A report and a BEGIN: each 51,200 ps on a link of 10 Gbit/s, and the delay.
        gap_ps = start_ps - end_ps
        assert gap_ps >= 2 * (loaded.control.management_delay_ps + 51_200)
        assert gap_ps < 3 * loaded.control.management_delay_ps


def test_a_job_that_failed_does_not_begin_again() -> None:
    run = api.run(
        COLLECTIVE,
        overrides={
            "run.repeat": True,
            "run.max_time": "200ms",
            "faults": [{"at": "1us", "kind": "link_down", "target": "nic-0-0:rtsw-0"}],
            "transport.timeout": 1,
            "transport.retry_count": 1,
        },
        local=True,
        diagnose=False,
    )
    (job,) = run.summary.jobs.values()
    assert job.status == "retry_exceeded"
    assert run.outcome.virtual_ps < 100 * MS
