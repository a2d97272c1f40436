"""Traffic classes of data: what switches make of the DSCP that NICs write.

A NIC gives data a priority, and writes the DSCP of that priority (`nic.dscp`). Each switch turns the DSCP
into a queue and a priority group by its own maps (`switch.qos`). Data is lossless if the group is; the NIC
obeys the pauses of its own priority. Two things follow from that and are done here:

* `mark_data` lets ECN follow data to another queue, unless the scenario says which queues mark;
* `lossy_data` lists the data that RoCE NICs send in a lossless priority and that a switch of their network
  puts into a lossy group.

Not modelled: NICs that classify by a map of their own what they receive.
"""

from typing import Final, NamedTuple

from actors.fabric.model import Topology
from emu.base.spelling import listed
from emu.base.units import counted
from emu.scenario.schema import Scenario
from emu.scenario.sections.switch import EcnSection, mapped
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


class LossyData(NamedTuple):
    """Data that NICs send in a lossless priority and switches treat as lossy."""

    priority: int
    """That of the NICs."""
    dscp: int
    groups: tuple[int, ...]
    """The priority groups that lossy switches put it into."""
    switches: tuple[str, ...]
    """Where it is lossy."""
    of: int
    """How many switches the networks of those NICs have."""
    lossless: tuple[int, ...]
    """DSCPs of this priority that are lossless on every switch, and would do."""

    def sentence(self) -> str:
        """Where it is lossy and why, in words."""
        every = len(self.switches) == self.of
        where = f"all {counted(self.of, 'switch')}" if every and self.of > 1 else listed(self.switches, 3)
        groups = "priority group " + listed(map(str, self.groups))
        return (
            f"data of priority {self.priority} leaves NICs with DSCP {self.dscp} and is lossy on {where}"
            f" ({groups} has no PFC there)"
        )

    def way_out(self) -> str:
        """What would make it lossless."""
        if not self.lossless:
            return f"no DSCP is in the lossless priority group {self.priority} of every switch"
        dscp = self.lossless[0]
        return f"nic.dscp: {{{self.priority}: {dscp}}} would be lossless on every switch"


def lossy_data(scenario: Scenario, topology: Topology) -> list[LossyData]:
    """What RoCE NICs send as lossless data and some switch of their network treats as lossy.

    One entry for each priority and DSCP.
    """
    if scenario.credited or not scenario.switch.pfc.enabled:
        return []
    own = [job.data_priority for job in scenario.jobs]
    priorities = {scenario.transport.data_priority if one is None else one for one in own}
    found = []
    for priority in sorted(priorities & set(scenario.switch.pfc.priorities)):
        for dscp, networks in _senders(scenario, topology, priority).items():
            switches = [one for one in topology.switches if topology.nodes[one].network in networks]
            found += _lossy_on(scenario, topology, switches, priority, dscp)
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


def _lossy_on(
    scenario: Scenario, topology: Topology, switches: list[int], priority: int, dscp: int
) -> list[LossyData]:
    """The data of one priority and DSCP, if some of these switches treat it as lossy."""
    lossy: dict[str, int] = {}
    able = dict.fromkeys(range(64))
    for number in switches:
        section = scenario.at(topology, number).switch
        group = priority
        works = section.pfc.enabled and priority in section.pfc.priorities
        if scenario.classified:
            groups = [section.qos.tc_to_priority_group[one] for one in section.qos.dscp_to_tc]
            group = groups[dscp]
            able = {one: None for one in able if works and groups[one] == priority}
        elif not works:
            able = {}
        if not section.pfc.enabled or group not in section.pfc.priorities:
            lossy[topology.nodes[number].name] = group
    if not lossy:
        return []
    groups_there = tuple(sorted(set(lossy.values())))
    return [LossyData(priority, dscp, groups_there, tuple(lossy), len(switches), tuple(able))]


def class_warnings(scenario: Scenario, topology: Topology) -> list[str]:
    """A line for each kind of data that is lossy though NICs send it as lossless."""
    return [
        f"switch.qos: {one.sentence()}: frames are dropped where they would be paused; {one.way_out()}"
        for one in lossy_data(scenario, topology)
    ]
