"""Mapping `ncclx.env`: the knob that each NCCL environment variable turns.

What one would export before a job is written as it is, `ncclx: {env: {NCCL_BUFFSIZE: 1048576}}`, and is
translated into the scenario's own keys before anything is checked: the effective scenario of a run directory
holds those keys alone. A key that is written as well must say the same. A variable that NCCL knows and the
emulator does not model is refused by name, so that nobody believes that it did something.

Traffic classes are the byte that NCCL writes into the IP header: the DSCP is its upper six bits, and a
priority follows from it if that is a class selector (multiples of 32); other DSCPs need `nic.dscp`.

Source: NCCL 2.30, user guide (environment variables); NCCLX for NCCL_CTRAN_*.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, NamedTuple

from actors.ncclx.collectives import ALGORITHMS
from emu.errors import Problem, QuantityError
from emu.scenario.section import Location, RefusedError
from emu.scenario.yaml.document import Node, Place, from_plain, opened, shown_location
from emu.scenario.yaml.values import Reading
from emu.spelling import did_you_mean, listed, shown
from emu.units import parse_size

SECTION: Final[Location] = ("ncclx", "env")
_ALGORITHMS: Final = {"ring": "ring", "tree": "double_binary_tree"}


class Knob(NamedTuple):
    """One variable: the key that it stands for, and how its value is read (or what is accepted)."""

    location: Location
    read: Callable[[str], object]
    accepted: str


def _between(least: int, most: int) -> Callable[[str], object]:
    def read(text: str) -> object:
        value = int(text)
        if not least <= value <= most:
            raise ValueError(text)
        return value

    return read


def _number(location: Location, least: int, most: int) -> Knob:
    return Knob(location, _between(least, most), f"a whole number from {least} to {most}")


def _bytes(location: Location) -> Knob:
    def read(text: str) -> object:
        value = int(text)
        if value <= 0:
            raise ValueError(text)
        return f"{value}B"

    return Knob(location, read, "a number of bytes")


def _one_of(location: Location, choices: dict[str, object]) -> Knob:
    return Knob(location, lambda text: choices[text.lower()], listed(choices))


def _traffic_class(location: Location) -> Knob:
    def read(text: str) -> object:
        value = int(text)
        if value % 32 or not 0 <= value <= 224:
            raise ValueError(text)
        return value // 32

    return Knob(location, read, "a multiple of 32 from 0 to 224; other DSCPs are `nic.dscp`")


KNOBS: Final[dict[str, Knob]] = {
    "NCCL_BUFFSIZE": _bytes(("ncclx", "buffsize")),
    "NCCL_P2P_NET_CHUNKSIZE": _bytes(("ncclx", "p2p_chunk")),
    "NCCL_IB_QPS_PER_CONNECTION": _number(("ncclx", "qps_per_connection"), 1, 128),
    "NCCL_IB_SPLIT_DATA_ON_QPS": _one_of(("ncclx", "qp_policy"), {"0": "round_robin", "1": "split"}),
    "NCCL_CTRAN_IB_MAX_QPS": _number(("ncclx", "qps_per_connection"), 1, 128),
    "NCCL_CTRAN_IB_VC_MODE": _one_of(("ncclx", "qp_policy"), {"dqplb": "dqplb"}),
    "NCCL_CTRAN_IB_QP_SCALING_THRESHOLD": _bytes(("ncclx", "dqplb", "segment")),
    "NCCL_CTRAN_IB_QP_MAX_MSGS": _number(("ncclx", "dqplb", "most_outstanding"), 1, 4096),
    "NCCL_IB_TC": _traffic_class(("transport", "data_priority")),
    "NCCL_IB_FIFO_TC": _traffic_class(("transport", "control_priority")),
    "NCCL_IB_TIMEOUT": _number(("transport", "timeout"), 0, 31),
    "NCCL_IB_RETRY_CNT": _number(("transport", "retry_count"), 0, 7),
    "NCCL_P2P_DISABLE": _one_of(("host", "nvlink", "enabled"), {"0": True, "1": False}),
    "NCCL_CROSS_NIC": _one_of(("ncclx", "ring_order"), {"2": "by_channel"}),
    "NCCL_PROTO": _one_of((), {"simple": None}),
    "NCCL_ALGO": _one_of(("algorithm",), dict(_ALGORITHMS)),
    "NCCL_MIN_NCHANNELS": _number(("ncclx", "channels"), 1, 64),
    "NCCL_MAX_NCHANNELS": _number(("ncclx", "channels"), 1, 64),
    "NCCL_MIN_CTAS": _number(("ncclx", "channels"), 1, 64),
    "NCCL_MAX_CTAS": _number(("ncclx", "channels"), 1, 64),
}
"""Variables that turn something. An empty location turns nothing: the value says what is modelled anyhow."""

NOT_MODELLED: Final = (
    "NCCL_ALLGATHER_ALGO",
    "NCCL_ALLOC_P2P_NET_LL_BUFFERS",
    "NCCL_ALLREDUCE_ALGO",
    "NCCL_CGA_CLUSTER_SIZE",
    "NCCL_CHECK_POINTERS",
    "NCCL_COLLNET_ENABLE",
    "NCCL_COMM_BLOCKING",
    "NCCL_COMM_ID",
    "NCCL_CONF_FILE",
    "NCCL_CREATE_THREAD_CONTEXT",
    "NCCL_CTRAN_IB_QP_CONFIG_XDC",
    "NCCL_CTRAN_IB_QP_CONFIG_XRACK",
    "NCCL_CTRAN_IB_QP_CONFIG_XZONE",
    "NCCL_CUMEM_ENABLE",
    "NCCL_DEBUG",
    "NCCL_DEBUG_FILE",
    "NCCL_DEBUG_SUBSYS",
    "NCCL_DMABUF_ENABLE",
    "NCCL_GRAPH_DUMP_FILE",
    "NCCL_GRAPH_FILE",
    "NCCL_GRAPH_MIXING_SUPPORT",
    "NCCL_GRAPH_REGISTER",
    "NCCL_HOSTID",
    "NCCL_IB_ADAPTIVE_ROUTING",
    "NCCL_IB_ADDR_FAMILY",
    "NCCL_IB_ADDR_RANGE",
    "NCCL_IB_AR_THRESHOLD",
    "NCCL_IB_CUDA_SUPPORT",
    "NCCL_IB_DISABLE",
    "NCCL_IB_ECE_ENABLE",
    "NCCL_IB_GID_INDEX",
    "NCCL_IB_HCA",
    "NCCL_IB_MERGE_NICS",
    "NCCL_IB_MERGE_VFS",
    "NCCL_IB_MQP_RETRY_ALL",
    "NCCL_IB_PCI_RELAXED_ORDERING",
    "NCCL_IB_PKEY",
    "NCCL_IB_RETURN_ASYNC_EVENTS",
    "NCCL_IB_ROCE_VERSION_NUM",
    "NCCL_IB_SL",
    "NCCL_IB_USE_INLINE",
    "NCCL_IGNORE_CPU_AFFINITY",
    "NCCL_LAUNCH_MODE",
    "NCCL_LL128_BUFFSIZE",
    "NCCL_LL_BUFFSIZE",
    "NCCL_LOCAL_REGISTER",
    "NCCL_MAX_NRINGS",
    "NCCL_MIN_NRINGS",
    "NCCL_MNNVL_ENABLE",
    "NCCL_NCHANNELS_PER_NET_PEER",
    "NCCL_NET",
    "NCCL_NET_DISABLE_INTRA",
    "NCCL_NET_FORCE_FLUSH",
    "NCCL_NET_FORCE_MERGE",
    "NCCL_NET_GDR_C2C",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_NET_GDR_READ",
    "NCCL_NET_PLUGIN",
    "NCCL_NET_SHARED_BUFFERS",
    "NCCL_NET_SHARED_COMMS",
    "NCCL_NSOCKS_PERTHREAD",
    "NCCL_NTHREADS",
    "NCCL_NVB_DISABLE",
    "NCCL_NVLS_ENABLE",
    "NCCL_OOB_NET_ENABLE",
    "NCCL_P2P_DIRECT_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_P2P_NVL_CHUNKSIZE",
    "NCCL_P2P_PCI_CHUNKSIZE",
    "NCCL_P2P_PXN_LEVEL",
    "NCCL_PROFILER_PLUGIN",
    "NCCL_PXN_DISABLE",
    "NCCL_RAS_ENABLE",
    "NCCL_RUNTIME_CONNECT",
    "NCCL_SET_STACK_SIZE",
    "NCCL_SET_THREAD_NAME",
    "NCCL_SHM_DISABLE",
    "NCCL_SOCKET_FAMILY",
    "NCCL_SOCKET_IFNAME",
    "NCCL_SOCKET_NTHREADS",
    "NCCL_SOCKET_RETRY_CNT",
    "NCCL_SOCKET_RETRY_SLEEP_MSEC",
    "NCCL_SYM_CTAS",
    "NCCL_TOPO_DUMP_FILE",
    "NCCL_TOPO_FILE",
    "NCCL_TUNER_PLUGIN",
    "NCCL_WIN_ENABLE",
    "NCCL_WORK_FIFO_BYTES",
)
"""Variables that NCCL knows and that turn nothing here."""

_ACCEPTED: Final = f"NCCL's names: {listed(KNOBS, 40)}"


def _empty(value: object) -> dict[str, object]:
    if value:
        raise RefusedError(f"{shown(value)} is not a mapping", _ACCEPTED)
    return {}


EnvMapping = Annotated[
    dict[str, object],
    Reading(
        _empty,
        lambda value: value,
        _ACCEPTED,
        {
            "type": "object",
            "properties": {name: {"type": ["integer", "string"]} for name in KNOBS},
            "additionalProperties": False,
        },
        "NCCL's variables",
    ),
]
"""Empty once a scenario is read: what it held was translated."""


def put_names_in_place(tree: Node) -> list[Problem]:
    """Translate `ncclx.env` into keys of the scenario; returns what does not fit."""
    section = tree.child("ncclx")
    env = None if section is None else section.child("env")
    if section is None or env is None or not isinstance(env.value, dict):
        return []
    given, keys = env.value, env.keys
    env.value = {}
    problems: list[Problem] = []
    for name, node in given.items():
        place = keys.get(name, node.place)
        reason, accepted = _translate(tree, name, node.plain(), place, _bounds(given))
        if reason:
            key = shown_location((*SECTION, name))
            problems.append(Problem(place.file, place.line, key, reason, accepted))
    return problems


def _bounds(given: dict[str, Node]) -> tuple[int, int]:
    """The least and the most channels that NCCL's variables allow; what is no number counts as not said."""
    least, most = 1, 64
    for name, node in given.items():
        text = str(node.value)
        if text.isdecimal() and name in ("NCCL_MIN_NCHANNELS", "NCCL_MIN_CTAS"):
            least = max(least, int(text))
        elif text.isdecimal() and name in ("NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS"):
            most = min(most, int(text))
    return least, most


