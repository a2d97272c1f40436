"""What a reader of other tools' fabrics finds: nodes and links as `kind: graph` takes them.

Each has the line that gave rise to it, so that an error names it there.
"""

from typing import NamedTuple

from emu.scenario.readers.foreign import LeftOut


class ReadNode(NamedTuple):
    """A node as `graph` takes it, and the line that gave rise to it."""

    line: int
    name: str
    role: str
    host: str = ""


class ReadLink(NamedTuple):
    """A link as `graph` takes it, with rate and delay as written, and its line."""

    line: int
    a: str
    b: str
    rate: str
    delay: str


class EdgeList(NamedTuple):
    """A whole fabric."""

    nodes: list[ReadNode]
    links: list[ReadLink]
    nvlink_rate: str
    """NVLink of every GPU, with its delay; empty where the file says none, or not one of all."""
    nvlink_delay: str
    left_out: LeftOut


def server(nodes: list[ReadNode], line: int, number: int) -> str:
    """Add a server with one GPU and one NIC, whose name is returned."""
    nodes.append(ReadNode(line, f"host-{number}", "host"))
    nodes.append(ReadNode(line, f"gpu-{number}-0", "gpu", f"host-{number}"))
    nodes.append(ReadNode(line, f"nic-{number}-0", "nic", f"host-{number}"))
    return f"nic-{number}-0"
