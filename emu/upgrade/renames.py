"""Names of the last release that have another one today: the one table that refusals and `emu upgrade` read.

A key, a series or a module that is renamed gets its row here in the same commit. The old spelling is then
refused with the new one named, `emu upgrade` rewrites it, and what an earlier version recorded is read.

Places in a scenario are as the release spelled them, with `[]` for every item of a list:
`jobs[].workload`, `expect[].where`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

RELEASE: Final = "0.1.0"
"""The release whose names are on the left."""
EARLIER_KIND: Final = 1
"""Of its digests: run directories of that release do not say which kind they have."""


class Key(NamedTuple):
    """A key of a section that is called otherwise."""

    at: str
    """Which section; "" for the top."""
    old: str
    new: str


class Value(NamedTuple):
    """A text under a key that is written otherwise; a new text of "" takes the key away with it."""

    at: str
    """Which section."""
    key: str
    old: str
    new: str


class Merged(NamedTuple):
    """Two keys of a section whose values are one value now."""

    at: str
    """Which section."""
    key: str
    """The key that stays."""
    old: str
    beside: str
    """The key that goes."""
    value: str
    """What it says; "" where it is not there."""
    new: str
    """What the key that stays says now."""

    def advice(self) -> str:
        """How a refusal names the new spelling."""
        beside = f", {self.beside}: {self.value}" if self.value else ""
        return advice(f"{self.key}: {self.old}{beside}", f"{self.key}: {self.new}")


KEYS: Final[tuple[Key, ...]] = (
    Key("expect[].where", "job", "job_name"),
    Key("nic.arbiter", "policy", "kind"),
    Key("routing", "policy", "kind"),
    Key("switch.scheduling", "policy", "kind"),
    Key("transport.congestion_control", "algorithm", "kind"),
    Key("transport.recovery", "scheme", "kind"),
)

VALUES: Final[tuple[Value, ...]] = ()

MERGED: Final[tuple[Merged, ...]] = (
    Merged("jobs[].workload", "kind", "flows", "pattern", "permutation", "permutation"),
    Merged("jobs[].workload", "kind", "flows", "pattern", "incast", "incast"),
    Merged("jobs[].workload", "kind", "flows", "pattern", "poisson", "poisson"),
    Merged("jobs[].workload", "kind", "flows", "pattern", "list", "flows"),
    Merged("jobs[].workload", "kind", "flows", "pattern", "csv", "flow_table"),
    Merged("jobs[].workload", "kind", "trace", "form", "", "simai_trace"),
    Merged("jobs[].workload", "kind", "trace", "form", "simai", "simai_trace"),
    Merged("jobs[].workload", "kind", "trace", "form", "chakra", "chakra_trace"),
)

MOVED: Final[dict[str, str]] = {
    "nic.receive.nics": "nic: {receive: {enabled: true}}",
    "host.pcie.nics": "host: {pcie: {enabled: true}}",
    "switch.qos.exceptions": "switch: {qos: ...}",
    "switch.buffer.pools": "switch: {buffer: {pool: ...}}",
    "switch.buffer.profiles[].switches": "switch: {buffer: {profiles: ...}}",
    "switch.ecn.profiles[].switches": "switch: {ecn: {profiles: ...}}",
    "switch.pfc.off": "switch: {pfc: {enabled: false}}",
    "switch.pfc.one_way": "switch: {pfc: {ignores: ...}}",
    "switch.deep_buffer.switches": "switch: {deep_buffer: {where: all}}",
    "link.bit_errors": "link: {bit_error_rate: ...}",
}
"""Lists of devices that are entries of `overrides` now (`emu.upgrade.scenarios`)."""

SERIES: Final[dict[str, str]] = {
    "emu_nic_receive_bytes": "emu_nic_receive_buffer_bytes",
    "emu_nic_receive_peak_bytes": "emu_nic_receive_buffer_peak_bytes",
    "emu_collective_algorithm_bandwidth_bytes": "emu_collective_algorithm_bandwidth_bytes_per_second",
    "emu_collective_bus_bandwidth_bytes": "emu_collective_bus_bandwidth_bytes_per_second",
}
"""By their names in Prometheus, dashboards and `expect`."""

LABELS: Final[dict[str, dict[str, str]]] = {"emu_job_": {"exported_job": "job_name"}}
"""Beginning of the name of a series -> its labels. A scrape, which has a `job` too, said `exported_job`."""

COUNTERS: Final[dict[str, str]] = {
    "port_sent_frames": "port_transmit_frames",
    "port_sent_bytes": "port_transmit_bytes",
    "port_sent_data_bytes": "port_transmit_payload_bytes",
    "port_received_frames": "port_receive_frames",
    "port_received_bytes": "port_receive_bytes",
    "port_downs": "port_link_downed",
    "pfc_sent_frames": "pfc_transmit_xoff_frames",
    "pfc_resumed_frames": "pfc_transmit_xon_frames",
    "pfc_received_frames": "pfc_receive_xoff_frames",
    "pfc_received_resumes": "pfc_receive_xon_frames",
    "pfc_stops": "pfc_transmit_transitions",
    "pfc_pauses": "pfc_receive_transitions",
    "pfc_stopped_ps": "pfc_transmit_paused_ps",
    "credit_updates": "credit_transmit_updates",
    "port_xmit_wait_ps": "port_transmit_wait_ps",
    "pfc_storms": "pfc_watchdog_storms",
    "nic_receive_bytes": "nic_receive_buffer_bytes",
    "nic_receive_peak_bytes": "nic_receive_buffer_peak_bytes",
    "nvlink_sent_bytes": "nvlink_transmit_bytes",
    "nvlink_sent_transfers": "nvlink_transfers",
    "nic_failovers": "nic_bond_failovers",
    "nic_acks_sent": "nic_transmit_acks",
    "nic_naks_sent": "nic_transmit_naks",
}
"""As devices and the samples of a run directory have them."""

FIELDS: Final[dict[str, str]] = {
    "fabric.pause_frames": "fabric.pfc_transmit_xoff_frames",
    "fabric.resume_frames": "fabric.pfc_transmit_xon_frames",
    "fabric.pause_ps": "fabric.pfc_paused_ps",
    "fabric.ecn_marks": "fabric.queue_marked_frames",
    "fabric.retransmissions": "fabric.nic_retransmitted_frames",
    "fabric.out_of_sequence": "fabric.nic_out_of_sequence",
    "fabric.ack_timeouts": "fabric.nic_local_ack_timeout_err",
    "fabric.rnr_naks": "fabric.nic_rnr_nak_retry_err",
    "fabric.peak_buffer_bytes": "fabric.buffer_peak_bytes",
    "fabric.peak_buffer_switch": "fabric.buffer_peak_switch",
}
"""Of the summary, as `expect` and Python name them; all of them are in its section `fabric`."""

MODULES: Final[dict[str, str]] = dict(
    line.split()
    for line in """
