"""The nodes of a Ray cluster, and the share of workers that each gets.

Workers are numbered along the fabric: neighbours in number host neighbouring racks. So they go onto the nodes
in order, each node getting its share by its CPUs, and few links cross from node to node. Nodes are ordered by
address and name, which nothing in a result depends on. Where the workers of a lost node go:
`emu.cluster.workers.worker_group`.

*Pins* are the user's: `ctsw-*=10.0.0.7` wants every device of that name on that node, told by its address,
its name or its place in the order. A pinned device moves to the worker of that node that has least to do, if
its own is elsewhere. Every worker hears of the moves from the coordinator and works out the rest for itself.

A node is there if its raylet answers. Ray's own clients try for minutes; a gRPC server opens HTTP/2 with a
SETTINGS frame as soon as it hears the client's preface (RFC 9113, 3.4). A process that is stopped, or about
to end, may still take a connection; it answers nothing. Where the cluster uses TLS, that a connection is
taken has to do.
"""

import os
import socket
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from actors.fabric.model import Topology
from emu.base.errors import RuntimeFailure, UsageError

ANSWER_S: Final = 10.0
"""What is gone refuses a connection at once. A process that is there may stand still for seconds."""


class Node(NamedTuple):
    """One node of the cluster."""

    address: str
    name: str
    cpus: int
    ident: str
    """As Ray calls it."""
    port: int = 0
    """Where its raylet listens."""


class Pin(NamedTuple):
    """Devices by a pattern of their names, and the node that is to host them."""

    devices: str
    node: str


def pin_of(text: str) -> Pin:
    """A pin from `PATTERN=NODE`. Raises UsageError."""
    devices, equals, node = text.rpartition("=")
    if not equals or not devices or not node:
        raise UsageError(f"--pin {text[:60]}: is no pin; accepted: PATTERN=NODE, such as 'ctsw-*=10.0.0.7'")
    return Pin(devices, node)


class ClusterLost(RuntimeFailure):
    """The Ray cluster of a run is gone, or what it takes to go on with it: `what`. `hint` says what to do."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what, hint)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what}; {self.hint}" if self.hint else self.what


def head_address() -> str:
    """Where the head of the cluster listens, as HOST:PORT."""
    import ray  # noqa: PLC0415  Ray only where it is needed

    return str(ray.get_runtime_context().gcs_address)


def check_head() -> None:
    """Raises ClusterLost if the head of the cluster is gone.

    Ray's own calls would wait for it, and end this process after a minute.
    """
    from ray.util.client import ray as client  # noqa: PLC0415  Ray only where it is needed

    if client.is_connected():  # type: ignore[no-untyped-call]
        return  # which is connected through the head
    address = head_address()
    host, _, port = address.rpartition(":")
    try:
        there = speaks_grpc(host, int(port), ANSWER_S)
    except OSError:
        there = False
    if not there:
        raise ClusterLost(f"the head of the Ray cluster at {address} is gone")


def cluster_nodes(idle: bool = False) -> list[Node]:
    """The nodes that Ray believes to be alive and have CPUs, in order; with `idle` also those without.

    Raises ClusterLost if the head is gone.
    """
    import ray  # noqa: PLC0415  as above

    check_head()
    found = [
        Node(
            str(node["NodeManagerAddress"]),
            str(node.get("NodeName", "")),
            int(node["Resources"].get("CPU", 0)),
            str(node["NodeID"]),
            int(node["NodeManagerPort"]),
        )
        for node in ray.nodes()  # type: ignore[no-untyped-call]
        if node["Alive"]
    ]
    return sorted(node for node in found if node.cpus > 0 or idle)


def answering(node: Node) -> bool:
    """Whether a node's raylet answers: Ray itself notices the loss of a node after 10 to 30 s.

    From a machine that is no node of the cluster (`ray://`) raylets need not be reached: Ray is believed.
    """
    from ray.util.client import ray as client  # noqa: PLC0415  as above

    if client.is_connected():  # type: ignore[no-untyped-call]
        return True
    try:
        return speaks_grpc(node.address, node.port, ANSWER_S)
    except OSError:
        return False


def share_out(workers: int, cpus: Sequence[int]) -> list[int]:
    """The node of each worker, by place: in order, each where its middle falls among all CPUs."""
    total, node, end = sum(cpus), 0, cpus[0]
    worker_nodes: list[int] = []
    for worker in range(workers):
        while (2 * worker + 1) * total > 2 * end * workers and node + 1 < len(cpus):
            node += 1
            end += cpus[node]
        worker_nodes.append(node)
    return worker_nodes


def moves_for(
    topology: Topology,
    assignment: Sequence[int],
    loads: Sequence[int],
    worker_nodes: Sequence[int],
    nodes: Sequence[Node],
    pins: Sequence[Pin],
) -> tuple[tuple[int, int], ...]:
    """(device, worker) for every device that a pin moves. Raises UsageError for a pin that cannot be kept."""
    where = list(assignment)
    carried = [0] * len(worker_nodes)
    for device, worker in enumerate(where):
        carried[worker] += loads[device]
    moves: dict[int, int] = {}
    for pin in pins:
        wanted = _node_named(nodes, pin)
        devices = [node.number for node in topology.nodes[:-1] if fnmatchcase(node.name, pin.devices)]
        if not devices:
            raise UsageError(f"--pin {pin.devices}={pin.node}: no device is called that")
        there = [worker for worker, home in enumerate(worker_nodes) if home == wanted]
        if not there:
            raise UsageError(
                f"--pin {pin.devices}={pin.node}: no worker lives there; accepted: more --workers"
            )
        for device in devices:
            if worker_nodes[where[device]] == wanted:
                continue
            to = min(there, key=lambda worker: (carried[worker], worker))
            carried[where[device]] -= loads[device]
            carried[to] += loads[device]
            where[device] = moves[device] = to
    idle = [worker for worker in range(len(worker_nodes)) if worker not in where]
    if idle:
        raise UsageError(f"--pin leaves worker {idle[0]} without a device; accepted: fewer --workers")
    return tuple(sorted(moves.items()))


def _node_named(nodes: Sequence[Node], pin: Pin) -> int:
    for place, node in enumerate(nodes):
        if pin.node in (node.address, node.name, node.ident, str(place)):
            return place
    known = ", ".join(f"{place} ({node.name or node.address})" for place, node in enumerate(nodes[:8]))
    raise UsageError(f"--pin {pin.devices}={pin.node}: no such node; accepted: {known}")


HEADER_BYTES: Final = 9
SETTINGS: Final = 4
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, SETTINGS, 0, 0, 0, 0, 0])
"""What a client says first, with empty settings."""


def speaks_grpc(host: str, port: int, timeout_s: float) -> bool:
    """Whether what listens at an address is a gRPC server. Raises OSError if nothing does."""
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        return "RAY_USE_TLS" in os.environ or _opens_http2(connection)


def _opens_http2(connection: socket.socket) -> bool:
    connection.sendall(PREFACE)
    header = b""
    while len(header) < HEADER_BYTES:
        more = connection.recv(HEADER_BYTES - len(header))
        if not more:
            return False
        header += more
    return header[3] == SETTINGS
