"""Does what was written for the last release go on, with nothing but names changed?"""

import tarfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from emu.cli.main import cli
from emu.errors import ScenarioError
from emu.measure.metric_names import METRIC_OF, METRICS
from emu.measure.summary.summary import Fabric
from emu.scenario.load import load, load_text
from emu.upgrade import renames
from emu.upgrade.edits import Note
from emu.upgrade.files import upgraded_promql
from emu.upgrade.python_modules import upgraded_source
from emu.upgrade.renames import Key, Value
from emu.upgrade.scenarios import upgraded_scenario

RELEASED = Path(__file__).parent / "golden/scenarios-0.1.0.tar.xz"
"""The scenarios of the release, all of them, and the files that they read."""
OLD = """\
# Does a flapping optic cost bandwidth?
name: flapping   # as in the tickets
seed: 3
topology: {kind: ai_zone, racks: 2, hosts_per_rack: 2, gpus_per_host: 1, spines: 2, link: 100G}
jobs:
  - name: train   # one job
    workload: {kind: collective, op: all_reduce, sizes: [1MiB]}
expect:
  - {value: drops.total, equals: 0}
  - {value: "pause_frames", equals: 0}
  - {value: fabric.peak_buffer_bytes, at_least: 1}   # the largest
  # the rate that nccl-tests would print
  - series: "emu_collective_bus_bandwidth_bytes"   # bits come out
    where: {comm_name: train}
    reaches: {at_least: 1Gbps}
  - {series: emu_job_failed, where: { job: train }, never: {at_least: 1}}
"""
NEW = OLD.replace(
    "emu_collective_bus_bandwidth_bytes", "emu_collective_bus_bandwidth_bytes_per_second"
).replace("{ job: train }", "{ job_name: train }")
NEW = NEW.replace("pause_frames", "pfc_transmit_xoff_frames")
NEW = NEW.replace("peak_buffer_bytes", "buffer_peak_bytes")
RULES = """\
groups:
  - name: emu
    rules:
      # a full receive buffer
      - alert: SlowReceiver
        expr: max_over_time(emu_nic_receive_peak_bytes{priority="3"}[1m]) > 1e6
      - record: job:emu_nic_receive_bytes:sum   # a name of their own
        expr: sum by (device) (emu_nic_receive_bytes)
      - alert: Failed
        expr: max by (exported_job) (emu_job_failed{exported_job=~"train.*"}) == 1
"""
PLUGIN = '''\
"""A policy."""
from actors.switch.policy import RoutingPolicy  # what it derives from
from emu.scenario.routing import (
    RoutingSection,
)
from emu.api import Program


class Mine(RoutingPolicy):
    def marks(self, result):
        return result.summary.fabric.ecn_marks
'''


def upgrade(*words: str | Path) -> tuple[int, list[str]]:
    done = CliRunner().invoke(cli, ["upgrade", *map(str, words)], standalone_mode=False)
    assert done.exception is None, done.exception
    return int(done.return_value), done.output.splitlines()


def test_a_scenario_of_the_release_upgrades_keeps_its_comments_and_then_validates(tmp_path: Path) -> None:
    file = tmp_path / "flapping.yaml"
    file.write_text(OLD)
    status, told = upgrade(file)
    assert (status, file.read_text()) == (0, NEW)
    assert told[:2] == [
        f"{file}:10: pause_frames -> pfc_transmit_xoff_frames",
        f"{file}:11: peak_buffer_bytes -> buffer_peak_bytes",
    ]
    assert told[2].startswith(f"{file}:13: emu_collective_bus_bandwidth_bytes -> ")
    assert told[3] == f"{file}:16: job -> job_name"
    load_text(file.read_text())


def test_a_second_upgrade_changes_nothing(tmp_path: Path) -> None:
    for name, text in (("a.yaml", OLD), ("rules.yml", RULES), ("mine.py", PLUGIN)):
        (tmp_path / name).write_text(text)
    assert upgrade(tmp_path)[1][-1] == "3 files looked at, 3 changed, 0 things to do by hand"
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert upgrade(tmp_path) == (0, ["3 files looked at, 0 changed, 0 things to do by hand"])
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_every_scenario_of_the_release_loads_once_it_is_upgraded(tmp_path: Path) -> None:
    with tarfile.open(RELEASED) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / "scenarios"
    status, told = upgrade(folder)
    by_hand = [line.removeprefix(f"by hand: {folder}/") for line in told if line.startswith("by hand:")]
    reorder = (
        "8: transport.recovery.reorder: a responder keeps 1953 packets (`window`), so none can be 4096 late"
    )
    switches = "7: switches that no pattern named have the configuration of rtsw-* now"
    beyond = {"policies.yaml": reorder, "sonic_boxes.yaml": switches, "traffic_engineering.yaml": reorder}
    assert [line.partition("; accepted")[0] for line in by_hand] == [
        f"{at}:{why}" for at, why in beyond.items()
    ]
    assert (status, told[-1]) == (1, "120 files looked at, 78 changed, 3 things to do by hand")
    files = [file for file in folder.glob("*.yaml") if beyond.get(file.name) != reorder]
    assert len([load(file) for file in files]) == 118
    assert upgrade(folder)[1][-1] == "120 files looked at, 0 changed, 2 things to do by hand"


