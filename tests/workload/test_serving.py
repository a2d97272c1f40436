"""Do requests take what closed forms say, and do tokens come out when iterations say?"""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from emu import api
from emu.base.errors import ScenarioError
from emu.results.serving_result import ServingResult
from emu.scenario.workloads.serving import ServingWorkload
from emu.workload.serving import Asked, Request, Serving, Tokens, decoded, drawn, prefilled, transfers
from emu.workload.training import Model
from tests.scenario.plain import plain

OWN = {"layers": 4, "hidden": 1024, "heads": 8, "kv_heads": 8, "ffn": 4096, "sequence": 1024}
US = 10**6
TINY = Serving(
    model=Model(1, 10, 1, 1, 10, 0, 1),
    prefills=2,
    decodes=1,
    tp=1,
    page=16,
    most=2,
    flops_per_s=Fraction(10**12),
    memory_bytes_per_s=10**12,
)
"""A forward pass of n tokens is n (2 x 400 + 40 n + 2 x 300) ps, an iteration reads 1,400 B and 40 B a
token."""


def served(workload: dict[str, object], hosts: int = 2) -> ServingResult:
    scenario = plain(
        {
            "name": "serving",
            "topology": {"kind": "star", "hosts": hosts},
            "jobs": [
                {"name": "chat", "workload": {"kind": "serving", "model": "own", "own": OWN, **workload}}
            ],
        }
    )
    result = api.run(scenario, local=True).summary.jobs["chat"].serving
    assert result is not None
    return result


@pytest.mark.parametrize("verb", ["write", "read"])
def test_unloaded_time_to_the_first_token_is_prefill_transfer_and_an_iteration(verb: str) -> None:
    """A prompt of 256 tokens: 4 MiB of keys and values in 64 messages of a page of one layer (64 KiB)."""
    result = served({"trace": [{"at": "10us", "prompt": 256, "output": 3}], "verb": verb})
    layer = 2 * 4 * 1024**2 + 4 * 256 * 1024 + 2 * 3 * 1024 * 4096
    prefill_us = 256 * 4 * layer / (989e12 * 0.6) * 1e6
    values = 2 * 1024 * 2 * 4
    wire = 256 * values // 4096 * 4178 + 64 * 16
    transfer_us = wire * 8 / 400e3
    weights = 4 * (4 * 1024**2 + 3 * 1024 * 4096) * 2
    iterations_us = [(weights + values * (256 + given)) / 2.7e12 * 1e6 for given in range(3)]
    assert result.transfer is not None
    assert result.first_token is not None
    assert result.each_token is not None
    if verb == "write":  # reads wait for one another, sixteen at a time
        assert result.transfer.p50_ps / US == pytest.approx(transfer_us, abs=2.1)  # a way of two hops
    first_us = prefill_us + result.transfer.p50_ps / US + iterations_us[0]
    assert result.first_token.p50_ps / US == pytest.approx(first_us, abs=1e-3)
    assert result.each_token.p50_ps / US == pytest.approx(sum(iterations_us[1:]) / 2, abs=1e-3)


def test_a_prompt_goes_to_the_prefill_instance_that_is_free_first() -> None:
    """Ten tokens take 18,000 ps."""
    requests = prefilled(TINY, [Asked(at, 10, 1) for at in (0, 1000, 2000, 60_000)])
    assert [(one.prefill, one.begins_ps, one.ready_ps) for one in requests] == [
        (0, 0, 18_000),
        (1, 1000, 19_000),
        (0, 18_000, 36_000),
        (1, 60_000, 78_000),
    ]


