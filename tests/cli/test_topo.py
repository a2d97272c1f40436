"""Does `emu topo` show paths, placement and buffers, and draw, as asked?"""

import json
import re
from pathlib import Path

import pytest

from tests.cli import telling
from tests.cli.telling import Captured

SCENARIO = """\
name: small
topology: {kind: ai_zone, racks: 2, hosts_per_rack: 2, gpus_per_host: 2, spines: 4}
switch: {buffer: {headroom: 100KB}}
jobs:
  - {name: a, workload: {kind: permutation, size: 1MiB}}
"""


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return str(path)


def reported(capsys: Captured, *arguments: str) -> tuple[int, list[str], list[str]]:
    return telling.reported(capsys, "topo", *arguments)


def test_the_outline_stands_below_the_figures(capsys: Captured, small: str) -> None:
    _, out, _ = reported(capsys, small)
    # 4 links of (4,194 + 86) x 20 ps and 2 x 500 ns, 3 switches and a NIC of 300 ns each way.
    assert out[-5] == "longest unloaded round trip 6.74us, a full packet and its acknowledgement"
    assert out[-3:] == [
        "4 ctsw",
        "└─ 2 racks of 1 rtsw, each 4 x 400Gbps up",
        "   └─ 2 hosts of 2 GPUs on an NVSwitch and 2 NICs, each 2 x 400Gbps up",
    ]


def test_paths_beyond_the_limit_are_counted(capsys: Captured, small: str) -> None:
    ends = ("--routes", "nic-0-0", "nic-3-1")
    _, out, _ = reported(capsys, small, *ends, "--limit", "1")
    assert out == ["nic-0-0 rtsw-0 ctsw-0 rtsw-1 nic-3-1", "and 3 more of 4; --limit 0 lists them all"]
    assert len(reported(capsys, small, *ends, "--limit", "0")[1]) == 4
    assert len(json.loads("".join(reported(capsys, small, *ends, "--json")[1]))) == 4


def test_placement_counts_what_each_worker_hosts(capsys: Captured, small: str) -> None:
    _, out, _ = reported(capsys, small, "--placement", "2")
    assert [line.split()[:5] for line in out[1:3]] == [list("02443"), list("12443")]
    assert out[-2] == "4 of 40 links are cut (10 %)"
    assert out[-1].startswith("of what the jobs send over links, 16 % crosses between workers")
    assert len(reported(capsys, small, "--placement", "node")[1]) == 1 + 4 + 6 + 1
    status, _, err = reported(capsys, small, "--placement", "some")
    assert (status, err) == (
        2,
        ["emu: --placement some: is no placement; accepted: a number of workers, or one of node, device"],
    )


def test_buffers_show_headroom_for_each_kind_of_port_and_what_is_left(capsys: Captured, small: str) -> None:
    shown = json.loads("\n".join(reported(capsys, small, "--buffers", "--json")[1]))
    assert [(port["switch"], port["peer"], port["ports"]) for port in shown["ports"]] == [
        ("rtsw", "nic", 8),
        ("rtsw", "ctsw", 8),
        ("ctsw", "rtsw", 8),
    ]
    assert {port["headroom_bytes"] for port in shown["ports"]} == {100_000}
    text = reported(capsys, small, "--buffers")[1]
    assert text[-3:] == [
        "each group: reserve 4,096 B, XOFF 1/8 x (shared pool - used)",
        "",
        "lossless priorities 3, 6",
    ]
    boxes = {(row["chip"], row["buffer_bytes"]) for row in shown["switches"]}
    assert boxes == {("Tomahawk 3", 66_394_076)}


