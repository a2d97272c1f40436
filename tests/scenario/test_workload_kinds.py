"""Does everything that a job is asked about its workload go through the kind's own class?"""

import ast
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest

from actors.ncclx.script import CALL, COLLECTIVE, Group, GroupCall, Script, ScriptPlan
from emu import api
from emu.base.errors import ScenarioError
from emu.results.job_facts import JobFacts, JobRows, Outcome
from emu.results.summary_part import KindResult
from emu.scenario.load import load_mapping
from emu.scenario.workloads.flows import FlowList, FlowsWorkload
from emu.scenario.workloads.jobs import WORKLOADS
from emu.scenario.workloads.workload import OF_KINDS, Flows, Scripts, Site, Workload, training_steps
from emu.summary.summary_report import closing_lines
from emu.workload.flows import Flow
from emu.workload.step_facts import trace_facts
from tests.tidy.tracked import python_files, tree_of

FABRIC = {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 2, "spines": 2}


class Gathered(KindResult):
    """What it adds to the results."""

    latest_ps: int

    def lines(self, job: str) -> list[str]:
        return [f"# {job}: gathered at {self.latest_ps} ps"]


class GatheredFacts(JobFacts):
    """What its results are made from."""

    def results(self, rows: JobRows) -> dict[str, KindResult]:
        return {"serving": Gathered(latest_ps=max(one.delivered_ps or 0 for one in rows.flows))}

    def outcomes(self, rows: JobRows) -> list[Outcome | None]:
        return [Outcome(rows.start_ps, 10**12, 0)]


class EveryoneToTheFirst(FlowsWorkload):
    """A kind that nothing but this file has heard of."""

    kind: str = "everyone_to_the_first"

    def drawn(self, site: Site) -> Sequence[Flow]:
        return [Flow(rank, 0, 65536) for rank in range(1, len(site.gpus))]

    def fit(self, site: Site) -> Flows:
        return super().fit(site)._replace(facts=GatheredFacts())


class TwoRings(Workload):
    """Another: two all_reduces a step, each of half of the ranks."""

    kind: str = "two_rings"

    def fit(self, site: Site) -> Scripts:
        plan, half = ScriptPlan(), len(site.gpus) // 2
        for rank in range(2 * half):
            members = tuple(range(half)) if rank < half else tuple(range(half, 2 * half))
            number = plan.group(Group(COLLECTIVE, 0, members))
            calls = [GroupCall("all_reduce", 65536, "ring")] * 2
            plan.scripts.append(Script(rank, [number], [calls], [0], [[(CALL, 0, 0), (CALL, 0, 1)]]))
        facts = trace_facts(3, 2 * half, "two rings", Fraction(1), plan.reasons)
        return Scripts(plan, training_steps(3), facts)


def run_with(workload: Workload) -> api.Result:
    """A run of one job that does this."""
    job = {"name": "own", "workload": {"kind": "permutation", "size": "1KiB"}}
    loaded = load_mapping({"name": "own", "topology": FABRIC, "jobs": [job]})
    (section,) = loaded.scenario.jobs
    jobs = (section.model_copy(update={"workload": workload}),)
    changed = loaded._replace(scenario=loaded.scenario.model_copy(update={"jobs": jobs}))
    return api.run(changed, local=True, diagnose=False)


def test_flows_of_a_kind_that_only_its_class_knows_run_as_if_listed() -> None:
    summary = run_with(EveryoneToTheFirst()).summary
    job = summary.jobs["own"]
    assert (job.status, job.end_ps) == ("success", 10**12)
    latest_ps = max(one.delivered_ps or 0 for one in job.flows)
    assert f"# own: gathered at {latest_ps} ps" in closing_lines(summary)
    assert len(job.flows) == job.ranks - 1
    assert {one.destination for one in job.flows} == {job.flows[0].destination}
    listed = [{"src": rank, "dst": 0, "size": "64KiB"} for rank in range(1, job.ranks)]
    flows = FlowList.model_validate({"flows": tuple(listed)})
    assert run_with(flows).summary.jobs["own"].flows == job.flows


def test_scripts_of_a_kind_that_only_its_class_knows_run_in_steps() -> None:
    result = run_with(TwoRings())
    assert result.summary.jobs["own"].status == "success"
    training = result.summary.jobs["own"].training
    assert training is not None
    assert training.steps == 3
    assert training.cut == "two rings"


@pytest.mark.parametrize(
    "workload", [{"kind": "checkpoint", "size": "1MB"}, {"kind": "permutation", "size": "1KiB"}]
)
def test_an_operator_tends_no_job_without_steps(workload: dict[str, str]) -> None:
    frontend = {"enabled": True, "storage": {"servers": 1}}
    job = {"name": "own", "workload": workload}
    sections = {"frontend": frontend, "jobs": [job], "operator": {"job": "own"}}
    with pytest.raises(ScenarioError, match=r"operator\.job: own has no steps"):
        load_mapping({"name": "own", "topology": FABRIC, **sections})


@pytest.mark.parametrize("kind", WORKLOADS.table)
def test_a_kind_names_parts_of_the_results_that_there_are(kind: str) -> None:
    model = WORKLOADS.table[kind]
    assert issubclass(model, Workload)
    assert set(model.parts) <= set(OF_KINDS)
    assert model.parts, kind


def test_nothing_beside_the_kinds_asks_which_kind_a_job_has() -> None:
    kinds = {one.__name__ for base in (Workload, ScriptPlan, JobFacts) for one in (base, *_below(base))}
    kinds -= {"ScriptPlan", "JobFacts"}
    asking = [
        f"{name}:{node.lineno}"
        for name in python_files("emu")
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        and kinds & {one.id for one in ast.walk(node.args[1]) if isinstance(one, ast.Name)}
    ]
    assert asking == []


def _below(model: type[Any]) -> list[type[Any]]:
    return [one for child in model.__subclasses__() for one in (child, *_below(child))]
