"""Traffic classes of data: what switches make of the DSCP that NICs write.

A NIC gives data a priority, and writes the DSCP of that priority (`nic.dscp`). Each switch turns the DSCP
into a queue and a priority group by its own maps (`switch.qos`). Data is lossless if the group is; the NIC
obeys the pauses of its own priority. Two things follow from that and are done here:

* `mark_data` lets ECN follow data to another queue, unless the scenario says which queues mark;
* `misplaced_data` lists the data that RoCE NICs send in a lossless priority and that a switch of their
  network puts into a lossy group, or into a lossless one whose pauses stop something else: a switch pauses
  the number of the group, a NIC obeys the pauses of its own priority, and another switch stops the queue that
  its map has for the paused priority.

Not modelled: NICs that classify by a map of their own what they receive.
"""

from typing import Final, NamedTuple

from actors.fabric.model import Role, Topology
from emu.base.foreseen import LOSSY, Foreseen
from emu.base.spelling import listed
from emu.base.units import counted
from emu.scenario.schema import Scenario
from emu.scenario.sections.switch import EcnSection, QosSection, mapped
from emu.scenario.yaml.document import Node, from_plain, opened

_PRIORITY: Final = int(Scenario.model_fields["transport"].default.data_priority)
_MARKED: Final = EcnSection.model_fields["priorities"].default


def mark_data(tree: Node, notes: list[str]) -> None:
    """Write `switch.ecn.priorities` where data is not in the queue that marks by default."""
    queue = _queue_of_data(tree)
    switch = tree.child("switch")
    ecn = None if switch is None else switch.child("ecn")
    if queue in _MARKED or ecn is None or not isinstance(ecn.value, dict):
        return
    if ecn.child("priorities") is None and ecn.child("profiles") is None:
        made = opened(tree, ("switch", "ecn"), ecn.place)
        assert made is not None and isinstance(made.value, dict), ecn.value
        made.value["priorities"] = from_plain([queue], ecn.place)
        made.keys["priorities"] = ecn.place
        notes.append(f"data is in queue {queue}, so switch.ecn.priorities: [{queue}]")


def _queue_of_data(tree: Node) -> int:
    """The egress queue of data by the maps of all switches; of data that they misplace, its priority."""
    transport = tree.child("transport")
    named = None if transport is None else transport.child("data_priority")
    priority = named.value if named is not None and isinstance(named.value, int) else _PRIORITY
    nic = tree.child("nic")
    dscps = None if nic is None else nic.child("dscp")
    written = None if dscps is None else dscps.child(str(priority))
    dscp = written.value if written is not None and isinstance(written.value, int) else 8 * priority
    traffic_class = mapped(tree, "dscp_to_tc", dscp, dscp >> 3)
    if mapped(tree, "tc_to_priority_group", traffic_class, traffic_class) != priority:
        return priority
    return mapped(tree, "tc_to_queue", traffic_class, traffic_class)


class Misplaced(NamedTuple):
    """Data that NICs send in a lossless priority, and that switches lose where they would pause it."""

    priority: int
    """That of the NICs."""
    dscp: int
    groups: tuple[int, ...]
    """The priority groups that these switches put it into."""
    switches: tuple[str, ...]
    """Where it is lost."""
    of: int
    """How many switches the networks of those NICs have."""
    lossless: tuple[int, ...]
    """DSCPs of this priority that are lossless on every switch, and would do."""
    lossy: bool
    """Whether the groups have no PFC; otherwise they pause a priority that does not stop this data."""
    unstopped: str = ""
    """Who goes on sending then, and why."""

    def sentence(self) -> str:
        """Where it is lost and why, in words."""
        every = len(self.switches) == self.of
        where = f"all {counted(self.of, 'switch')}" if every and self.of > 1 else listed(self.switches, 3)
        groups = "priority group " + listed(map(str, self.groups))
        leaves = f"data of priority {self.priority} leaves NICs with DSCP {self.dscp}"
        if self.lossy:
            return f"{leaves} and is lossy on {where} ({groups} has no PFC there)"
        return f"{leaves} and is in {groups} on {where}; {self.unstopped}"

    def way_out(self) -> str:
        """What would make it lossless."""
        if not self.lossless:
            return f"no DSCP is in the lossless priority group {self.priority} of every switch"
        dscp = self.lossless[0]
        return f"nic.dscp: {{{self.priority}: {dscp}}} would be lossless on every switch"

    def foreseen(self, scenario: Scenario) -> Foreseen:
        """The warning, and what shows that it came true."""
        known = bool(self.lossless) and not any(one.has("nic.dscp") for one in scenario.overrides)
        return Foreseen(
            f"switch.qos: {self.sentence()}",
            "frames are dropped where they would be paused",
            self.way_out(),
            LOSSY,
            self.switches,
            LOSSY_DROPS if self.lossy else OVERRUNS,
            (f"nic.dscp.{self.priority}", f"{self.lossless[0]}") if known else ("", ""),
        )


