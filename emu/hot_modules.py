"""Which modules make up the packet path, in the order of the rooms.

mypyc compiles exactly these, together, as one group, so that a call from one to another is a direct C call.
A module belongs here when it runs once per event, or once per window in the thread that simulates; what runs
once per run stays out.
A module in this list

- is plain typed Python: no async, no pattern of types that only exists at run time, native integers where
  they pay, no import of anything third-party but `mypy_extensions` (and `librt`);
- gives the same answers interpreted, which is how it runs wherever there is no C compiler.

This list is data, and is read at import time: keep it free of logic.
"""

from typing import Final

HOT_MODULES: Final[tuple[str, ...]] = (
    "emu.wire.event",
    "emu.wire.frame",
    "emu.wire.telemetry",
    "emu.wire.batch",
    "emu.kernel.mixing",
    "emu.kernel.queue",
    "emu.kernel.device",
    "emu.kernel.kernel",
    "emu.kernel.state",
    "actors.bit_errors",
    "actors.tap",
    "actors.link",
    "actors.host_link",
    "actors.pfc",
    "actors.credits",
    "actors.switch.buffer",
    "actors.switch.ecn",
    "actors.switch.classes",
    "actors.switch.egress",
    "actors.switch.scheduling",
    "actors.switch.watchdog",
    "actors.switch.hashing",
    "actors.switch.groups",
    "actors.switch.hash_functions",
    "actors.switch.policy",
    "actors.switch.pinning",
    "actors.switch.spray",
    "actors.switch.flowlet",
    "actors.switch.engineering",
    "actors.switch.switch",
    "actors.switch.voq",
    "actors.switch.deep",
    "actors.switch.credit_switch",
    "actors.nic.numbers",
    "actors.nic.held",
    "actors.nic.owed",
    "actors.nic.work_request",
    "actors.nic.connection",
    "actors.nic.congestion",
    "actors.nic.dcqcn",
    "actors.nic.swift",
    "actors.nic.hybrid",
    "actors.nic.hpcc",
    "actors.nic.queue_pair",
    "actors.nic.recovery",
    "actors.nic.go_back_n",
    "actors.nic.go_back_0",
    "actors.nic.selective_repeat",
    "actors.nic.port",
    "actors.nic.arbiter",
    "actors.nic.notification",
    "actors.nic.timeout",
    "actors.nic.receive",
    "actors.nic.readiness",
    "actors.nic.states",
    "actors.nic.reading",
    "actors.nic.responding",
    "actors.nic.bond",
    "actors.nic.nic",
    "actors.nic.credit_nic",
    "actors.gpu.gpu",
    "actors.host.program",
    "actors.host.host",
    "actors.host.flows",
    "actors.ncclx.ring",
    "actors.ncclx.ends",
    "actors.ncclx.channel",
    "actors.ncclx.ring_channel",
    "actors.ncclx.rank",
    "actors.control.controller",
    "actors.runtime.partition",
    "actors.runtime.window",
    "actors.runtime.parcels",
    "actors.runtime.participant",
    "actors.runtime.exchange",
)
