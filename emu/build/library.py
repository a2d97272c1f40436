"""The collective library's settings, as the sections of a scenario give them."""

from __future__ import annotations

from actors.fabric.model import Topology
from actors.fabric.paths import Delays
from actors.ncclx.settings import Outstanding, Settings
from emu.build.buffer_sizes import is_deep
from emu.scenario.schema import Scenario
from emu.scenario.sections.ncclx import OutstandingSection


def settings_of(scenario: Scenario, topology: Topology, job: int) -> Settings:
    """What the library goes by in a job."""
    ncclx = scenario.ncclx
    own_class = ncclx.control == "own_class"
    return Settings(
        channels=ncclx.channels,
        turned_rings=ncclx.ring_order == "by_channel",
        sms_per_channel=ncclx.sms_per_channel,
        step_bytes=ncclx.buffsize_bytes // ncclx.steps,
        steps=ncclx.steps,
        chunk_steps=ncclx.chunk_steps,
        slice_steps=ncclx.slice_steps,
        p2p_chunk_bytes=ncclx.p2p_chunk_bytes or 0,
        qps_per_connection=ncclx.qps_per_connection,
        qp_policy=ncclx.qp_policy,
        segment_bytes=ncclx.dqplb.segment_bytes,
        segments_per_qp=ncclx.dqplb.most_outstanding,
        outstanding=_outstanding(ncclx.outstanding),
        zero_copy=ncclx.zero_copy,
        admitted=ncclx.admission == "receiver_driven",
        data_priority=data_priority(scenario, job),
        control_priority=scenario.transport.control_priority if own_class else None,
        watchdog_ps=ncclx.watchdog_ps or 0,
        flight_recorder=ncclx.flight_recorder,
        delays=_delays(scenario)._replace(elsewhere=_elsewhere(scenario, topology)),
    )


def _delays(scenario: Scenario) -> Delays:
    return Delays(
        proxy_ps=scenario.host.proxy_cost_ps,
        nic_ps=scenario.nic.latency_ps,
        switch_ps=scenario.switch.latency_ps,
        cuts_through=scenario.switch.forwarding == "cut_through",
    )


def _elsewhere(scenario: Scenario, topology: Topology) -> dict[int, Delays]:
    """The delays of modular switches, and of devices that have overrides, by number."""
    found = {}
    if scenario.overrides:
        views = {node.number: scenario.at(topology, node.number) for node in topology.nodes}
        found = {number: _delays(view) for number, view in views.items() if view is not scenario}
    for switch in topology.switches:
        if is_deep(scenario, topology, switch):
            own = scenario.at(topology, switch).switch
            crossing_ps = own.latency_ps + 2 * own.deep_buffer.credit_delay_ps
            usual = _delays(scenario.at(topology, switch))
            found[switch] = usual._replace(switch_ps=crossing_ps, cuts_through=False)
    return found


def data_priority(scenario: Scenario, job: int) -> int:
    """Of a job's data packets."""
    own = scenario.jobs[job].data_priority
    return scenario.transport.data_priority if own is None else own


def _outstanding(section: OutstandingSection) -> Outstanding:
    given = section.rack_bytes, section.zone_bytes, section.pod_bytes
    return Outstanding(*((section.connection_bytes if own is None else own) or 0 for own in given))