def test_buffers_say_by_what_auto_goes_and_what_a_box_ships(capsys: Captured, small: str) -> None:
    """At 500 ns a box has 2 x 500 ns x 50 B/ns = 50,000 B more than at no length. A switch of four ports is a
    box with Tomahawk 3."""
    text = Path(small).read_text(encoding="utf-8").replace("headroom: 100KB", "asic: none")
    Path(small).write_text(text, encoding="utf-8")
    of_three, of_five = -(-(50_000 + 132_450) // 192) * 254, -(-(50_000 + 127_480) // 84) * 254
    for asic, how, shipped_bytes in (
        ("none", "the bytes with which a port here loses nothing", of_three),
        ("auto", "what boxes ship with the smallest chip for the ports", of_three),
        ("tomahawk5", "what its boxes ship", of_five),
    ):
        Path(small).write_text(text.replace("none", asic), encoding="utf-8")
        shown = json.loads("\n".join(reported(capsys, small, "--buffers", "--json")[1]))
        shipped = {port["shipped_headroom_bytes"] for port in shown["ports"]}
        assert shipped == {shipped_bytes}
        least = {135_538} if asic == "none" else shipped
        assert {port["headroom_bytes"] for port in shown["ports"]} == least
        said = reported(capsys, small, "--buffers")[1]
        assert " ".join(said[-2:]).endswith(f"headroom auto goes by switch.buffer.asic: {asic}, {how}")
        assert "of a box" in said[0]


@pytest.mark.parametrize(
    ("buffer", "note"),
    [
        ("{pool: 64MB}", True),
        ("{pool: 64MB, asic: tomahawk3}", False),
        ("{pool: 64MB, headroom: 150KB}", False),
        ("{}", False),
    ],
)
def test_a_pool_without_a_chip_has_less_headroom_than_a_box_and_both_places_say_so(
    capsys: Captured, small: str, buffer: str, note: bool
) -> None:
    """400G at 500 ns: 135,538 B lose nothing here; a box has those of Tomahawk 3, as above."""
    text = Path(small).read_text(encoding="utf-8")
    Path(small).write_text(re.sub(r"buffer: \{[^}]*\}", f"buffer: {buffer}", text), encoding="utf-8")
    shipped = -(-(50_000 + 132_450) // 192) * 254
    status, lines, _ = telling.reported(capsys, "validate", small)
    assert status == 0
    noted = [line for line in lines if "note: switch.buffer.pool is given" in line]
    assert len(noted) == note
    assert all(f"135,538 B; a box ships {shipped:,} B" in line for line in noted)
    said = " ".join(reported(capsys, small, "--buffers")[1])
    assert ("none, since a pool is given" in said) == note


def test_buffers_show_the_profiles_of_priority_groups(capsys: Captured, small: str) -> None:
    text = Path(small).read_text(encoding="utf-8")
    profile = "{priorities: [6], headroom: 50KB, reserve: 0, xoff: 200KB}"
    text = text.replace("headroom: 100KB}", f"headroom: 100KB, profiles: [{profile}]}}")
    Path(small).write_text(text, encoding="utf-8")
    shown = json.loads("\n".join(reported(capsys, small, "--buffers", "--json")[1]))
    assert [(port["priorities"], port["headroom_bytes"]) for port in shown["ports"][:2]] == [
        ([3], 100_000),
        ([6], 50_000),
    ]
    # A spine has two ports: 7 reserves of 4 KiB and headroom for 3 and 6 each.
    assert [row["shared_bytes"] for row in shown["switches"] if row["switch"] == "ctsw"] == [
        66_394_076 - 2 * (7 * 4096 + 150_000)
    ]
    assert reported(capsys, small, "--buffers")[1][-4:-2] == [
        "group 6: reserve 0 B, XOFF 200,000 B",
        "other groups: reserve 4,096 B, XOFF 1/8 x (shared pool - used)",
    ]


def test_several_views_are_shown_one_after_the_other(capsys: Captured, small: str) -> None:
    out = json.loads("\n".join(reported(capsys, small, "--placement", "1", "--buffers", "--json")[1]))
    cuts = ["cut_links", "links", "planned_cut_percent", "uniform_planned_cut_percent", "workers"]
    assert [sorted(view) for view in out] == [cuts, ["ports", "switches"]]


def test_a_drawing_is_written_where_asked(capsys: Captured, small: str, tmp_path: Path) -> None:
    file = tmp_path / "fabric.svg"
    assert reported(capsys, small, "--svg", str(file)) == (0, [], [f"drew {file}"])
    assert file.read_text(encoding="utf-8").startswith("<svg ")
    status, _, err = reported(capsys, small, "--svg", str(tmp_path / "no" / "fabric.svg"))
    assert status == 2
    assert err[0].endswith("cannot be written: No such file or directory")


def test_a_fabric_that_cannot_be_built_is_refused_by_line(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "cut.yaml"
    jobs = SCENARIO.partition("100KB}}\n")[2]
    fabric = "topology:\n  kind: hpn\n  aggs_per_plane: 0\n"
    path.write_text(f"name: cut\n{fabric}{jobs}", encoding="utf-8")
    reason = "plane 0 has no path between its ToRs without an aggregation switch"
    accepted = "a whole number of at least 1"
    described = [f"emu: {path}:4: topology.aggs_per_plane: {reason}; accepted: {accepted}"]
    assert reported(capsys, str(path)) == (2, [], described)


def test_buffers_of_a_modular_switch_are_shown_by_port(capsys: Captured, small: str) -> None:
    text = Path(small).read_text(encoding="utf-8")
    text = text.replace("switch: {", "switch: {deep_buffer: {where: spines, port_buffer: 32MB}, ")
    Path(small).write_text(text, encoding="utf-8")
    shown = json.loads("\n".join(reported(capsys, small, "--buffers", "--json")[1]))["switches"]
    # 32 MB less 8 reserves of 4 KiB and headroom for two lossless priorities.
    assert [(row["shared_bytes"], row["per_port"]) for row in shown if row["per_port"]] == [
        (32_000_000 - 8 * 4096 - 2 * 100_000, True)
    ]
    assert [row["per_port"] for row in shown] == [False, True]
    lines = reported(capsys, small, "--buffers")[1]
    assert any(line.endswith("31,767,232 B a port") for line in lines)
    assert lines[-1] == "modular switches: 32MB for each port, XOFF 1 x what is left of it"


def test_a_fabric_without_jobs_is_shown_and_not_run(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "fabric.yaml"
    path.write_text("name: fabric\ntopology: {kind: star, hosts: 4}\n", encoding="utf-8")
    status, out, _ = reported(capsys, str(path))
    assert (status, out[0].split(":")[0]) == (0, "star")
    assert telling.reported(capsys, "validate", str(path))[0] == 2
