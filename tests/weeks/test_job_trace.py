"""Does `emu schedule` read the traces of clusters as their publishers describe them?"""

import json
from pathlib import Path
from typing import Any

import pytest

from emu.cli.main import main
from emu.doors.weeks.job_trace import read_trace

ACME = """job_id,node_num,gpu_num,type,state,submit_time,start_time,end_time,duration,queue
5778432,1,8,Other,FAILED,2023-03-01 00:18:22+08:00,2023-03-01 00:18:54+08:00,2023-03-01 00:20:51+08:00,117,32
5778469,1,8,Other,FAILED,2023-03-01 00:23:58+08:00,2023-03-01 00:24:11+08:00,2023-03-01 01:09:04+08:00,2693,13
5778470,1,0,Other,FAILED,2023-03-01 00:23:59+08:00,2023-03-01 00:24:11+08:00,2023-03-01 01:09:04+08:00,2693,12
"""
HELIOS = """job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1425511,uXBbc,vcJkd,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0
1425512,uVMrF,vchbv,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0
1425513,uzqls,vcpDC,1,1,1,CANCELLED,2020-06-09 18:41:28,2020-06-09 18:41:28,2020-06-17 14:15:21,675233,0
"""
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,\
scheduled_time
openb-pod-0017,88000,327680,8,1000,,Burstable,Succeeded,9437497,10769854,9437497
openb-pod-0022,4000,15258,1,220,,BE,Running,9679175,9973826,9679175
openb-pod-0035,16000,32768,1,1000,V100M16|V100M32,LS,Running,9967058,9968575,9967063
openb-pod-0036,16000,32768,1,1000,,LS,Pending,9967060,,
"""
SPOT = """job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type
239255,13,A10,20,1,1,0,2764799,HP
437260,57,A100-SXM4-80GB,15,1,16,9589663,41060,Spot
"""
TASKS = """job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type
a,ps,1,Terminated,100.0,400.0,600.0,10.0,,MISC
a,worker,2,Terminated,110.0,500.0,400.0,10.0,50.0,T4
b,worker,4,Terminated,130.0,140.0,400.0,10.0,100.0,T4
"""
PHILLY = json.dumps(
    [
        {
            "status": "Pass",
            "vc": "ee9e8c",
            "jobid": "application_1506638472019_14199",
            "attempts": [
                {
                    "start_time": "2017-10-07 01:12:09",
                    "end_time": "2017-10-07 01:13:23",
                    "detail": [{"ip": "m47", "gpus": [f"gpu{one}" for one in range(8)]}],
                },
                {
                    "start_time": "2017-10-07 01:13:30",
                    "end_time": "2017-10-09 06:53:12",
                    "detail": [{"ip": "m412", "gpus": [f"gpu{one}" for one in range(8)]}],
                },
            ],
            "submitted_time": "2017-10-07 01:11:39",
            "user": "ce2f4c",
        }
    ]
)
"""Rows that the publishers print in their README, some columns left out; TASKS has Alibaba's header of
2020."""


@pytest.mark.parametrize(
    ("text", "expected", "left_out"),
    [
        (ACME, [(0, "job-5778432", 8, 117, 32), (336, "job-5778469", 8, 2693, 13)], 1),
        (
            HELIOS,
            [
                (0, "job-1425511", 1, 36848, 0),
                (26, "job-1425512", 4, 249, 0),
                (27, "job-1425513", 1, 675233, 0),
            ],
            0,
        ),
        (
            PODS,
            [
                (0, "openb-pod-0017", 8, 1332357, 0),
                (241678, "openb-pod-0022", 1, 294651, 0),
                (529561, "openb-pod-0035", 1, 1512, 5),
            ],
            1,
        ),
        (SPOT, [(0, "job-239255", 1, 2764799, None), (9589663, "job-437260", 16, 41060, None)], 0),
        (TASKS, [(0, "a", 1, 400, None), (30, "b", 4, 10, None)], 0),
        (PHILLY, [(0, "application_1506638472019_14199", 8, 74 + 193182, 30)], 0),
        (
            "submit_time,gpu_num,duration\n0,16,3600\n7.5,8,60\n",
            [(0, "job", 16, 3600, None), (7.5, "job", 8, 60, None)],
            0,
        ),
    ],
    ids=["acme", "helios", "alibaba2023", "alibaba2025", "alibaba2020", "philly", "own"],
)
def test_a_trace_has_the_jobs_that_its_publisher_describes(
    text: str, expected: list[tuple[Any, ...]], left_out: int
) -> None:
    found = read_trace(text)
    assert found.left_out == left_out
    assert [
        (
            one.submitted_ms / 1000,
            one.name,
            one.gpus,
            one.lasts_ms / 1000,
            None if one.waited_ms is None else one.waited_ms / 1000,
        )
        for one in found.jobs
    ] == expected


def mix(tmp_path: Path, text: str, **trace: Any) -> str:
    (tmp_path / "trace.csv").write_text(text, "utf-8")
    fabric = {"kind": "llama3", "pods": 1, "racks_per_pod": 1, "hosts_per_rack": 3, "ctsws_per_pod": 1}
    keys = {"name": "traced", "lasts": "1h", "topology": fabric, "trace": {"file": "trace.csv", **trace}}
    (tmp_path / "mix.yaml").write_text(json.dumps(keys), "utf-8")
    return str(tmp_path / "mix.yaml")


ROWS = "".join(f"{600 * at},{gpus},900\n" for at, gpus in enumerate((3, 12, 8, 64, 24, 8, 8, 8)))


@pytest.mark.parametrize(
    ("trace", "came", "too_large", "gpus"),
    [
        ({}, 5, 1, [3, 16, 8, 24, 8]),  # the jobs from 60 min on are past the end
        ({"from": "20min"}, 5, 1, [8, 24, 8, 8, 8]),
        ({"gpus_times": "1/8"}, 6, 0, [1, 2, 1, 8, 3, 1]),
        ({"gpus_times": 2, "from": "40min"}, 3, 1, [16, 16, 16]),
    ],
)
def test_the_window_and_the_scale_of_a_trace_are_those_asked_for(
    trace: dict[str, Any],
    came: int,
    too_large: int,
    gpus: list[int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = mix(tmp_path, "submit_time,gpu_num,duration\n" + ROWS, **trace)
    assert main(["schedule", path, "--json", "--out", str(tmp_path / "out")]) == 0
    found = json.loads(capsys.readouterr().out)["trace"]
    assert (found["came"], found["too_large"], found["recorded"]) == (came, too_large, 8)
    rows = (tmp_path / "out" / "jobs.csv").read_text("utf-8").splitlines()[1:]
    assert [int(row.split(",")[1]) for row in rows] == gpus


def test_a_share_of_a_trace_is_drawn_and_the_same_for_a_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "submit_time,gpu_num,duration\n" + "".join(f"{at},1,1\n" for at in range(2000))
    counts = []
    for seed in (1, 1, 2):
        assert main(["schedule", mix(tmp_path, text, share=0.3), "--json", "--set", f"seed={seed}"]) == 0
        counts.append(json.loads(capsys.readouterr().out)["trace"]["came"])
    assert counts[0] == counts[1] != counts[2]
    assert counts[0] == pytest.approx(600, abs=3 * (2000 * 0.3 * 0.7) ** 0.5)


@pytest.mark.parametrize(
    ("text", "trace", "said"),
    [
        ("time,gpus\n", {}, "trace.csv:1: has the columns time, gpus; accepted: a CSV with submit_time,"),
        (
            "submit_time,gpu_num,duration\nx,1,1\n",
            {},
            "trace.csv:2: 'x' is not a time; accepted: a date like",
        ),
        ("submit_time,gpu_num,duration\n1,1\n", {}, "trace.csv:2: 2 cells in 3 columns"),
        ("submit_time,gpu_num,duration\n1,one,1\n", {}, "trace.csv:2: 'one' is not a number"),
        ("submit_time,gpu_num,duration\n1,0,1\n", {}, "has no job with a GPU and a length (1 without)"),
        (
            "submit_time,gpu_num,duration\n1,1,1\n",
            {"from": "2d"},
            "mix.yaml:1: trace: no job of the trace is",
        ),
        ("[{}]", {}, "trace.csv:1: job 0 has no submitted_time or attempts"),
        ("submit_time,gpu_num,duration\n1,1,1\n", {"file": "no.csv"}, "mix.yaml:1: trace.file: "),
        ("submit_time,gpu_num,duration\n1,1,1\n", {"share": 0}, "trace.share: no job comes"),
    ],
)
def test_a_trace_that_cannot_be_read_is_refused_in_a_line(
    text: str, trace: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schedule", mix(tmp_path, text, **trace)]) == 2
    assert said in capsys.readouterr().err
