"""Which series tell of the state of jobs, collectives and faults, as it is when somebody looks?

They are read at a scrape, from devices that keep this state anyway, and cost a run nothing. They are not in
the samples of a run directory: there the summary, the journal and the tables say the same, and from these
expectations know them over time (`emu.measure.series.state_changes`).

The labels of collectives are those of NCCL Inspector's Prometheus output (NCCL, ext-profiler/inspector):
`comm_name` is the job, `collective` as NCCL spells it, `message_size` a range of powers of two. Slurm job,
node and GPU are left out: a collective is told of once, and not by each rank.
"""

from __future__ import annotations

from typing import Final

from emu.measure.series.metric import Metric, Unit, counter, gauge

JOB: Final = ("job_name",)
"""Not `job`: a scrape gives every series a label of that name, and would call ours `exported_job`."""
MEMBER: Final = ("device", "group", "port", "peer", "direction")
COLLECTIVE: Final = ("comm_name", "n_nodes", "nranks", "collective", "message_size", "algo_proto")

STATE_METRICS: Final[tuple[Metric, ...]] = (
    gauge(
        "port_info",
        "port_info",
        Unit.COUNT,
        ("device", "port", "peer", "direction"),
        "Always 1; the port's peer, and whether that is above (up), below (down) or beside (level).",
    ),
    counter(
        "group_member_bytes",
        "routing_group_member_payload_bytes",
        Unit.BYTES,
        MEMBER,
        "Payload that a member of a routing group has sent, to whatever destination; a group is named by its "
        "ports.",
    ),
    gauge(
        "buffer_pool_bytes", "buffer_pool_bytes", Unit.BYTES, ("device",), "Size of the shared buffer's pool."
    ),
    counter("job_operations", "job_operations", Unit.COUNT, JOB, "Operations of the job that have ended."),
    gauge("job_running", "job_running", Unit.COUNT, JOB, "Whether the job goes on: 0 once it ended."),
    gauge("job_failed", "job_failed", Unit.COUNT, JOB, "Whether the job ended with an error."),
    counter("collectives", "collectives", Unit.COUNT, COLLECTIVE, "Collectives that ended well."),
    gauge(
        "collective_exec_time_ps",
        "collective_exec_time_seconds",
        Unit.PS,
        COLLECTIVE,
        "How long the last one took, in virtual time.",
    ),
    gauge(
        "collective_algorithm_bandwidth_bytes",
        "collective_algorithm_bandwidth_bytes",
        Unit.BYTES,
        COLLECTIVE,
        "Bytes per virtual second of the last one (algbw).",
    ),
    gauge(
        "collective_bus_bandwidth_bytes",
        "collective_bus_bandwidth_bytes",
        Unit.BYTES,
        COLLECTIVE,
        "Bytes per virtual second of the last one, as busbw.",
    ),
    gauge(
        "job_step_time_ps",
        "job_step_time_seconds",
        Unit.PS,
        JOB,
        "How long the last step of training took, from the first rank's begin to the last's end.",
    ),
    gauge(
        "job_mfu_ppm",
        "job_mfu_ratio",
        Unit.PPM,
        JOB,
        "Model FLOPs of that step over what the GPUs could have done at peak rate.",
    ),
    counter("faults", "faults", Unit.COUNT, (), "Faults that have begun, scripted and injected."),
    gauge("faults_active", "faults_active", Unit.COUNT, (), "Faults that have begun and are not over."),
)
"""In the order in which families are rendered."""

_UNITS: Final = ("B", "KB", "MB", "GB", "TB")


def size_range(size_bytes: int) -> str:
    """The range of powers of two that a size is in: 1_500_000 is "1-2MB"."""
    power = max(size_bytes, 1).bit_length() - 1
    unit = min(power // 10, len(_UNITS) - 1)
    low = 1 << (power - 10 * unit)
    return f"{low}-{2 * low}{_UNITS[unit]}"


def algorithm_name(algorithm: str) -> str:
    """Algorithm and protocol as NCCL Inspector has them; ours is the simple one."""
    return f"{algorithm.upper()}_SIMPLE"


def collective_name(op: str) -> str:
    """An operation as NCCL spells it: all_reduce is "AllReduce"."""
    return "".join(word.capitalize() for word in op.split("_"))
