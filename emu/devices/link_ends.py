"""What ports on the fabric have of the scenario: wires, flow control, errors, debouncing.

Thousands of ports are alike. What a port has follows from its device's kind, from who is at the far end and
from the rate of the link; each kind of end is worked out once (`LinkEnds`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from actors.fabric.model import Attachment, Node, Role, Topology
from actors.kernel.block import Outbox
from actors.kernel.mixing import Stream
from actors.port.credits import Credits
from actors.port.impairments import RATE_BITS, BitErrors
from actors.port.link import Wire
from actors.port.pfc import ALL_CLASSES, Pfc
from actors.port.port import ERRORS_PURPOSE, Port
from actors.wire.frame import PREAMBLE_GAP_BYTES
from emu.devices.buffer_sizes import ingress_latency_ps, is_deep, kept, pause_response_ps
from emu.scenario.schema import Scenario
from emu.scenario.yaml.values import names

OutboxFor = Callable[[int], Outbox | None]
_SWITCH: Final = Role.SWITCH
_KEPT: Final = "link ends"


def cuts_through(scenario: Scenario, topology: Topology, node: int) -> bool:
    """Whether a device acts on the head of a frame."""
    if topology.nodes[node].role is not _SWITCH or is_deep(scenario, topology, node):
        return False
    return scenario.at(topology, node).switch.forwarding == "cut_through"


def link_ends(scenario: Scenario, topology: Topology) -> LinkEnds:
    """The ends of all links of a scenario: one object for all devices."""
    shared = kept(scenario, topology)
    found: LinkEnds | None = shared.get(_KEPT)
    if found is None:
        found = shared[_KEPT] = LinkEnds(scenario, topology)
    return found


class LinkEnds:
    """The ends of the fabric's links, as the scenario has them."""

    def __init__(self, scenario: Scenario, topology: Topology) -> None:
        self._scenario = scenario
        self._topology = topology
        self._nodes: list[Node] = list(topology.nodes)
        self._alike: bool = not scenario.overrides
        """Whether every device and link has the scenario as it stands."""
        self.credited: bool = scenario.credited
        self._far: dict[tuple[str, int, int, int], tuple[int, int, bool]] = {}
        """By the far device's model, tier and overrides, and the rate."""
        self._own: dict[tuple[bool, int, int], tuple[int, int, int]] = {}
        """What a port promises by flow control: by whether it is a switch's, its overrides and the rate."""
        self._pauses: bool = scenario.switch.pfc.enabled and not scenario.credited
        self._errs: bool = any(one.link.bit_error_rate for one in scenario.every)
        self._checks: bool = any(one.switch.forwarding == "cut_through" for one in scenario.every)
        self._debounces_ps: tuple[int, int] = scenario.link.down_debounce_ps, scenario.link.up_debounce_ps

    def _at(self, node: int) -> Scenario:
        """The scenario as a device has it."""
        return self._scenario if self._alike else self._scenario.at(self._topology, node)

    def has_pfc(self, one: int, other: int) -> bool:
        """Whether the link between two devices has flow control by pauses."""
        if self._alike or self.credited:
            return self._pauses
        return self._at(one).switch.pfc.enabled and self._at(other).switch.pfc.enabled

    def wire(self, end: Attachment, outbox_for: OutboxFor) -> Wire:
        """The wire behind a fabric port."""
        peer, rate_bps = end.peer, end.rate_bps
        far = self.far(peer, rate_bps)
        return Wire(rate_bps, end.delay_ps, peer, end.peer_port, far[0], far[1], outbox_for(peer), far[2])

    def far(self, node: int, rate_bps: int) -> tuple[int, int, bool]:
        """What a device at the far end of a link of this rate takes until it acts on a frame, and until it
        obeys a pause, in ps, and whether it cuts through."""
        its = self._nodes[node]
        kind = its.model, its.tier, 0 if self._alike else id(self._at(node)), rate_bps
        found = self._far.get(kind)
        if found is None:
            scenario, topology = self._scenario, self._topology
            found = self._far[kind] = (
                ingress_latency_ps(scenario, topology, node),
                pause_response_ps(scenario, topology, node, rate_bps),
                cuts_through(scenario, topology, node),
            )
        return found

    def give(self, port: Port, number: int, end: Attachment) -> None:
        """Give a device's port its flow control, errors and debouncing."""
        if self.has_pfc(number, end.peer):
            port.pfc = self._pfc(port, number, end.peer)
        if self._errs:
            self._give_errors(port, end)
        debounces_ps = self._debounces_ps
        if not self._alike:
            section = self._scenario.link_at(self._topology, end.link)
            debounces_ps = section.down_debounce_ps, section.up_debounce_ps
        port.down_debounce_ps, port.up_debounce_ps = debounces_ps

    def credits(self, port: Port) -> Credits:
        """Give a port credits for flow control."""
        lanes = Credits(port, *self._scenario.credit_blocks(self._scenario.largest_frame_bytes))
        port.credits = lanes
        port.measuring = True
        return lanes

    def _pfc(self, port: Port, number: int, peer: int) -> Pfc:
        """The flow control of a port, whole or half."""
        own = self._at(number)
        pfc = own.switch.pfc
        made = Pfc(port, pfc.quanta)
        silent_to, ignores = pfc.silent_to, pfc.ignores
        if silent_to:
            made.silent = names(silent_to, self._nodes[peer].name)
        if ignores and names(ignores, self._nodes[peer].name):
            made.ignored = ALL_CLASSES
        rate_bps: int = port.rate_bps
        switch = self._nodes[number].role is _SWITCH
        kind = switch, 0 if self._alike else id(own), rate_bps
        held = self._own.get(kind)
        if held is None:
            lossless = pfc.priorities
            if switch:
                stops = own.switch.qos.pfc_priority_to_queue
                lossless = tuple(stops[priority] for priority in lossless)
            held = self._own[kind] = (
                sum(1 << priority for priority in lossless),
                self._scenario.largest_frame_bytes + PREAMBLE_GAP_BYTES,
                pause_response_ps(self._scenario, self._topology, number, rate_bps),
            )
        made.hold_after_link_up(*held)
        return made

    def _give_errors(self, port: Port, end: Attachment) -> None:
        """Let the link behind a port spoil frames, if it has bit errors."""
        if self._checks:
            port.check_fcs()
        rate = self._scenario.link_at(self._topology, end.link).bit_error_rate
        if rate:
            stream = Stream(self._scenario.seed, port.owner.number, ERRORS_PURPOSE + port.number)
            port.set_errors(BitErrors(int(rate * (1 << RATE_BITS)), stream))
