"""Section `run.capture`: which ports write the frames that pass into a file for Wireshark.

An entry names ports: a switch or NIC (all its fabric ports), or DEVICE:PEER, the port of DEVICE towards
PEER; `/1` picks one of parallel links, and patterns stand for several. Each entry becomes a file
`captures/N.pcapng` of the run directory, N its place in the list (`emu.views.captures.pcapng`).

A filter keeps the frames that all of its keys agree to. A capture changes nothing of a run.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, NamedTuple

from actors.fabric.model import FABRIC, Role, Topology
from actors.kernel.event import NEVER_PS
from emu.base.records import Field
from emu.base.units import format_size
from emu.scenario.section import Refusal, Section
from emu.scenario.sections.overrides import Devices
from emu.scenario.yaml.values import PositiveSizeBytes, PositiveTimePs, Priority, TimePs, names

Kind = Literal["data", "read_request", "ack", "nak", "rnr", "cnp", "pfc", "credit"]
MOST_CAPTURES = 256
PORTS_ACCEPTED = 'a switch or NIC, DEVICE:PEER like "rtsw-0:nic-0-0", or a pattern of them'
LEAST_SNAP_BYTES = 64
MOST_SNAP_BYTES = 65536


class CaptureFilter(Section):
    """Which frames a capture keeps: those that every key given agrees to."""

    kinds: Annotated[tuple[Kind, ...], Field(max_length=8)] = ()
    """Kinds of frames; empty: all."""
    nics: Devices | None = None
    """Frames from or to these NICs, by name or pattern. PFC and credit updates are not of any."""
    queue_pairs: Annotated[tuple[Annotated[int, Field(ge=0, lt=1 << 24)], ...], Field(max_length=65536)] = ()
    """Frames for these destination queue pairs; empty: all."""
    priorities: Annotated[tuple[Priority, ...], Field(max_length=8)] = ()
    """Frames of these priorities; empty: all."""


class CaptureSection(Section):
    """The frames that pass some ports, as a file for Wireshark."""

    ports: Devices
    """Ports whose frames are captured: "nic-0-0" (all its ports), "rtsw-0:nic-0-0" (that towards nic-0-0), a
    pattern, or a list."""
    at_ps: TimePs = 0
    """Begin of the capture."""
    for_ps: PositiveTimePs | None = None
    """Length of the capture. Default: until the end of the run."""
    filter: CaptureFilter = CaptureFilter.defaults()
    """Selection among them."""
    snap_length_bytes: PositiveSizeBytes = MOST_SNAP_BYTES
    """Bytes kept of each packet, with as much payload as they hold."""
    most_packets: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    """Packets kept of each port; the file counts the others."""

    def check(self) -> Iterator[Refusal]:
        """Refuse a length that cuts headers, or that no packet has."""
        if not LEAST_SNAP_BYTES <= self.snap_length_bytes <= MOST_SNAP_BYTES:
            reason = f"{format_size(self.snap_length_bytes)} is out of range"
            accepted = f"{format_size(LEAST_SNAP_BYTES)} to {format_size(MOST_SNAP_BYTES)}"
            yield Refusal(("snap_length",), reason, accepted)

    @property
    def until_ps(self) -> int:
        """The end of its span."""
        return int(NEVER_PS) if self.for_ps is None else self.at_ps + self.for_ps


class CapturedPort(NamedTuple):
    """A port of a capture: node, number of the port, its peer's."""

    node: int
    port: int
    peer: int
    peer_port: int


def ports_named(topology: Topology, patterns: Sequence[str]) -> Iterator[CapturedPort]:
    """The fabric ports of switches and NICs that these names and patterns stand for, in order."""
    nodes = topology.nodes
    for node in nodes:
        if node.role not in (Role.SWITCH, Role.NIC):
            continue
        whole = names(patterns, node.name)
        for number, end in enumerate(topology.ports(node.number)):
            if end.kind != FABRIC:
                continue
            towards = f"{node.name}:{nodes[end.peer].name}"
            member = topology.links[end.link].name.partition("/")[2]
            if whole or names(patterns, towards) or (member and names(patterns, f"{towards}/{member}")):
                yield CapturedPort(node.number, number, end.peer, end.peer_port)


def nics_named(topology: Topology, patterns: Sequence[str]) -> list[int]:
    """The numbers of the NICs that these names and patterns stand for."""
    return [number for number in topology.nics if names(patterns, topology.nodes[number].name)]