def test_check_changes_nothing_and_says_by_its_status_that_something_would(tmp_path: Path) -> None:
    file = tmp_path / "flapping.yaml"
    file.write_text(OLD)
    status, told = upgrade("--check", file)
    assert (status, told[-1]) == (1, "1 file looked at, 1 would change, 0 things to do by hand")
    assert file.read_text() == OLD
    file.write_text(NEW)
    assert upgrade("--check", file)[0] == 0


def test_line_ends_the_byte_order_mark_and_permissions_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "flapping.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + OLD.replace("tickets", "tïckets").replace("\n", "\r\n").encode())
    file.chmod(0o640)
    upgrade(file)
    expected = NEW.replace("tickets", "tïckets").replace("\n", "\r\n").encode()
    assert file.read_bytes() == b"\xef\xbb\xbf" + expected
    assert file.stat().st_mode & 0o777 == 0o640


def test_what_stays_wrong_is_listed_to_be_done_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "flapping.yaml"
    file.write_text(OLD.replace("seed: 3", "sed: 3"))
    status, told = upgrade(file)
    assert status == 1
    assert [line for line in told if line.startswith("by hand:")] == [
        f"by hand: {file}:3: sed: unknown key; did you mean 'seed'?"
    ]


def test_both_spellings_at_once_are_left_to_a_person() -> None:
    text = OLD.replace("{ job: train }", "{job: train, job_name: train}")
    upgraded = upgraded_scenario(text)
    assert "{job: train, job_name: train}" in upgraded.text
    assert [note.line for note in upgraded.left] == [16]