def _translate(
    tree: Node, name: str, value: object, place: Place, channels: tuple[int, int]
) -> tuple[str, str]:
    """Turn one variable; returns why not and what would be accepted, or two empty texts."""
    knob = KNOBS.get(name)
    if knob is None:
        if name in NOT_MODELLED:
            return "is a variable of NCCL that is not modelled: it would change nothing", "leave it out"
        return f"unknown variable{did_you_mean(name, (*KNOBS, *NOT_MODELLED))}", _ACCEPTED
    try:
        meant = knob.read(str(int(value) if isinstance(value, bool) else value))
    except (ValueError, KeyError):
        return f"{shown(value)} is not what {name} takes", knob.accepted
    if name == "NCCL_ALGO":
        return _algorithm(tree, str(meant), place)
    if knob.location == ("ncclx", "channels"):
        return _channels(tree, place, channels)
    if not knob.location:
        return "", ""
    return _set(tree, knob.location, meant, place)


def _set(tree: Node, location: Location, meant: object, place: Place) -> tuple[str, str]:
    """Write a key, unless it says something else already."""
    node = opened(tree, location[:-1], place)
    if node is None:
        return "", ""  # a section that is no mapping is refused for that
    last = str(location[-1])
    assert isinstance(node.value, dict), location
    there = node.value.get(last)
    if there is not None and not _same(there.value, meant):
        said = f"{shown(there.value)} at line {there.place.line}" if there.place.line else shown(there.value)
        reason = f"means {shown_location(location)}: {meant}, which is {said}"
        return reason, "one of the two, or both alike"
    node.value[last] = from_plain(meant, place)
    node.keys[last] = place
    return "", ""


