"""Does a drawing show the fabric as it is: everything where there is room, and truly where there is not?"""

from xml.etree import ElementTree as ET  # our own output

import pytest
from hypothesis import given, settings

from actors.fabric.model import Topology
from emu.topology.fabric_blocks import blocks, planes
from emu.topology.outline import outline
from emu.topology.svg import BOX, Scene, draw, to_svg
from tests.topology.fabrics import PlannedLink, drawn, dual_tor, fabric_of, server, switch_graphs, zone, zones


def names(scene: Scene) -> list[str]:
    return [box.name for box in scene.boxes]


def overlaps(scene: Scene) -> list[tuple[str, str]]:
    """Boxes that lie on each other."""
    return [
        (one.name, other.name)
        for index, one in enumerate(scene.boxes)
        for other in scene.boxes[index + 1 :]
        if one.y == other.y and one.x < other.x + other.width and other.x < one.x + one.width
    ]


def test_the_outline_of_a_zone() -> None:
    assert outline(zone(racks=4, hosts_per_rack=2, gpus_per_host=8, spines=8)) == (
        "8 ctsw\n"
        "└─ 4 racks of 1 rtsw, each 8 x 400Gbps up\n"
        "   └─ 2 hosts of 8 GPUs and 8 NICs, each 8 x 400Gbps up"
    )


def test_the_outline_names_planes_and_what_the_kind_calls_its_blocks() -> None:
    assert outline(fabric_of(kind="hpn", pods=2, hosts_per_segment=4, link="6400G")) == (
        "120 core in 2 planes\n"
        "└─ 2 pods of 120 agg in 2 planes, each 960 x 400Gbps up\n"
        "   └─ 15 segments of 16 tor in 2 planes, each 960 x 400Gbps up\n"
        "      └─ 4 hosts of 8 GPUs and 8 NICs, each 16 x 6.4Tbps up"
    )
    assert outline(fabric_of(kind="rail_only", hosts_per_segment=2)).splitlines()[0] == "8 tor in 8 rails"


def test_the_outline_tells_unlike_blocks_apart() -> None:
    assert outline(dual_tor()) == (
        "2 ctsw\n"
        "├─ 1 rack of 2 rtsw, 4 x 400Gbps up\n"
        "│  └─ 4 hosts of 1 GPU and 1 NIC, each 2 x 400Gbps up\n"
        "└─ 1 rack of 1 rtsw, 2 x 400Gbps up\n"
        "   └─ 1 host of 1 GPU and 1 NIC, 1 x 400Gbps up"
    )


def test_two_servers_on_a_wire_have_an_outline_and_a_drawing() -> None:
    fabric = drawn([*server("a"), *server("b")], [PlannedLink("a-nic-0", "b-nic-0")])
    assert outline(fabric) == "└─ 2 hosts of 1 GPU and 1 NIC"
    assert names(draw(fabric)) == ["a", "b"]
    assert len(draw(fabric).lines) == 1


@given(zones | switch_graphs())
def test_blocks_hold_every_switch_and_every_server_once(fabric: Topology) -> None:
    waiting, switches, hosts = list(blocks(fabric)), list[int](), list[int]()
    while waiting:
        block = waiting.pop()
        waiting += block.below
        switches += block.switches
        hosts += block.hosts
    assert sorted(switches) == list(fabric.switches)
    assert sorted(hosts) == list(fabric.hosts)


def test_planes_are_what_the_switches_fall_apart_into() -> None:
    dual = fabric_of(kind="hpn", segments_per_pod=2, hosts_per_segment=1, aggs_per_plane=2)
    for switch, plane in planes(dual).items():
        name = dual.nodes[switch].name.split("-")
        assert plane == int(name[3] if name[0] == "tor" else name[2])
    assert set(planes(fabric_of(kind="dcn_plus", pods=1, hosts_per_segment=1)).values()) == {0}


def test_a_small_fabric_is_drawn_whole_with_a_line_for_each_joined_pair() -> None:
    fabric = zone(racks=3, hosts_per_rack=2, gpus_per_host=2, spines=2, parallel=2)
    scene = draw(fabric)
    assert sorted(names(scene)) == sorted(fabric.nodes[node].name for node in fabric.hosts + fabric.switches)
    assert sorted(line.links for line in scene.lines) == [2] * (6 + 3 * 2)
    assert sorted(frame.name for frame in scene.frames) == ["rack 0", "rack 1", "rack 2"]


@pytest.mark.parametrize("kind", ["llama3", "hpn", "megascale", "dcn_plus"])
def test_a_large_fabric_is_drawn_in_few_boxes_that_count_what_they_leave_out(kind: str) -> None:
    small = {"hosts_per_segment": 16} if kind == "hpn" else {}
    fabric = fabric_of(kind=kind, pods=2, **small)
    scene = draw(fabric)
    assert len(scene.boxes) < 80
    assert scene.width < (2400 if kind == "hpn" else 1450)
    assert overlaps(scene) == []
    assert [note.text for note in scene.notes if note.style == "skip"]
    text = to_svg(scene)
    assert f"{len(fabric.gpus):,} GPUs" in text
    assert f">{fabric.nodes[fabric.hosts[-1]].name}<" in text


@settings(max_examples=40)
@given(zones | switch_graphs())
def test_no_box_lies_on_another_and_all_lie_inside_the_picture(fabric: Topology) -> None:
    scene = draw(fabric)
    assert overlaps(scene) == []
    for box in scene.boxes:
        assert 0 <= box.x <= box.x + box.width <= scene.width
        assert 0 <= box.y <= box.y + BOX <= scene.height
    for frame in scene.frames:
        assert frame.x + frame.width <= scene.width
        assert frame.y + frame.height <= scene.height


def test_an_svg_is_one_well_formed_file_without_anything_from_elsewhere() -> None:
    fabric = zone()
    text = to_svg(draw(fabric))
    root = ET.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert {child.tag.rpartition("}")[2] for child in root.iter()} == {"svg", "style", "rect", "path", "text"}
    assert text == to_svg(draw(zone()))
    assert "href" not in text
    assert "prefers-color-scheme:dark" in text
    assert 'style="max-width:100%;height:auto"' in text


def test_a_long_name_is_cut_and_a_strange_one_escaped() -> None:
    name = "a-name-of-more-than-twenty-letters"
    fabric = drawn([*server("h"), *server(name)], [PlannedLink("h-nic-0", f"{name}-nic-0")])
    assert "a-name-of-more-than…" in names(draw(fabric))