def refused(text: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        load_text(text, "flapping.yaml")
    return [str(problem) for problem in caught.value.problems]


def test_old_spellings_are_refused_with_the_new_one_named() -> None:
    pauses, peak, series, label = refused(OLD)
    assert pauses.startswith(
        "flapping.yaml:10: expect[1].value: 'pause_frames' is no place in the summary: 'pause_frames' of "
        "emu 0.1.0 is 'pfc_transmit_xoff_frames' now"
    )
    assert "'peak_buffer_bytes' of emu 0.1.0 is 'buffer_peak_bytes' now" in peak
    assert series.startswith(
        "flapping.yaml:13: expect[3].series: there is no series 'emu_collective_bus_bandwidth_bytes': "
        "'emu_collective_bus_bandwidth_bytes' of emu 0.1.0 is "
        "'emu_collective_bus_bandwidth_bytes_per_second' now; `emu upgrade FILE` rewrites it"
    )
    assert label.startswith(
        "flapping.yaml:16: expect[4].where.job: unknown key: 'job' of emu 0.1.0 is 'job_name' now; "
        "`emu upgrade FILE` rewrites it"
    )


@pytest.mark.parametrize(
    ("values", "keys", "before", "after"),
    [
        (
            (),
            (Key("routing", "policy", "kind"),),
            "routing: {policy: ecmp, hash: mix}",
            "{kind: ecmp, hash: mix}",
        ),
        ((), (Key("routing", "policy", "kind"),), "routing:\n  'policy': ecmp", "routing:\n  'kind': ecmp"),
        (
            (Value("routing", "policy", "ecmp", "five_tuple"),),
            (),
            "routing: {policy: ecmp}",
            "{policy: five_tuple}",
        ),
        ((Value("routing", "hash", "mix", ""),), (), "routing: {policy: ecmp, hash: mix}", "{policy: ecmp}"),
        ((Value("routing", "hash", "mix", ""),), (), "routing: {hash: mix, seed: equal}", "{seed: equal}"),
        (
            (Value("routing", "hash", "mix", ""),),
            (),
            "routing:\n  hash: mix\n  seed: equal # same",
            "routing:\n  seed: equal # same",
        ),
    ],
)
def test_rows_of_keys_and_values_rewrite_both_styles_of_yaml(
    monkeypatch: pytest.MonkeyPatch, values: Sequence[Value], keys: Sequence[Key], before: str, after: str
) -> None:
    monkeypatch.setattr(renames, "KEYS", keys)
    monkeypatch.setattr(renames, "VALUES", values)
    text = f"name: x\n{before}\n# end\n"
    upgraded = upgraded_scenario(text)
    assert (
        upgraded.text == f"name: x\n{after if after.startswith('routing') else f'routing: {after}'}\n# end\n"
    )
    assert upgraded.left == []


def test_a_discriminator_that_is_renamed_is_refused_by_its_new_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renames, "KEYS", (Key("topology", "form", "kind"),))
    (told,) = refused(NEW.replace("kind: ai_zone", "form: ai_zone"))
    assert told.startswith(
        "flapping.yaml:4: topology.form: 'form' of emu 0.1.0 is 'kind' now; `emu upgrade FILE`"
    )


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        (
            "routing: {policy: spray, order: random}",
            "routing: {kind: spray, order: random}",
            "routing.policy",
        ),
        (
            "switch:\n  scheduling:\n    strict: [6]  # control\n    policy: weighted  # by bytes",
            "switch:\n  scheduling:\n    strict: [6]  # control\n    kind: weighted  # by bytes",
            "switch.scheduling.policy",
        ),
        (
            "nic: {arbiter: {policy: weighted, strict: []}}",
            "nic: {arbiter: {kind: weighted, strict: []}}",
            "nic.arbiter.policy",
        ),
        (
            "transport: {recovery: {scheme: selective_repeat, reorder: 8}}",
            "transport: {recovery: {kind: selective_repeat, reorder: 8}}",
            "transport.recovery.scheme",
        ),
        (
            "transport: {congestion_control: {algorithm: dcqcn, additive: 100M}}",
            "transport: {congestion_control: {kind: dcqcn, additive: 100M}}",
            "transport.congestion_control.algorithm",
        ),
    ],
)
def test_what_told_kinds_apart_is_refused_in_one_line_and_upgraded(before: str, after: str, key: str) -> None:
    (told,) = refused(f"{NEW}{before}\n")
    assert f": {key}: unknown key: {key.rpartition('.')[2]!r} of emu 0.1.0 is 'kind' now; `emu upg" in told
    upgraded = upgraded_scenario(f"{NEW}{before}\n")
    assert (upgraded.text, upgraded.left) == (f"{NEW}{after}\n", [])
    if "spray" not in after:
        load_text(upgraded.text)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{kind: flows, pattern: incast, fan_in: 3, size: 1KiB}", "{kind: incast, fan_in: 3, size: 1KiB}"),
        ("{pattern: permutation, size: 1KiB, kind: flows}", "{size: 1KiB, kind: permutation}"),
        ("{kind: flows, qps: 2, pattern: poisson, flows: 9}", "{kind: poisson, qps: 2, flows: 9}"),
        (
            "{kind: flows, pattern: list, flows: [{src: 0, dst: 1, size: 1B}]}",
            "{kind: flows, flows: [{src: 0, dst: 1, size: 1B}]}",
        ),
        ("{kind: flows, pattern: csv, file: a.csv}", "{kind: flow_table, file: a.csv}"),
        ("{kind: trace, file: a.txt}", "{kind: simai_trace, file: a.txt}"),
        ("{kind: trace, form: simai, file: a.txt}", "{kind: simai_trace, file: a.txt}"),
        ("{kind: trace, form: chakra, file: a}", "{kind: chakra_trace, file: a}"),
        (
            "\n      kind: flows   # as perftest\n      pattern: incast   # all at once\n      size: 1KiB",
            "\n      kind: incast   # as perftest\n      # all at once\n      size: 1KiB",
        ),
        (
            "\n      size: 1KiB\n      kind: flows\n      pattern: permutation",
            "\n      size: 1KiB\n      kind: permutation",
        ),
    ],
)
def test_two_keys_that_chose_a_workload_are_refused_in_one_line_and_become_one(
    before: str, after: str
) -> None:
    text = NEW.replace("{kind: collective, op: all_reduce, sizes: [1MiB]}", before)
    (told,) = refused(text)
    assert ": jobs[0].workload." in told
    new = after.partition("kind: ")[2].partition(",")[0].partition("}")[0].split()[0]
    assert f"of emu 0.1.0 is 'kind: {new}' now; `emu upgrade FILE` rewrites it" in told
    upgraded = upgraded_scenario(text)
    assert upgraded.text == NEW.replace("{kind: collective, op: all_reduce, sizes: [1MiB]}", after)
    assert upgraded.left == []


