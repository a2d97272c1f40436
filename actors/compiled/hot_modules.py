"""Which modules make up the packet path, in the order of the rooms.

mypyc compiles exactly these, together, as one group, so that a call from one to another is a direct C call.
A module belongs here when it runs once per event, once per window in the thread that simulates, or once for
each of the numbers of a scrape; what runs once per run stays out.
A module in this list

- is plain typed Python: no async, no pattern of types that only exists at run time, native integers where
  they pay, no import of anything third-party but `mypy_extensions` (and `librt`);
- gives the same answers interpreted, which is how it runs wherever there is no C compiler.

This list is data, and is read at import time: keep it free of logic.
"""

from typing import Final

HOT_MODULES: Final[tuple[str, ...]] = (
    "actors.kernel.units",
    "actors.kernel.event",
    "actors.wire.fault",
    "actors.wire.frame",
    "actors.wire.telemetry",
    "actors.wire.batch",
    "actors.wire.codec",
    "actors.kernel.mixing",
    "actors.kernel.queue",
    "actors.kernel.event_log",
    "actors.kernel.device",
    "actors.kernel.block",
    "actors.kernel.kernel",
    "actors.kernel.state",
    "emu.measure.prometheus.lines",
    "actors.port.impairments",
    "actors.port.scheduling",
    "actors.port.link",
    "actors.port.tap",
    "actors.port.pfc",
    "actors.port.credits",
    "actors.port.port",
    "actors.switch.buffer",
    "actors.switch.ecn",
    "actors.switch.egress",
    "actors.switch.watchdog",
    "actors.switch.routing.hashing",
    "actors.switch.routing.policy",
    "actors.switch.routing.spray",
    "actors.switch.routing.flowlet",
    "actors.switch.routing.engineered",
    "actors.switch.switch",
    "actors.switch.deep",
    "actors.nic.queue_pair.numbers",
    "actors.nic.queue_pair.owed",
    "actors.nic.queue_pair.packets",
    "actors.nic.congestion.control",
    "actors.nic.congestion.dcqcn",
    "actors.nic.congestion.swift",
    "actors.nic.congestion.hybrid",
    "actors.nic.congestion.hpcc",
    "actors.nic.congestion.tcp_window",
    "actors.nic.congestion.cubic",
    "actors.nic.queue_pair.queue_pair",
    "actors.nic.queue_pair.endpoint",
    "actors.nic.loss_recovery",
    "actors.nic.tcp",
    "actors.nic.memory_path",
    "actors.nic.egress_port",
    "actors.nic.arbiter",
    "actors.nic.queue_pair.requester",
    "actors.nic.queue_pair.responder",
    "actors.nic.bond",
    "actors.nic.nic",
    "actors.nic.flow_trace",
    "actors.gpu.nvlink",
    "actors.gpu.gpu",
    "actors.host.host",
    "actors.host.perftest",
    "actors.ncclx.protocols",
    "actors.ncclx.algorithms.ring",
    "actors.ncclx.transport.posting",
    "actors.ncclx.flight_records",
    "actors.ncclx.transport.clear_to_send",
    "actors.ncclx.transport.channel",
    "actors.ncclx.sm_share",
    "actors.ncclx.rank_program",
    "actors.flow.filling",
    "actors.control.store",
    "actors.control.controller",
    "emu.runtime.sync.partition",
    "emu.runtime.sync.rounds",
    "emu.runtime.sync.window",
    "emu.runtime.sync.logical_process",
    "emu.runtime.workers.exchange",
    "emu.runtime.workers.simulation",
)