actors.bit_errors actors.port.impairments
actors.control.engineering actors.control.traffic_engineering
actors.credits actors.port.credits
actors.host.flows actors.host.perftest
actors.host.program actors.host.host
actors.host.tables actors.host.host
actors.host_link actors.port.link
actors.link actors.port.link
actors.ncclx.algorithms.table actors.ncclx.schedule
actors.ncclx.assembly emu.build.hosts
actors.ncclx.channel actors.ncclx.transport.channel
actors.ncclx.ends actors.ncclx.transport.clear_to_send
actors.ncclx.flight actors.fabric.paths
actors.ncclx.graph_channel actors.ncclx.transport.channel
actors.ncclx.listing emu.build.job_plans
actors.ncclx.orders actors.ncclx.gpu_orders
actors.ncclx.pairs actors.ncclx.transport.wiring
actors.ncclx.plan emu.build.plan
actors.ncclx.posting actors.ncclx.transport.posting
actors.ncclx.program actors.ncclx.rank_program
actors.ncclx.program_payload actors.ncclx.payload
actors.ncclx.recorder actors.ncclx.flight_records
actors.ncclx.ring actors.ncclx.algorithms.ring
actors.ncclx.ring_channel actors.ncclx.algorithms.ring
actors.ncclx.ring_order actors.ncclx.graph
actors.ncclx.share actors.ncclx.sm_share
actors.ncclx.verifying actors.ncclx.payload
actors.ncclx.waits actors.ncclx.transport.clear_to_send
actors.ncclx.wiring actors.ncclx.transport.wiring
actors.nic.arbiters emu.build.nics
actors.nic.assembly emu.build.nics
actors.nic.congestion actors.nic.congestion.control
actors.nic.connection actors.nic.queue_pair.packets
actors.nic.controls emu.build.nics
actors.nic.counting actors.nic.nic
actors.nic.credit_nic actors.nic.nic
actors.nic.dcqcn actors.nic.congestion.dcqcn
actors.nic.faults actors.nic.nic
actors.nic.fetch actors.nic.memory_path
actors.nic.go_back_0 actors.nic.loss_recovery
actors.nic.go_back_n actors.nic.loss_recovery
actors.nic.held actors.nic.queue_pair.queue_pair
actors.nic.hpcc actors.nic.congestion.hpcc
actors.nic.hybrid actors.nic.congestion.hybrid
actors.nic.notification actors.nic.queue_pair.requester
actors.nic.numbers actors.nic.queue_pair.numbers
actors.nic.owed actors.nic.queue_pair.owed
actors.nic.port actors.nic.egress_port
actors.nic.queue_pair actors.nic.queue_pair.queue_pair
actors.nic.readiness actors.nic.queue_pair.responder
actors.nic.reading actors.nic.queue_pair.responder
actors.nic.receive actors.nic.memory_path
actors.nic.recovery actors.nic.loss_recovery
actors.nic.recovery_time emu.build.nics
actors.nic.responding actors.nic.queue_pair.responder
actors.nic.schemes emu.build.nics
actors.nic.selective_repeat actors.nic.loss_recovery
actors.nic.states actors.nic.queue_pair.queue_pair
actors.nic.swift actors.nic.congestion.swift
actors.nic.timeout actors.nic.queue_pair.requester
actors.nic.work_request actors.nic.queue_pair.packets
actors.outbox actors.port.link
actors.pfc actors.port.pfc
actors.port_counting actors.port.port
actors.port_faults actors.port.port
actors.route_change actors.port.link
actors.runtime.aiming emu.runtime.live.changes
actors.runtime.build emu.build.devices
actors.runtime.changes emu.runtime.live.changes
actors.runtime.control_socket emu.runtime.live.control_socket
actors.runtime.coordinator emu.runtime.workers.coordinator
actors.runtime.crew emu.runtime.workers.idle_workers
actors.runtime.deep_buffers emu.build.buffer_sizes
actors.runtime.edition emu.runtime.workers.worker
actors.runtime.ensemble emu.runtime.workers.worker_group
actors.runtime.exchange emu.runtime.workers.exchange
actors.runtime.exporter emu.runtime.pages.metrics_page
actors.runtime.fabric emu.build.switches
actors.runtime.far_pages emu.runtime.pages.metrics_page
actors.runtime.fork emu.resume
actors.runtime.graph_reach emu.build.nics
actors.runtime.graph_routes emu.build.switches
actors.runtime.grpc_probe emu.runtime.cluster.nodes
actors.runtime.guest emu.runtime.workers.worker
actors.runtime.hello emu.runtime.workers.peers
actors.runtime.homes emu.runtime.workers.worker_group
actors.runtime.interruption emu.runtime.cluster.session
actors.runtime.judgement emu.runtime.recovery.rules
actors.runtime.keeper emu.runtime.recovery.snapshot_coordinator
actors.runtime.launch emu.runtime.run
actors.runtime.leading emu.runtime.live.changes
actors.runtime.local emu.runtime.in_process
actors.runtime.lookahead emu.build.lookahead
actors.runtime.nics emu.build.nics
actors.runtime.nodes emu.runtime.cluster.nodes
actors.runtime.outcome emu.runtime.outcome
actors.runtime.own_classes emu.build.checks
actors.runtime.pace emu.runtime.sync.pacing
actors.runtime.pages emu.runtime.pages.server
actors.runtime.parcels emu.runtime.sync.rounds
actors.runtime.participant emu.runtime.sync.logical_process
actors.runtime.partition emu.runtime.sync.partition
actors.runtime.peers emu.runtime.workers.peers
actors.runtime.placement emu.runtime.sync.placement
actors.runtime.plain_records emu.runtime.workers.worker
actors.runtime.plan emu.runtime.blueprint
actors.runtime.quiet_collector emu.runtime.sync.garbage
actors.runtime.ray_session emu.runtime.cluster.session
actors.runtime.reach emu.build.checks
actors.runtime.recovery emu.runtime.recovery.rules
actors.runtime.report emu.runtime.outcome
actors.runtime.result emu.runtime.result
actors.runtime.round_trip emu.build.round_trip
actors.runtime.rounds emu.runtime.sync.rounds
actors.runtime.sampling emu.runtime.sampling
actors.runtime.saving emu.runtime.recovery.saving
actors.runtime.scrape emu.runtime.pages.scrape
actors.runtime.seal emu.runtime.workers.exchange
actors.runtime.short_paths emu.runtime.cluster.short_paths
actors.runtime.showing emu.runtime.device_inspection
actors.runtime.simulation emu.runtime.workers.simulation
actors.runtime.sizing emu.build.buffer_sizes
actors.runtime.snapshot emu.runtime.recovery.snapshots
actors.runtime.snapshot_files emu.runtime.recovery.snapshots
actors.runtime.state_reading emu.runtime.pages.state_series
actors.runtime.steering emu.runtime.steering
actors.runtime.stepping emu.runtime.live.stepping
actors.runtime.sync emu.runtime.sync.sync_points
actors.runtime.vault emu.runtime.recovery.replica_store
actors.runtime.waiting emu.runtime.waiting
actors.runtime.window emu.runtime.sync.window
actors.runtime.worker emu.runtime.workers.worker
actors.runtime.workers_file emu.runtime.result
actors.straying actors.port.impairments
actors.switch.classes actors.switch.switch
actors.switch.engineering actors.switch.routing.engineered
actors.switch.faults actors.switch.switch
actors.switch.flowlet actors.switch.routing.flowlet
actors.switch.groups actors.switch.routing.policy
actors.switch.hash_functions actors.switch.routing.hashing
actors.switch.hashing actors.switch.routing.hashing
actors.switch.pinning actors.switch.routing.policy
actors.switch.policies emu.build.switches
actors.switch.policy actors.switch.routing.policy
actors.switch.scheduling actors.port.scheduling
actors.switch.spray actors.switch.routing.spray
actors.switch.voq actors.switch.deep
actors.tap actors.port.tap
emu._finder actors.compiled.finder
emu.compiling actors.compiled.build
emu.diagnosing emu.run_diagnosis
emu.diagnosis.cabling emu.diagnosis.bad_links
emu.diagnosis.chain emu.diagnosis.wait_chain
emu.diagnosis.drift emu.diagnosis.configuration
emu.diagnosis.moves emu.diagnosis.view
emu.diagnosis.pace emu.diagnosis.impact
emu.diagnosis.ranks emu.diagnosis.wait_chain
emu.diagnosis.reference emu.diagnosis.impact
emu.diagnosis.verdict emu.diagnosis.causes
emu.faults.effects emu.scenario.faults.base
emu.faults.events emu.scenario.faults.events
emu.faults.targets emu.scenario.faults.targets
emu.faults.timeline emu.scenario.faults.events
emu.foreign emu.scenario.readers.foreign
emu.going_on emu.resume
emu.hot_modules actors.compiled.hot_modules
emu.kernel.device actors.kernel.device
emu.kernel.heap_queue actors.kernel.heap_queue
emu.kernel.kernel actors.kernel.kernel
emu.kernel.mixing actors.kernel.mixing
emu.kernel.queue actors.kernel.queue
emu.kernel.state actors.kernel.state
emu.kernel.tally actors.kernel.device
emu.measure.bench_cases emu.cli.bench.cases
emu.measure.blame emu.measure.summary.blame
emu.measure.calls emu.measure.summary.blame
emu.measure.dashboard emu.measure.prometheus.dashboard
emu.measure.exposition emu.measure.prometheus.exposition
emu.measure.fabric emu.measure.summary.fabric
emu.measure.flight_recorder emu.measure.run_directory.flight_recorder
emu.measure.gpu_metrics emu.measure.metric_names
emu.measure.group_labels emu.measure.summary.series
emu.measure.jobs emu.measure.summary.jobs
emu.measure.journal emu.cli.commands.replay
emu.measure.junit emu.measure.summary_report
emu.measure.lines emu.measure.prometheus.lines
emu.measure.metric emu.measure.metric_names
emu.measure.nic_metrics emu.measure.metric_names
emu.measure.openmetrics emu.measure.prometheus.exposition
emu.measure.parting emu.measure.run_directory.comparison
emu.measure.perf_table emu.measure.nccl_table
emu.measure.report emu.measure.summary_report
emu.measure.results emu.measure.summary.results
emu.measure.run_directory emu.measure.run_directory.run_directory
emu.measure.samples emu.measure.run_directory.samples
emu.measure.series emu.measure.summary.series
emu.measure.series_verdict emu.measure.summary.expectations
emu.measure.shown emu.measure.device_state
emu.measure.slowdown_table emu.cli.commands.slowdown
emu.measure.state_metrics emu.measure.metric_names
emu.measure.state_series emu.measure.summary.series
emu.measure.summary emu.measure.summary.summary
emu.measure.summary_diagnosis emu.measure.summary.summary
emu.measure.summary_init emu.measure.summary.summary
emu.measure.summary_training emu.measure.summary.summary
emu.measure.sweep_table emu.cli.commands.sweep
emu.measure.tables emu.measure.run_directory.run_directory
emu.measure.training emu.measure.summary.steps
emu.measure.unfired emu.measure.summary.unfired
emu.measure.unfired_faults emu.measure.summary.unfired
emu.scenario.algorithm emu.scenario.sections.graph
emu.scenario.arbiter emu.scenario.sections.nic
emu.scenario.buffer emu.scenario.sections.switch
emu.scenario.changes emu.scenario.live_changes
emu.scenario.composing emu.workload.composing
emu.scenario.config_db emu.scenario.readers.config_db
emu.scenario.congestion emu.scenario.sections.nic
emu.scenario.core_schema emu.scenario.yaml.document
emu.scenario.document emu.scenario.yaml.document
emu.scenario.dump emu.scenario.dump
emu.scenario.expect_series emu.scenario.expect
emu.scenario.expect_span emu.scenario.spans
emu.scenario.fault_base emu.scenario.faults.base
emu.scenario.fault_devices emu.scenario.faults.device_faults
emu.scenario.fault_draws emu.scenario.faults.draws
emu.scenario.fault_drift emu.scenario.faults.drift
emu.scenario.fault_links emu.scenario.faults.link_faults
emu.scenario.fault_plan emu.scenario.fault_schedule
emu.scenario.faults emu.scenario.faults.kinds
emu.scenario.flow_files emu.scenario.readers.workload_files
emu.scenario.flows emu.scenario.sections.flows
emu.scenario.graph emu.scenario.sections.graph
emu.scenario.host emu.scenario.sections.host
emu.scenario.jobs emu.scenario.sections.jobs
emu.scenario.link emu.scenario.sections.link
emu.scenario.named emu.scenario.resolve
emu.scenario.nccl_names emu.scenario.sections.nccl_names
emu.scenario.ncclx emu.scenario.sections.ncclx
emu.scenario.nic emu.scenario.sections.nic
emu.scenario.operations actors.ncclx.operations
emu.scenario.overrides emu.scenario.set_options
emu.scenario.problems emu.scenario.yaml.problems
emu.scenario.program emu.scenario.sections.program
emu.scenario.qos emu.scenario.sections.switch
emu.scenario.routing emu.scenario.sections.routing
emu.scenario.run emu.scenario.environment
emu.scenario.scripts emu.scenario.resolve
emu.scenario.section emu.scenario.section
emu.scenario.shape emu.scenario.yaml.problems
emu.scenario.sonic emu.scenario.readers.config_db
emu.scenario.source emu.scenario.load
emu.scenario.spelling emu.spelling
emu.scenario.sweep emu.scenario.set_options
emu.scenario.switch emu.scenario.sections.switch
emu.scenario.topology emu.scenario.sections.topology
emu.scenario.topology_base emu.scenario.sections.topology
emu.scenario.topology_clos emu.scenario.sections.topology
emu.scenario.topology_files emu.scenario.readers.topology_files
emu.scenario.topology_plain emu.scenario.sections.topology
emu.scenario.trace emu.scenario.sections.trace
emu.scenario.trace_files emu.scenario.readers.workload_files
emu.scenario.training emu.scenario.sections.training
emu.scenario.tree emu.scenario.yaml.document
emu.scenario.tuner actors.ncclx.tuner
emu.scenario.values emu.scenario.yaml.values
emu.scenario.verdict emu.measure.summary.verdict
emu.topology.ai_zone emu.topology.generators.ai_zone
emu.topology.assembly emu.topology.generators.builder
emu.topology.cabling emu.topology.fabrics
emu.topology.clos emu.topology.generators.builder
emu.topology.dcn_plus emu.topology.generators.dcn_plus
emu.topology.drawing emu.topology.svg
emu.topology.edge_list emu.scenario.readers.topology_files
emu.topology.fat_tree emu.topology.generators.textbook
emu.topology.generators emu.topology.fabrics
emu.topology.graph emu.topology.generators.custom
emu.topology.graph_check emu.topology.generators.custom
emu.topology.hpn emu.topology.generators.hpn
emu.topology.indexing actors.fabric.model
emu.topology.llama3 emu.topology.generators.llama3
emu.topology.load emu.runtime.sync.placement
emu.topology.longest emu.build.round_trip
emu.topology.megascale emu.topology.generators.megascale
emu.topology.model actors.fabric.model
emu.topology.paths actors.fabric.paths
emu.topology.rail_only emu.topology.generators.textbook
emu.topology.render emu.topology.outline
emu.topology.routing actors.fabric.routes
emu.topology.star emu.topology.generators.textbook
emu.vectors actors.kernel.vectors
emu.wire.batch actors.wire.batch
emu.wire.codec actors.wire.codec
emu.wire.event actors.kernel.event
emu.wire.fault actors.wire.fault
emu.wire.frame actors.wire.frame
emu.wire.message actors.wire.message
emu.wire.order actors.gpu.memory
emu.wire.telemetry actors.wire.telemetry
emu.workload.allocation emu.workload.ranks
emu.workload.background emu.workload.flows
emu.workload.chakra emu.scenario.readers.chakra
emu.workload.chakra_paring emu.scenario.readers.chakra
emu.workload.chakra_plan emu.scenario.readers.chakra_plan
emu.workload.flow_table emu.scenario.readers.workload_files
emu.workload.gpu_script actors.ncclx.script
emu.workload.operations actors.ncclx.operations
emu.workload.pipeline emu.workload.training
emu.workload.protobuf emu.scenario.readers.chakra
emu.workload.simai emu.scenario.readers.simai
""".strip().splitlines()
)
"""Where a module went as a whole. What has gone to another module since is found by its name."""


def new_key(at: str, old: str) -> str:
    """What a key of a section is called today; "" if it has no row."""
    return next((row.new for row in KEYS if row.at == at and row.old == old), "")


def merged(at: str, section: Mapping[str, object]) -> Merged | None:
    """The row of a section's keys and values; None if they are as they are today."""
    said = [row for row in MERGED if row.at == at and section.get(row.key) == row.old]
    return next((row for row in said if section.get(row.beside, "") == row.value), None)


def moved_key(path: str) -> str:
    """How an override says what a list of devices said; "" if it was none."""
    return f"overrides: [{{devices: ..., {MOVED[path]}}}]" if path in MOVED else ""


def renamed_fields(path: str) -> Iterator[tuple[str, str]]:
    """The step of a path of the summary that is called otherwise, and how."""
    full = path if path.startswith("fabric.") else f"fabric.{path}"
    for old, new in FIELDS.items():
        if full == old or full.startswith((f"{old}.", f"{old}[")):
            yield old.rpartition(".")[2], new.rpartition(".")[2]


def place(location: Iterable[str | int]) -> str:
    """A location in a scenario as the table has it: `jobs[].workload`."""
    text = ""
    for step in location:
        text += "[]" if isinstance(step, int) else f".{step}" if text else step
    return text


def advice(old: str, new: str) -> str:
    """How a refusal names the new spelling."""
    return f"{old!r} of emu {RELEASE} is {new!r} now; `emu upgrade FILE` rewrites it"
