"""Where the workers of a lost node go."""

from emu.cluster.ray.nodes import Node
from emu.cluster.workers.worker_group import reassigned


def nodes(**cpus: int) -> list[Node]:
    return [Node("10.0.0.1", ident, count, ident) for ident, count in cpus.items()]


def test_a_worker_whose_node_is_there_goes_back_to_it() -> None:
    assert reassigned(["a", "b", "b"], [1], nodes(a=9, b=1)) == ["a", "b", "b"]


def test_workers_of_a_lost_node_go_where_most_cpus_are_left_for_each() -> None:
    # a has 2 CPUs and 1 worker, b 4 and 1, c 1 and 1: two more on b make it as full as two on a.
    worker_nodes = ["lost", "a", "lost", "b", "lost", "c", "lost"]
    assert reassigned(worker_nodes, [0, 2, 4, 6], nodes(a=2, b=4, c=1)) == ["b", "a", "b", "b", "a", "c", "b"]


def test_workers_that_go_on_are_not_moved() -> None:
    assert reassigned(["lost", "lost", "a"], [0], nodes(a=1)) == ["a", "lost", "a"]


def test_without_a_node_nobody_moves() -> None:
    assert reassigned(["lost", "a"], [0], []) == ["lost", "a"]
