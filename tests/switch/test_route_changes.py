"""When a switch goes down and takes many links with it, how often are groups computed?"""

from __future__ import annotations

from actors.switch.routing.policy import Group
from tests.fabric.rig import Fabric
from tests.fabric.sections import scenario, zone


def test_links_that_change_at_one_instant_have_groups_computed_once_after_the_last() -> None:
    one = Fabric(scenario(zone(3, 1, 2), routing={"convergence": "1us"}))
    leaf = one.switch("rtsw-0")
    asked: list[list[int]] = []
    groups = leaf.routes.groups

    class Counted(type(leaf.routes)):  # type: ignore[misc]  # the fabric's own source of groups
        def groups(self, switch: int, down: list[int]) -> list[Group]:
            asked.append(list(down))
            return groups(switch, down)

    leaf.routes = Counted(one.topology, one.scenario.routing)
    for rack in range(3):
        one.set_link(f"rtsw-{rack}:ctsw-1", 1_000_000, up=False)
    one.run(2_000_000)
    assert asked == []
    one.run(2_000_001)
    links = sorted(link for rack in range(3) for link in one.topology.links_named(f"rtsw-{rack}:ctsw-1"))
    assert asked == [links]
    assert [list(group.ports) for group in list(leaf._groups)[1:]] == [[1], [1]]
    one.set_link("rtsw-0:ctsw-1", 3_000_000, up=True)
    one.set_link("rtsw-2:ctsw-1", 3_500_000, up=True)
    one.run(5_000_000)
    assert len(asked) == 3
    assert [list(group.ports) for group in list(leaf._groups)[1:]] == [[1], [1, 2]]
