"""All series: what devices count (`actors.kernel.counters`), jobs, collectives, faults, and workers.

The exporter, the tables of a run directory, the page `docs/metrics.md` and the tests all read it. Time is
integer picoseconds inside; it becomes seconds, exactly and in decimal, when it is rendered (`seconds`), and
nowhere else.

State series (jobs, collectives, faults) are read at a scrape, from devices that keep this state anyway, and
cost a run nothing. They are not in the samples of a run directory: there the summary, the journal and the
tables say the same, and from these expectations know them over time (`emu.summary.series`).

The labels of collectives are those of NCCL Inspector's Prometheus output (NCCL, ext-profiler/inspector):
`comm_name` is the job, `collective` as NCCL spells it, `message_size` a range of powers of two. Slurm job,
node and GPU are left out: a collective is reported once, and not by each rank.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from actors.kernel.counters import (
    DEVICE,
    DEVICE_METRICS,
    PORT,
    PRIORITY,
    REASON,
    Metric,
    Unit,
    counter,
    gauge,
)
from actors.kernel.device import Series
from actors.kernel.units import PS_PER_S

JOB: Final = ("job_name",)
"""Not `job`: a scrape gives every series a label of that name, and would call ours `exported_job`."""
OPERATOR: Final = ("job_name", "rule", "host")
MEMBER: Final = ("device", "group", "port", "peer", "direction")
COLLECTIVE: Final = ("comm_name", "n_nodes", "nranks", "collective", "message_size", "algo_proto")

STATE_METRICS: Final[tuple[Metric, ...]] = (
    gauge(
        "port_info",
        Unit.COUNT,
        ("device", "port", "peer", "direction", "plane"),
        "Always 1; the port's peer, whether that is above (up), below (down) or beside (level), the plane "
        "where the fabric has several.",
    ),
    counter(
        "routing_group_member_payload_bytes",
        Unit.BYTES,
        MEMBER,
        "Payload that a member of a routing group has sent, to whatever destination; a group is named by its "
        "ports.",
    ),
    gauge("buffer_pool_bytes", Unit.BYTES, ("device",), "Size of the shared buffer's pool."),
    counter("job_operations", Unit.COUNT, JOB, "Operations of the job that have ended."),
    gauge("job_running", Unit.COUNT, JOB, "Whether the job goes on: 0 once it ended."),
    gauge(
        "job_failed",
        Unit.COUNT,
        JOB,
        "Whether the job ended with an error, or stands still because of one until its operator has it back.",
    ),
    counter("collectives", Unit.COUNT, COLLECTIVE, "Collectives that ended well."),
    gauge(
        "collective_exec_time_ps",
        Unit.PS,
        COLLECTIVE,
        "Duration of the last collective, in virtual time.",
    ),
    gauge(
        "collective_algorithm_bandwidth_bytes_per_second",
        Unit.BYTES_PER_SECOND,
        COLLECTIVE,
        "Algorithm bandwidth (algbw) of the last collective.",
    ),
    gauge(
        "collective_bus_bandwidth_bytes_per_second",
        Unit.BYTES_PER_SECOND,
        COLLECTIVE,
        "Bus bandwidth (busbw) of the last collective.",
    ),
    gauge(
        "job_step_time_ps",
        Unit.PS,
        JOB,
        "Duration of the last training step, from the first rank's start to the last rank's end.",
    ),
    gauge(
        "job_mfu_ppm",
        Unit.PPM,
        JOB,
        "Model FLOPs of that step over what the GPUs could have done at peak rate.",
    ),
    gauge("operator_working", Unit.COUNT, JOB, "Whether the job that an operator tends does steps."),
    counter(
        "operator_notices",
        Unit.COUNT,
        OPERATOR,
        "Alarms of the operator by rule and host; of a job that is silent as a whole, without host.",
    ),
    gauge("operator_reported", Unit.COUNT, OPERATOR, "Always 1: a host that the operator reported, by rule."),
    counter("operator_restarts", Unit.COUNT, JOB, "How often the operator stopped the job to restart it."),
    counter("operator_evictions", Unit.COUNT, ("job_name", "host"), "Hosts that the operator evicted."),
    counter("operator_checkpoints", Unit.COUNT, ("job_name", "outcome"), "Checkpoints: saved, or left_out."),
    gauge("operator_checkpoint_step", Unit.COUNT, JOB, "Steps in the newest checkpoint that is whole."),
    gauge("operator_step", Unit.COUNT, JOB, "Steps that are done and count."),
    gauge("operator_goodput_ppm", Unit.PPM, JOB, "Share of the time so far of steps that count."),
    gauge(
        "operator_remapped_rows",
        Unit.COUNT,
        ("host",),
        "Rows of GPU memory that a host's last heartbeat said were remapped.",
    ),
    counter("payload_wrong_elements", Unit.COUNT, JOB, "Elements of real payload that came out wrong."),
    counter("faults", Unit.COUNT, (), "Faults that have begun, scripted and injected."),
    gauge("faults_active", Unit.COUNT, (), "Faults that have begun and are not over."),
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


DROP_REASONS: Final[dict[str, str]] = {
    "link_down": "the link was down at some moment of the frame's flight",
    "no_route": "no egress port leads to the destination",
    "no_shared_room": "a lossy class found no room under its dynamic threshold",
    "headroom_overrun": "a lossless class overran its headroom",
    "egress_limit": "an egress queue was at its limit",
    "aqm": "active queue management dropped a lossy frame",
    "ttl": "the packet had passed as many switches as its TTL allows",
    "corrupt": "bits of the frame were wrong",
    "receive_overrun": "a NIC's receive buffer was full",
    "watchdog": "a PFC watchdog held a storm off its queue",
}
"""Why a frame can be dropped."""

DROPPED_LEAVING: Final = frozenset({"link_down", "watchdog"})
"""Reasons of frames that are counted at the port by which they were to leave; others are counted where they
came in. Both ends of a link that is down count what they lost, that which was in flight too."""

CONGESTION_REASONS: Final = frozenset(
    {"no_shared_room", "headroom_overrun", "egress_limit", "aqm", "receive_overrun"}
)
"""Reasons that mean a buffer was full; every other reason is a fault or a mistake."""


ENGINE_METRICS: Final[tuple[Metric, ...]] = (
    counter("virtual_ps", Unit.PS, (), "Virtual time that the worker has reached."),
    counter("events", Unit.COUNT, (), "Events executed."),
    counter(
        "packet_hops",
        Unit.FRAMES,
        (),
        "Frames received over a fabric link, PFC excluded.",
    ),
    counter("data_packet_hops", Unit.FRAMES, (), "Packet-hops of frames with payload."),
    counter("windows", Unit.COUNT, (), "Windows of the protocol between workers."),
    counter(
        "window_wait_wall_ps",
        Unit.PS,
        (),
        "Wall time for which the worker waited for the others between windows.",
    ),
    counter(
        "refused_connections",
        Unit.COUNT,
        (),
        "Connections that the worker refused before it decoded any of their bytes.",
    ),
    gauge("resident_memory_bytes", Unit.BYTES, (), "Resident memory of the worker."),
)
"""What a worker counts of itself."""

INFO_METRICS: Final[tuple[Metric, ...]] = (
    gauge("build_info", Unit.COUNT, ("version", "compiled"), "Always 1; which build the worker runs."),
    gauge("run_info", Unit.COUNT, ("scenario", "seed"), "Always 1; which run the worker is part of."),
)
"""Constants that carry their meaning in labels."""

METRICS: Final[tuple[Metric, ...]] = DEVICE_METRICS + STATE_METRICS + ENGINE_METRICS + INFO_METRICS

METRIC_OF: Final[dict[str, Metric]] = {metric.key: metric for metric in METRICS}


def seconds(time_ps: int) -> str:
    """`time_ps` in seconds, exact, in decimal: 1_167_760 is "0.000001167760"."""
    assert time_ps >= 0, time_ps
    return f"{time_ps // PS_PER_S}.{time_ps % PS_PER_S:012d}"


def shown_value(metric: Metric, value: int) -> str:
    """A value as the text formats have it, in the unit of the series' name."""
    if metric.unit is Unit.PS:
        return seconds(value)
    if metric.unit is Unit.PPM:
        return f"{value // 10**6}.{value % 10**6:06d}"
    return str(value)