def _same(there: object, meant: object) -> bool:
    if there == meant:
        return True
    try:
        return isinstance(there, str) and parse_size(there) == parse_size(str(meant))
    except QuantityError:
        return False


def _channels(tree: Node, place: Place, bounds: tuple[int, int]) -> tuple[str, str]:
    """Channels lie between bounds: those that are configured must, and the least is taken otherwise."""
    least, most = bounds
    if least > most:
        return (
            f"leaves nothing between at least {least} and at most {most} channels",
            "a least below the most",
        )
    section = tree.child("ncclx")
    there = None if section is None else section.child("channels")
    if there is None:
        return _set(tree, ("ncclx", "channels"), least, place)
    if isinstance(there.value, int) and not least <= there.value <= most:
        return f"does not allow ncclx.channels: {there.value}", f"channels from {least} to {most}"
    return "", ""


def _algorithm(tree: Node, meant: str, place: Place) -> tuple[str, str]:
    """Every collective of every job that leaves its algorithm open takes this one; those of a program that
    have no such algorithm keep their own. Training steps and traces have rings.
    """
    for at, job in enumerate(_items(tree.child("jobs"))):
        workload = job.child("workload")
        kind = None if workload is None else workload.child("kind")
        if workload is None or kind is None:
            continue
        reason, accepted = "", ""
        if kind.value == "collective":
            reason, accepted = _set(workload, ("algorithm",), meant, place)
        elif kind.value in ("training", "trace") and meant != "ring":
            reason, accepted = f"means trees, and a {kind.value} has rings", "Ring"
        if reason:
            return reason.replace("algorithm:", f"jobs[{at}].workload.algorithm:"), accepted
        for operation in _items(workload.child("operations")) if kind.value == "program" else ():
            called = operation.child("do")
            if (
                called is not None
                and called.value in ALGORITHMS[meant]
                and operation.child("algorithm") is None
            ):
                _set(operation, ("algorithm",), meant, place)
    return "", ""


def _items(node: Node | None) -> list[Node]:
    return node.value if node is not None and isinstance(node.value, list) else []