def test_rules_get_the_names_of_today_and_keep_their_own() -> None:
    upgraded = upgraded_promql(RULES)
    assert upgraded.left == []
    expected = RULES.replace("emu_nic_receive_peak_bytes{", "emu_nic_receive_buffer_peak_bytes{")
    expected = expected.replace("(emu_nic_receive_bytes)", "(emu_nic_receive_buffer_bytes)")
    assert upgraded.text == expected.replace("exported_job", "job_name")


def test_a_label_whose_meaning_nobody_can_tell_is_left_to_a_person() -> None:
    upgraded = upgraded_promql('expr: emu_job_failed{job="train"} == 1\nlabel: exported_job\n')
    assert [note.line for note in upgraded.left] == [1, 2]


def test_a_plug_in_imports_from_where_things_are_and_is_otherwise_as_it_was() -> None:
    upgraded = upgraded_source(PLUGIN)
    assert upgraded.left == []
    lines = zip(PLUGIN.splitlines(), upgraded.text.splitlines(), strict=True)
    assert [new for old, new in lines if old != new] == [
        "from actors.switch.routing.policy import RoutingPolicy  # what it derives from",
        *[line for line in upgraded.text.splitlines() if "emu.scenario" in line],
        "        return result.summary.fabric.queue_marked_frames",
    ]
    names: dict[str, object] = {}
    exec(upgraded.text, names)
    assert isinstance(names["Mine"], type)
    with_knobs = upgraded_source(PLUGIN.replace("    def", "    knobs = RoutingSection\n\n    def"))
    assert with_knobs.left == [Note(10, "knobs is a list of Knob now: see the page plugins")]


@pytest.mark.parametrize(
    "statement",
    [
        "from actors.switch.policy import RoutingPolicy",
        "from actors.switch.groups import Routes",
        "from actors.nic.congestion import CongestionControl",
        "from actors.nic.arbiter import Arbiter",
        "from emu.scenario.routing import RoutingSection",
        "from emu.scenario.congestion import CongestionSection",
        "from emu.scenario.arbiter import ArbiterSection",
        "from emu.kernel.state import load_fields, save_fields",
        "from emu.wire.frame import Frame",
        "from emu.vectors import vec",
    ],
)
def test_what_the_pages_of_the_release_told_plug_ins_to_import_is_found(statement: str) -> None:
    upgraded = upgraded_source(statement)
    assert upgraded.left == []
    exec(upgraded.text, {})


def test_imports_that_cannot_be_followed_are_listed() -> None:
    upgraded = upgraded_source("import emu.wire.batch\nfrom actors.runtime.crew import Crew\nx = (\n")
    assert [note.line for note in upgraded.left] == [3]
    upgraded = upgraded_source("import emu.wire.batch\nfrom actors.runtime.crew import Crew\n")
    assert [note.line for note in upgraded.left] == [1, 2]


def test_what_an_import_splits_into_is_a_line_for_each_module() -> None:
    upgraded = upgraded_source("def f():\n    from emu.wire.frame import Frame\n")
    assert upgraded.text == "def f():\n    from actors.wire.frame import Frame\n"
    split = upgraded_source("if 1:\n    from emu.kernel.state import Plain, as_list\n").text
    assert split.splitlines()[1:] == [
        "    from actors.kernel.device import Plain",
        "    from actors.kernel.state import as_list",
    ]


def test_files_that_are_none_of_ours_and_records_of_runs_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text("job: x\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/journal.jsonl").write_text("")
    (tmp_path / "run/scenario.yaml").write_text(OLD)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/a.yaml").write_text(OLD)
    assert upgrade(tmp_path) == (0, ["0 files looked at, 0 changed, 0 things to do by hand"])


def test_every_row_of_the_table_leads_to_a_name_of_today() -> None:
    series = {metric.name for metric in METRICS}
    assert set(renames.SERIES.values()) <= series
    assert not set(renames.SERIES) & series
    assert set(renames.COUNTERS.values()) <= set(METRIC_OF)
    assert not set(renames.COUNTERS) & set(METRIC_OF)
    fields = {f"fabric.{name}" for name in Fabric.model_fields}
    assert set(renames.FIELDS.values()) <= fields
    assert not set(renames.FIELDS) & fields


def test_a_plug_in_that_imports_what_has_moved_is_refused_with_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "policy_of_the_release.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    (told,) = refused(NEW.replace("seed: 3", 'routing: {kind: "policy_of_the_release:Mine"}'))
    assert (
        "'actors.switch.policy' of emu 0.1.0 is 'actors.switch.routing.policy' now; `emu upgrade FILE`"
        in told
    )


def test_every_module_that_has_moved_is_told_a_place_that_exists() -> None:
    assert {old: new for old, new in renames.MODULES.items() if find_spec(new) is None} == {}
