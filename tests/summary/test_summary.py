"""Does a summary hold what is promised, and does the schema in the documentation describe it?"""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it comes with Ray

from emu.results.summary import Summary, json_schema
from tests.summary.handmade import all_reduce_plan, fabric, record, summary

ROOT = Path(__file__).parents[2]
DONE = {"operations": [[0, 0, 0, 100_000_000, 0]]}
FLAP = {"at": "300us", "kind": "link_down", "target": "rtsw-0:ctsw-0", "for": "200us"}


def test_schema_in_the_documentation_is_that_of_the_models() -> None:
    documented = json.loads((ROOT / "docs/summary.schema.json").read_text("utf-8"))
    assert documented == json_schema()


def test_summary_validates_against_the_schema() -> None:
    one = summary([record(fabric(), "controller", results=DONE)], [all_reduce_plan()], faults=[FLAP])
    validator = Draft202012Validator(json.loads((ROOT / "docs/summary.schema.json").read_text("utf-8")))
    validator.validate(json.loads(one.json_text()))
    broken = json.loads(one.json_text())
    broken["drops"]["congestion"] = "none"
    assert not validator.is_valid(broken)


def test_summary_is_read_back_as_it_was() -> None:
    one = summary([record(fabric(), "controller", results=DONE)], [all_reduce_plan()])
    assert Summary.model_validate(json.loads(one.json_text())) == one


@pytest.mark.parametrize(
    ("path", "bound", "passed"),
    [
        ("drops.congestion", {"equals": 0}, True),
        ("fabric.drops.congestion", {"equals": 0}, True),
        ("faults[0].frames_lost", {"at_least": 1}, True),
        ("jobs.bench.collectives[-1].busbw", {"at_least": "100Gbps"}, True),
        ("jobs.bench.collectives[-1].busbw", {"at_least": "200Gbps"}, False),
        ("pfc_transmit_xoff_frames", {"at_most": 0}, True),
        ("virtual_ps", {"between": ["1us", "2ms"]}, True),
    ],
)
def test_expectations_find_their_values(path: str, bound: dict[str, object], passed: bool) -> None:
    topology = fabric()
    records = [
        record(topology, "controller", results=DONE),
        record(topology, "rtsw-0", [("port_dropped_frames", 2, -1, "link_down", 4)]),
        record(topology, "ctsw-0"),
    ]
    one = summary(records, [all_reduce_plan()], faults=[FLAP], expect=[{"value": path, **bound}])
    assert [expectation.passed for expectation in one.expectations] == [passed]
    assert one.passed() is passed


def test_only_the_engine_section_tells_of_the_placement() -> None:
    one = summary([record(fabric(), "controller", results=DONE)], [all_reduce_plan()]).plain()
    del one["engine"]
    text = json.dumps(one)
    for word in ("worker", "placement", "window", "wall", "cpu", "rss", "pid"):
        assert word not in text