def label_text(value: str) -> str:
    """A label's value as the text format wants it."""
    if value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
        return value
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def labels_of(metric: Metric, device: str, series: Series) -> str:
    """The label set of one series of a device, braces included, e.g. `{device="rtsw-0",port="3"}`."""
    return f'{{device="{label_text(device)}"{inner_labels(metric, series)}}}'


def inner_labels(metric: Metric, series: Series) -> str:
    """What tells a device's series apart, behind the device itself: `,port="3",priority="6"`."""
    labels = metric.labels
    if labels is DEVICE:
        return ""
    port = series.port
    assert port >= 0, (metric.key, port)
    if labels is PORT:
        return f',port="{port}"'
    if labels is PRIORITY:
        assert 0 <= series.priority < 8, (metric.key, series.priority)
        return f',port="{port}",priority="{series.priority}"'
    assert labels is REASON, (metric.key, labels)
    assert series.reason in DROP_REASONS, (metric.key, port, series.reason)
    return f',port="{port}",reason="{series.reason}"'


def markdown(metrics: Iterable[Metric] = METRICS) -> str:
    """The table of `docs/metrics.md`."""
    lines = ["| series | type | unit | labels | meaning |", "|---|---|---|---|---|"]
    for metric in metrics:
        unit = {Unit.PS: "seconds", Unit.COUNT: "", Unit.PPM: "ratio"}.get(metric.unit, metric.unit.value)
        labels = ", ".join(metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {unit} | {labels} | {metric.help} |")
    return "\n".join(lines) + "\n"