def test_whole_pages_of_every_layer_go_from_each_gpu_to_the_one_at_its_place() -> None:
    one = TINY._replace(model=TINY.model._replace(layers=3, heads=2, kv_heads=2), tp=2)
    flows = transfers(one, prefilled(one, [Asked(0, 17, 1)]))
    assert [(flow.src, flow.dst, flow.size_bytes) for flow in flows] == [
        (0, 4, 2 * 3 * 16 * 40 // 2),
        (1, 5, 2 * 3 * 16 * 40 // 2),
    ]


def test_a_request_joins_the_next_iteration_and_waits_where_it_is_full() -> None:
    """Iterations of 1,400 + 40 n ps for n tokens; two requests at most."""
    requests = [Request(Asked(0, 10, output), 0, 0, 0, 0) for output in (3, 1, 1)]
    found = decoded(TINY, requests, {0: 0, 1: 100, 2: 200})
    first = 1400 + 400
    second = first + 1400 + 40 * (11 + 10)
    third = second + 1400 + 40 * (12 + 10)
    assert found == {0: Tokens(first, third), 1: Tokens(second, second), 2: Tokens(third, third)}


def test_what_never_arrives_is_never_answered() -> None:
    requests = [Request(Asked(0, 10, 1), 0, 0, 0, 0)] * 2
    assert list(decoded(TINY, requests, {1: 5})) == [1]


def test_requests_arrive_by_their_rate() -> None:
    """The mean of 4,000 exponential gaps is within 5 % of theirs (three standard errors)."""
    asked = drawn(4000, Fraction(10**9), 5, 6, seed=1, job=0)
    assert asked[-1].at_ps / 4000 == pytest.approx(10**9, rel=0.05)
    assert asked == drawn(4000, Fraction(10**9), 5, 6, seed=1, job=0)
    assert asked != drawn(4000, Fraction(10**9), 5, 6, seed=2, job=0)


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        ({}, "does not say once when requests arrive"),
        ({"rate": 10, "requests": 5, "trace": [{"at": 0, "prompt": 1, "output": 1}]}, "does not say once"),
        ({"rate": 10}, "does not say once when requests arrive"),
        ({"rate": 10, "requests": 5, "time_scale": "1/2"}, "time_scale: belongs to a trace"),
        ({"rate": 10, "requests": 60_000, "output": 1000}, "60000000 tokens in all"),
        ({"rate": 10, "requests": 5, "message": "4KiB"}, "a page of keys and values is a message"),
        ({"rate": 10, "requests": 5, "verb": "send"}, "send moves no pages"),
        ({"rate": 10, "requests": 5, "tp": 3}, "does not divide 8 key/value heads"),
        (
            {"rate": 10, "requests": 5, "prefills": 2},
            r"\(2 \+ 1\) instances of 1 GPUs are 3 ranks, the job has 2",
        ),
        ({"rate": 10, "requests": 5, "own": None}, "goes with `model: own`"),
    ],
)
def test_what_cannot_be_served_is_refused(workload: dict[str, Any], reason: str) -> None:
    with pytest.raises(ScenarioError, match=reason):
        served(workload)


AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens\r
2023-11-16 23:59:59.9000000,374,44\r
2023-11-17 00:00:00.1000001,91,3\r
2023-11-16 23:59:59.9500000,14050,1"""
"""As the published files: decimals of 100 ns, no end of the last line; a row out of order beside."""


def asked(table: str, tmp_path: Path, **more: object) -> list[Asked]:
    """What is asked by a job whose requests are in this file."""
    (tmp_path / "requests.csv").write_text(table, newline="")
    (tmp_path / "serving.yaml").write_text(
        "name: serving\ntopology: {kind: star, hosts: 2}\njobs:\n  - name: chat\n    workload:\n"
        "      {kind: serving, model: llama3-8b, file: requests.csv"
        + "".join(f", {key}: {value}" for key, value in more.items())
        + "}\n"
    )
    workload = api.load(str(tmp_path / "serving.yaml")).scenario.jobs[0].workload
    assert isinstance(workload, ServingWorkload)
    return [request.asked for request in workload.asked(1, 0)]


def test_requests_of_azures_traces_arrive_from_the_first_on(tmp_path: Path) -> None:
    expected = [Asked(0, 374, 44), Asked(50_000 * US, 14050, 1), Asked(200_000 * US + 100_000, 91, 3)]
    assert asked(AZURE, tmp_path) == expected
    scaled = asked(AZURE, tmp_path, requests=2, time_scale="1/100")
    assert scaled == [Asked(0, 374, 44), Asked(2000 * US + 1000, 91, 3)]


def test_a_leap_day_lies_between_february_and_march(tmp_path: Path) -> None:
    table = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-02-28 12:00:00,1,1\n2024-03-01T12:00:00Z,1,1\n"
    assert asked(table, tmp_path)[1].at_ps == 2 * 24 * 3600 * 10**12


def test_requests_of_ones_own_carry_their_unit(tmp_path: Path) -> None:
    assert asked("# mine\noutput,at,prompt\n3,1ms,5\n", tmp_path) == [Asked(1000 * US, 5, 3)]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("ContextTokens", "Prompt", r"requests.csv:1: .*columns TIMESTAMP,Prompt,GeneratedTokens; accepted:"),
        (",91,3", ",91", r"requests.csv:3: .*2 cells under 3 columns"),
        (",91,3", ",91,0", r"requests.csv:3: .*0 is out of range; accepted: output tokens, from 1 to"),
        (",91,3", ",-91,3", r"requests.csv:3: .*'-91' is not a whole number; accepted: prompt tokens,"),
        ("2023-11-17", "2023-02-30", r"requests.csv:3: .*'2023-02-30 00:00:00.1000001' is no day"),
        ("2023-11-17 ", "17 Nov ", r"requests.csv:3: .*is no TIMESTAMP; accepted: a date and a time of day"),
        (AZURE.partition("\n")[2], "", r"requests.csv:1: .*no request in the table"),
    ],
)
def test_a_bad_row_of_requests_is_one_line(old: str, new: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=said) as refused:
        asked(AZURE.replace(old, new), tmp_path)
    assert len(refused.value.problems) == 1


def test_a_file_of_requests_and_a_list_are_refused_together(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="says beside `trace` when requests arrive"):
        asked(AZURE, tmp_path, trace="[{at: 0s, prompt: 1, output: 1}]")
    with pytest.raises(ScenarioError, match="does not say once when requests arrive"):
        asked(AZURE, tmp_path, rate=10)