LOSSY_DROPS: Final = ("no_shared_room", "egress_limit", "aqm")
"""Reasons for which lossy frames alone are dropped."""
OVERRUNS: Final = ("headroom_overrun", "receive_overrun")
"""Reasons for which lossless frames are dropped that came in spite of a pause."""


def misplaced_data(scenario: Scenario, topology: Topology) -> list[Misplaced]:
    """What RoCE NICs send as lossless data and some switch of their network treats as lossy, or pauses by a
    priority that does not stop it.

    One entry for each priority and DSCP of either kind.
    """
    if scenario.credited or not scenario.switch.pfc.enabled:
        return []
    own = [job.data_priority for job in scenario.jobs]
    priorities = {scenario.transport.data_priority if one is None else one for one in own}
    found = []
    for priority in sorted(priorities & set(scenario.switch.pfc.priorities)):
        for dscp, networks in _senders(scenario, topology, priority).items():
            switches = [one for one in topology.switches if topology.nodes[one].network in networks]
            found += _misplaced_on(scenario, topology, switches, priority, dscp)
    return found


def _senders(scenario: Scenario, topology: Topology, priority: int) -> dict[int, set[str]]:
    """The DSCPs that RoCE NICs write for a priority, with the networks of those NICs.

    TCP and transports with paths recover from drops by design, and are in a lossy class on purpose.
    """
    found: dict[int, set[str]] = {}
    for number in topology.nics:
        view = scenario.at(topology, number)
        if not view.transport.recovers_drops:
            found.setdefault(view.nic.dscp[priority], set()).add(topology.nodes[number].network)
    return found


def _misplaced_on(
    scenario: Scenario, topology: Topology, switches: list[int], priority: int, dscp: int
) -> list[Misplaced]:
    """The data of one priority and DSCP, if some of these switches treat it as lossy or pause another."""
    lossy: dict[str, int] = {}
    unstopped: dict[str, int] = {}
    why = ""
    able = dict.fromkeys(range(64))
    for number in switches:
        section = scenario.at(topology, number).switch
        group = priority
        works = section.pfc.enabled and priority in section.pfc.priorities
        if scenario.classified:
            group, _ = _placed(section.qos, dscp)
            stopped = section.qos.pfc_priority_to_queue[priority]
            fits = (priority, stopped)
            able = {one: None for one in able if works and _placed(section.qos, one) == fits}
        elif not works:
            able = {}
        if not section.pfc.enabled or group not in section.pfc.priorities:
            lossy[topology.nodes[number].name] = group
        elif scenario.classified and (reason := _goes_on(scenario, topology, number, priority, dscp)):
            unstopped[topology.nodes[number].name] = group
            why = why or reason
    found = []
    for places, is_lossy in ((lossy, True), (unstopped, False)):
        if places:
            groups = tuple(sorted(set(places.values())))
            names, of = tuple(places), len(switches)
            found.append(Misplaced(priority, dscp, groups, names, of, tuple(able), is_lossy, why))
    return found


def _placed(qos: QosSection, dscp: int) -> tuple[int, int]:
    """The priority group and the queue of a DSCP."""
    traffic_class = qos.dscp_to_tc[dscp]
    return qos.tc_to_priority_group[traffic_class], qos.tc_to_queue[traffic_class]


def _goes_on(scenario: Scenario, topology: Topology, switch: int, priority: int, dscp: int) -> str:
    """Why some peer sends data of a priority and DSCP in spite of this switch's pauses, or the switch in
    spite of a NIC's; empty if none does."""
    own = scenario.at(topology, switch).switch.qos
    group, queue = _placed(own, dscp)
    stopped = own.pfc_priority_to_queue[priority]
    for end in topology.ports(switch):
        role = topology.nodes[end.peer].role
        if role is Role.NIC and group != priority:
            return f"its pauses stop priority {group}, and NICs go on sending priority {priority}"
        if role is Role.NIC and stopped != queue:
            return f"a NIC's pause of priority {priority} stops queue {stopped}, and it is in queue {queue}"
        if role is Role.SWITCH:
            peer = scenario.at(topology, end.peer).switch
            _, there = _placed(peer.qos, dscp)
            stops = peer.qos.pfc_priority_to_queue[group]
            if peer.pfc.enabled and there != stops:
                return f"a switch's pause of priority {group} stops queue {stops}, and it is in queue {there}"
    return ""


def class_foreseen(scenario: Scenario, topology: Topology) -> list[Foreseen]:
    """A warning for each kind of data that is lost though NICs send it as lossless."""
    return [one.foreseen(scenario) for one in misplaced_data(scenario, topology)]


def class_warnings(scenario: Scenario, topology: Topology) -> list[str]:
    """`class_foreseen` as lines."""
    return [one.line for one in class_foreseen(scenario, topology)]
