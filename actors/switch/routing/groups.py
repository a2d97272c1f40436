"""Equal-cost groups: the next hops of a switch towards a prefix.

A *group* holds the egress ports on shortest paths. A weighted group names a port once for each unit of its
weight, as the member tables of switching chips do, so that every policy that chooses evenly among members is
weighted by it.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from actors.kernel.vectors import append, vec

PREFIX_SHIFT: Final[i64] = 10
INDEX_MASK: Final[i64] = 0x3FF

VIA_BRANCH: Final[i64] = -2
"""In a group by address: -2 - b sends the address to branch b. -1 is no route."""


class Group:
    """The next hops towards one prefix.

    By choice: any of `ports`. By address (the prefix hangs here, or some of its addresses go their own ways):
    `ports` is indexed by the address's last bits and holds a port, -1, or where to look among `branches`,
    which are groups by choice.
    """

    __slots__ = ("branches", "by_address", "count", "ports")

    def __init__(self, ports: list[int], by_address: bool, branches: list[Group] | None = None) -> None:
        self.ports: vec[i64] = vec[i64](ports)
        self.count: i64 = len(ports)
        self.by_address: bool = by_address
        self.branches: list[Group] = branches or []

    def branch_off(self, index: i64, ports: list[int]) -> None:
        """Send one address by ports of its own, any of them; none is no route."""
        while self.count <= index:
            self.ports = append(self.ports, -1)
            self.count += 1
        self.ports[index] = VIA_BRANCH - len(self.branches)
        self.branches.append(Group(ports, by_address=False))

    def holds(self, port: i64) -> bool:
        """Whether a port is a member of this group by choice."""
        at: i64 = 0
        while at < self.count:
            if self.ports[at] == port:
                return True
            at += 1
        return False


@mypyc_attr(allow_interpreted_subclasses=True)
class Routes:
    """Where a switch's groups come from: computed from the graph and the links that are down."""

    def groups(self, switch: int, down: list[int]) -> list[Group]:
        """The group of every prefix, in their order, with the links numbered in `down` out of use."""
        raise NotImplementedError
