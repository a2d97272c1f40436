"""Mapping `ncclx.env`: the knob that each NCCL environment variable turns.

What one would export before a job is written as it is, `ncclx: {env: {NCCL_BUFFSIZE: 1048576}}`, or the
script that exports it is named, `env: job.sh`. It is translated into the scenario's own keys before
anything is checked: the effective scenario of a run directory holds those keys alone. A key that is written
as well must say the same. A variable that cannot change traffic (logging, start-up, the choice of
interfaces) is accepted, and all of them are named in one note. One that would change traffic in a way that
is not modelled is refused, so that nobody believes that it did something; of a script, which is somebody
else's, it is left out and named in the note, and so is what is no variable of NCCL's (NCCL_VERSION).

Lists are NCCL's: `Ring,Tree` leaves the tuner the choice among them, `^Tree` all but these. What a list names
beyond the model is in the note.

Traffic classes are the byte that NCCL writes into the IP header: the DSCP is its upper six bits. The maps of
`switch.qos` (or of `switch.config_db`) turn the DSCP into the priority group of the switches, and that number
is the priority; without maps it is the class selector, the upper three bits. A DSCP that is not the class
selector of its priority is written into `nic.dscp`. If the priority is lossy by default and
`switch.pfc.priorities` is left open, it becomes lossless in place of the one that data has by default.

Source: NCCL 2.30, user guide (environment variables); NCCLX for NCCL_CTRAN_*.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from actors.ncclx.operations import ALGORITHMS
from emu.base.errors import Problem, QuantityError, ScenarioError
from emu.base.records import Location, RefusedError
from emu.base.spelling import did_you_mean, listed, shown, shown_location
from emu.base.units import parse_size
from emu.scenario.sections.switch import mapped
from emu.scenario.yaml.document import Node, Place, decode, from_plain, opened
from emu.scenario.yaml.values import Reading

SECTION: Final[Location] = ("ncclx", "env")
_ALGORITHMS: Final = {
    "ring": "ring",
    "tree": "double_binary_tree",
    "nvls": "nvls",
    "nvlstree": "nvls_tree",
    "pat": "pat",
}
_NVLS: Final = "NCCL_NVLS_ENABLE"
_TABLE: Final = "NCCL_TUNER_CONFIG_FILE"
_OTHER_TABLE: Final = "NCCLX_TUNER_CONFIG_FILE"
_NVLS_WORDS: Final = ("nvls", "nvlstree")
_OTHER_ALGORITHMS: Final = ("collnet", "collnetdirect", "collnetchain")
_NCCL_CALLS: Final = dict.fromkeys(op for name in _ALGORITHMS.values() for op in ALGORITHMS[name])
_PROTOCOLS: Final = ("simple", "ll", "ll128")


class Knob(NamedTuple):
    """One variable: the key that it stands for, and how its value is read (or what is accepted)."""

    location: Location
    read: Callable[[str], object]
    accepted: str
    most: int | None = None
    """The greatest number that fits, where a larger one is cut to it."""


def _between(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            raise ValueError(text)
        return value

    return read


def _number(location: Location, least: int, most: int) -> Knob:
    return Knob(location, _between(least, most), f"a whole number from {least} to {most}")


def _field(location: Location, bits: int) -> Knob:
    """A number of which a NIC keeps the low bits: NCCL hands on what it is given, and the context of a queue
    pair has no more room (InfiniBand Architecture Specification, volume 1, 11.2.5.2)."""
    mask = (1 << bits) - 1
    return Knob(
        location,
        lambda text: _between(0, 2**31 - 1)(text) & mask,
        f"a whole number, of which {bits} bits count",
        mask,
    )


def _bytes(location: Location) -> Knob:
    def read(text: str) -> object:
        value = int(text)
        if value <= 0:
            raise ValueError(text)
        return f"{value}B"

    return Knob(location, read, "a number of bytes")


def _one_of(location: Location, choices: dict[str, object]) -> Knob:
    return Knob(location, lambda text: choices[text.lower()], listed(choices))


KNOBS: Final[dict[str, Knob]] = {
    "NCCL_BUFFSIZE": _bytes(("ncclx", "buffsize")),
    "NCCL_LL_BUFFSIZE": _bytes(("ncclx", "ll_buffsize")),
    "NCCL_LL128_BUFFSIZE": _bytes(("ncclx", "ll128_buffsize")),
    "NCCL_P2P_NET_CHUNKSIZE": _bytes(("ncclx", "p2p_chunk")),
    "NCCL_IB_QPS_PER_CONNECTION": _number(("ncclx", "qps_per_connection"), 1, 128),
    "NCCL_IB_SPLIT_DATA_ON_QPS": _one_of(("ncclx", "qp_policy"), {"0": "round_robin", "1": "split"}),
    "NCCL_CTRAN_IB_MAX_QPS": _number(("ncclx", "qps_per_connection"), 1, 128),
    "NCCL_CTRAN_IB_VC_MODE": _one_of(("ncclx", "qp_policy"), {"dqplb": "dqplb"}),
    "NCCL_CTRAN_IB_QP_SCALING_THRESHOLD": _bytes(("ncclx", "dqplb", "segment")),
    "NCCL_CTRAN_IB_QP_MAX_MSGS": _number(("ncclx", "dqplb", "most_outstanding"), 1, 4096),
    "NCCL_IB_TC": _number(("transport", "data_priority"), 0, 255),
    "NCCL_IB_FIFO_TC": _number(("transport", "control_priority"), 0, 255),
    "NCCL_IB_TIMEOUT": _field(("transport", "timeout"), 5),
    "NCCL_IB_RETRY_CNT": _field(("transport", "retry_count"), 3),
    "NCCL_P2P_DISABLE": _one_of(("host", "nvlink", "enabled"), {"0": True, "1": False}),
    "NCCL_CROSS_NIC": _one_of(("ncclx", "ring_order"), {"0": "one_rail", "1": "crossing", "2": "by_channel"}),
    "NCCL_IB_MERGE_NICS": _one_of(("ncclx", "port_use"), {"0": "apart", "1": "merged"}),
    "NCCL_NET_MERGE_LEVEL": _one_of(("ncclx", "port_use"), {"loc": "apart", "port": "merged"}),
    "NCCL_NCHANNELS_PER_NET_PEER": _number(("ncclx", "channels_per_peer"), 1, 64),
    "NCCL_RUNTIME_CONNECT": _one_of(("ncclx", "connect", "when"), {"0": "beforehand", "1": "first_use"}),
    "NCCL_PXN_DISABLE": _one_of(("ncclx", "pxn"), {"0": True, "1": False}),
    "NCCL_TUNER_CONFIG_FILE": Knob(("ncclx", "tuner", "table"), str, "the table of NCCL's example tuner"),
    "NCCL_PROTO": Knob(("ncclx", "protocol"), str, "Simple, LL, LL128, or a list of them"),
    "NCCL_ALGO": Knob(("algorithm",), str, "Ring, Tree, NVLS, NVLSTree, PAT, or a list with one of them"),
    "NCCL_MIN_NCHANNELS": _number(("ncclx", "channels"), 1, 64),
    "NCCL_MAX_NCHANNELS": _number(("ncclx", "channels"), 1, 64),
    "NCCL_MIN_NRINGS": _number(("ncclx", "channels"), 1, 64),
    "NCCL_MAX_NRINGS": _number(("ncclx", "channels"), 1, 64),
    "NCCL_MIN_CTAS": _number(("ncclx", "channels"), 1, 64),
    "NCCL_MAX_CTAS": _number(("ncclx", "channels"), 1, 64),
}
"""Variables that turn something. An empty location turns nothing: the value says what is modelled anyhow."""

_LEVELS: Final = ("nvl", "pix", "pxb", "phb", "sys", "1", "2", "3", "4", "5")
STATED: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "NCCL_COLLNET_ENABLE": (("0",), "reductions in switches are not modelled"),
    "NCCL_IB_ADAPTIVE_ROUTING": (("0",), "the message of its own that carries the immediate is not modelled"),
    "NCCL_IB_DISABLE": (("0",), "TCP sockets are not modelled"),
    "NCCL_MNNVL_ENABLE": (("0", "2"), "NVLink between servers is not modelled"),
    "NCCL_NET": (("ib",), "only RDMA is modelled"),
    "NCCL_NET_DISABLE_INTRA": (("1",), "NICs as an alternative to NVLink are not modelled"),
    "NCCL_NET_GDR_LEVEL": (_LEVELS, "copies through the memory of the host are not modelled"),
    "NCCL_NET_GDR_READ": (("1",), "copies through the memory of the host are not modelled"),
    _NVLS: (("0", "1", "2"), "is 0, 1 or 2"),
    "NCCL_P2P_LEVEL": (_LEVELS, "write NCCL_P2P_DISABLE: 1"),
}
"""Variables that are accepted with a value that says what is modelled, or leaves the choice to NCCL; and why
not with another."""

WITHOUT_EFFECT: Final = frozenset(
    [
        "NCCL_ASYNC_ERROR_HANDLING",
        "NCCL_BLOCKING_WAIT",
        "NCCL_DESYNC_DEBUG",
        "NCCL_TIMEOUT",
        "NCCL_CHECKS_DISABLE",
        "NCCL_CHECK_DISABLE",
        "NCCL_CHECK_POINTERS",
        "NCCL_COMM_BLOCKING",
        "NCCL_COMM_ID",
        "NCCL_CONF_FILE",
        "NCCL_CREATE_THREAD_CONTEXT",
        "NCCL_CHECK_MODE",
        "NCCL_ENV_PLUGIN",
        "NCCL_GDRCOPY_ENABLE",
        "NCCL_GDRCOPY_FIFO_ENABLE",
        "NCCL_GDRCOPY_FLUSH_ENABLE",
        "NCCL_GDRCOPY_SYNC_ENABLE",
        "NCCL_GIN_ENABLE",
        "NCCL_GIN_TYPE",
        "NCCL_GRAPH_DUMP_FILE_RANK",
        "NCCL_GRAPH_STREAM_ORDERING",
        "NCCL_GROUP_CUDA_STREAM",
        "NCCL_IB_DATA_DIRECT",
        "NCCL_IB_MQP_RETRY_CNT",
        "NCCL_IB_MQP_RETRY_SLEEP_MSEC",
        "NCCL_IGNORE_DISABLED_P2P",
        "NCCL_LEGACY_CUDA_REGISTER",
        "NCCL_NO_CACHE",
        "NCCL_NVTX_DISABLE",
        "NCCL_PROXY_CPUSET",
        "NCCL_SOCKET_INLINE",
        "NCCL_SOCKET_POLL_TIMEOUT_MSEC",
        "NCCL_TOPO_DUMP_FILE_RANK",
        "NCCL_UID_STAGGER_RATE",
        "NCCL_UID_STAGGER_THRESHOLD",
        "NCCL_WARN_ENABLE_DEBUG_INFO",
        "NCCL_CUMEM_ENABLE",
        "NCCL_CUMEM_HOST_ENABLE",
        "NCCL_DEBUG",
        "NCCL_DEBUG_FILE",
        "NCCL_DEBUG_SUBSYS",
        "NCCL_DEBUG_TIMESTAMP_FORMAT",
        "NCCL_DEBUG_TIMESTAMP_LEVELS",
        "NCCL_DMABUF_ENABLE",
        "NCCL_GRAPH_DUMP_FILE",
        "NCCL_GRAPH_MIXING_SUPPORT",
        "NCCL_GRAPH_REGISTER",
        "NCCL_HOSTID",
        "NCCL_IB_ADDR_FAMILY",
        "NCCL_IB_ADDR_RANGE",
        "NCCL_IB_AR_THRESHOLD",
        "NCCL_IB_CUDA_SUPPORT",
        "NCCL_IB_ECE_ENABLE",
        "NCCL_IB_GID_INDEX",
        "NCCL_IB_HCA",
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
        "NCCL_LAUNCH_ORDER_IMPLICIT",
        "NCCL_LL_THRESHOLD",
        "NCCL_LOCAL_REGISTER",
        "NCCL_MEM_SYNC_DOMAIN",
        "NCCL_NET_FORCE_FLUSH",
        "NCCL_NET_GDR_C2C",
        "NCCL_NET_PLUGIN",
        "NCCL_NSOCKS_PERTHREAD",
        "NCCL_NTHREADS",
        "NCCL_NVLS_CHUNKSIZE",
        "NCCL_NVLS_NCHANNELS",
        "NCCL_OOB_NET_ENABLE",
        "NCCL_OOB_NET_IFNAME",
        "NCCL_P2P_DIRECT_DISABLE",
        "NCCL_PROFILER_PLUGIN",
        "NCCL_RAS_ADDR",
        "NCCL_RAS_ENABLE",
        "NCCL_SET_STACK_SIZE",
        "NCCL_SET_THREAD_NAME",
        "NCCL_SHM_DISABLE",
        "NCCL_SINGLE_RING_THRESHOLD",
        "NCCL_SOCKET_FAMILY",
        "NCCL_SOCKET_IFNAME",
        "NCCL_SOCKET_NTHREADS",
        "NCCL_SOCKET_RETRY_CNT",
        "NCCL_SOCKET_RETRY_SLEEP_MSEC",
        "NCCL_TOPO_DUMP_FILE",
        "NCCL_TOPO_FILE",
        "NCCL_TREE_THRESHOLD",
        "NCCL_WORK_FIFO_BYTES",
    ]
)
"""Variables that are accepted with any value: logging, start-up, memory; which interfaces (the scenario's
topology has them) and how fast a GPU copies (`gpu`); parts of NCCL that are not modelled and are not switched
on by them; what NCCL itself no longer reads; and PyTorch's own."""

NOT_MODELLED: Final = (
    "NCCL_ALLGATHER_ALGO",
    "NCCL_ALLOC_P2P_NET_LL_BUFFERS",
    "NCCL_ALLREDUCE_ALGO",
    "NCCL_CGA_CLUSTER_SIZE",
    "NCCL_CTRAN_IB_QP_CONFIG_XDC",
    "NCCL_CTRAN_IB_QP_CONFIG_XRACK",
    "NCCL_CTRAN_IB_QP_CONFIG_XZONE",
    "NCCL_GRAPH_FILE",
    "NCCL_NET_FORCE_MERGE",
    "NCCL_NET_SHARED_BUFFERS",
    "NCCL_NET_SHARED_COMMS",
    "NCCL_NVB_DISABLE",
    "NCCL_P2P_NVL_CHUNKSIZE",
    "NCCL_P2P_PCI_CHUNKSIZE",
    "NCCL_P2P_PXN_LEVEL",
    "NCCL_SYM_CTAS",
    "NCCL_TUNER_PLUGIN",
    "NCCL_WIN_ENABLE",
    "NCCL_CTA_POLICY",
    "NCCL_IB_OOO_RQ",
    "NCCL_MAX_P2P_NCHANNELS",
    "NCCL_MIN_P2P_NCHANNELS",
    "NCCL_NETDEVS_POLICY",
    "NCCL_NET_OVERHEAD",
    "NCCL_P2P_LL_THRESHOLD",
    "NCCL_PAT_ENABLE",
    _OTHER_TABLE,
)
"""Variables that NCCL knows and that would change traffic here if they were modelled."""

DEFAULT_LOSSLESS: Final = (3, 6)
"""As `switch.pfc.priorities`: of data, and of control."""
VARIABLES: Final = (*KNOBS, *STATED, *sorted(WITHOUT_EFFECT), *NOT_MODELLED)
"""All that are known."""
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
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "propertyNames": {"enum": [*KNOBS, *STATED, *sorted(WITHOUT_EFFECT)]},
                    "additionalProperties": {"type": ["integer", "string", "boolean", "array"]},
                },
            ]
        },
        "NCCL's variables, or a file",
    ),
]
"""Empty once a scenario is read: what it held was translated."""


_ASSIGNED: Final = r"""(?<![\w$])(NCCLX?_\w+)=("[^"]*"|'[^']*'|\$\([^)]*\)|`[^`]*`|[^\s;&|\\"'`]*)"""
_FALLBACK: Final = r"\$\{\w+:?[-=]([^}]*)\}"


def put_names_in_place(
    tree: Node, directory: Path, read_file: Callable[[Path], bytes], notes: list[str]
) -> list[Problem]:
    """Translate `ncclx.env` into keys of the scenario, and note what changes nothing; returns what does not
    fit.

    `env` is a mapping, or the path of a script or of an `nccl.conf`: the last value that it gives each of
    NCCL's variables counts, `${X:-value}` is that value, and nothing is executed.
    """
    section = tree.child("ncclx")
    env = None if section is None else section.child("env")
    if section is None or env is None:
        return []
    if isinstance(env.value, str):
        path = directory / env.value
        try:
            given, keys = exported(decode(read_file(path), str(path)), str(path))
        except ScenarioError as error:
            (problem,) = error.problems
            place, reason = env.place, f"{path}: {problem.reason}"
            env.value = {}
            return [Problem(place.file, place.line, shown_location(SECTION), reason, problem.accepted)]
    elif isinstance(env.value, dict):
        given, keys = env.value, env.keys
    else:
        return []
    scripted = isinstance(env.value, str)
    env.value = {}
    env.keys = {}
    problems: list[Problem] = []
    parts: list[str] = []
    if _TABLE in given:  # the plug-in that reads the table
        given = {name: node for name, node in given.items() if name != "NCCL_TUNER_PLUGIN"}
    if scripted and _TABLE in given and not (directory / str(given[_TABLE].value)).is_file():
        parts.append(f"{_TABLE}: {str(given[_TABLE].value)[:200]} is not there and left out")
        given = {name: node for name, node in given.items() if name != _TABLE}
    if scripted:
        unknown = [name for name in given if name not in VARIABLES]
        missing = [name for name in given if name in NOT_MODELLED]
        given = {name: node for name, node in given.items() if name not in (*unknown, *missing)}
        parts += [f"{', '.join(missing)} not modelled and left out"] if missing else []
        parts += [f"{', '.join(unknown)} unknown and left out"] if unknown else []
    off = _NVLS_WORDS if _NVLS in given and _text(_NVLS, given[_NVLS]) == "0" else ()
    for name, node in sorted(given.items(), key=lambda one: one[0] == _NVLS):  # after NCCL_ALGO
        place = keys.get(name, node.place)
        reason, accepted = _translate(tree, name, _text(name, node), place, _bounds(given), off, parts)
        if reason:
            key = shown_location((*SECTION, name))
            problems.append(Problem(place.file, place.line, key, reason, accepted))
    named = given.get("NCCL_ALGO")
    idle = [name for name in given if name in WITHOUT_EFFECT or name in STATED]
    if off and (named is None or "nvls" in str(_text("NCCL_ALGO", named)).lower()):
        idle.remove(_NVLS)
    if idle:
        parts.insert(0, f"{', '.join(idle)} {'changes' if len(idle) == 1 else 'change'} nothing here")
    if parts:
        notes.append(f"{shown_location(SECTION)}: {'; '.join(parts)}")
    return problems


def exported(text: str, file: str) -> tuple[dict[str, Node], dict[str, Place]]:
    """NCCL's variables that a script or a configuration file sets, each with its line."""
    given: dict[str, Node] = {}
    keys: dict[str, Place] = {}
    for line, written in enumerate(text.splitlines(), 1):
        for found in re.finditer(_ASSIGNED, re.sub(r"(^|\s)#.*", "", written)):
            value = re.sub(_FALLBACK, r"\1", found[2].strip("\"'"))
            keys[found[1]] = Place(file, line)
            given[found[1]] = Node(value, keys[found[1]])
    return given, keys


def _text(name: str, node: Node) -> str | None:
    """A variable's value as an environment would hold it; a list, where it takes one, with commas."""
    value = node.plain()
    if isinstance(value, tuple):
        text = ",".join(str(one) for one in value)
        return text if name in ("NCCL_ALGO", "NCCL_PROTO") else f"[{text}]"
    if isinstance(value, bool):
        return str(int(value))
    return None if value is None or isinstance(value, dict) else str(value)


def _bounds(given: Mapping[str, Node]) -> tuple[int, int]:
    """The least and the most channels that NCCL's variables allow; what is no number counts as not said."""
    least, most = 1, 64
    for name, node in given.items():
        text = str(node.value)
        if text.isdecimal() and name in ("NCCL_MIN_NCHANNELS", "NCCL_MIN_NRINGS", "NCCL_MIN_CTAS"):
            least = max(least, int(text))
        elif text.isdecimal() and name in ("NCCL_MAX_NCHANNELS", "NCCL_MAX_NRINGS", "NCCL_MAX_CTAS"):
            most = min(most, int(text))
    return least, most


def _translate(
    tree: Node,
    name: str,
    text: str | None,
    place: Place,
    channels: tuple[int, int],
    off: Collection[str],
    notes: list[str],
) -> tuple[str, str]:
    """Turn one variable; returns why not and what would be accepted, or two empty texts. `off` are words of
    NCCL_ALGO that another variable switches off.
    """
    if name in WITHOUT_EFFECT:
        return "", ""
    if name in STATED:
        return _stated(tree, name, text, place)
    knob = KNOBS.get(name)
    if knob is None:
        if name in NOT_MODELLED:
            accepted = "leave it out"
            if name == _OTHER_TABLE:
                reason = "names the table of NCCLX's own tuner, which is not read: rows go by bytes of a rank"
                return reason, f"{_TABLE} with the table of NCCL's example plug-in, or leave it out"
            if name == "NCCL_TUNER_PLUGIN":
                accepted = f"{_TABLE} with the table of NCCL's example plug-in, or leave it out"
            return "is a variable of NCCL that is not modelled: it may change traffic there", accepted
        return f"unknown variable{did_you_mean(name, VARIABLES)}", _ACCEPTED
    try:
        if text is None:
            raise ValueError(name)
        if name == "NCCL_ALGO":
            words = _chosen(text, (*_ALGORITHMS, *_OTHER_ALGORITHMS), name, notes)
            left = [word for word in words if word not in off]
            return _algorithms(tree, left, place) if left else (f"{_NVLS}=0 leaves none of it", knob.accepted)
        if name == "NCCL_PROTO":
            left = _chosen(text, _PROTOCOLS, name, notes)
            if len(left) == 2:
                notes.append(f"{name} leaves two protocols, and the tuner has all three")
            return _set(tree, knob.location, left[0], place) if len(left) == 1 else ("", "")
        meant = knob.read(text)
    except (ValueError, KeyError):
        return f"{shown(text)} is not what {name} takes", knob.accepted
    return _turn(tree, name, knob, text, meant, place, channels, notes)


def _turn(
    tree: Node,
    name: str,
    knob: Knob,
    text: str,
    meant: object,
    place: Place,
    channels: tuple[int, int],
    notes: list[str],
) -> tuple[str, str]:
    """Write the key of a variable whose value was read; returns as `_translate`."""
    if name == "NCCL_PXN_DISABLE" and meant is False:
        at = _named_pxn(tree)
        if at >= 0:
            return f"leaves no PXN, and jobs[{at}] names `algorithm: pxn`", "one of the two"
    if name in ("NCCL_IB_TC", "NCCL_IB_FIFO_TC"):
        return _traffic_class(tree, knob.location, int(text), place, notes)
    if knob.location == ("ncclx", "channels"):
        return _channels(tree, place, channels)
    if knob.most is not None and int(text) > knob.most:
        bits = knob.most.bit_length()
        notes.append(f"{name} has {bits} bits in a queue pair, so {text} is {meant}")
    return _set(tree, knob.location, meant, place)


def _stated(tree: Node, name: str, text: str | None, place: Place) -> tuple[str, str]:
    """A variable that has to say what is modelled."""
    values, why = STATED[name]
    if text is None or text.lower() not in values:
        return f"{shown(text)}: {why}", ", ".join(one.upper() for one in values)
    if name == _NVLS and text == "0":
        return _without_nvls(tree, place)
    return "", ""


def _chosen(text: str, known: tuple[str, ...], name: str, notes: list[str]) -> list[str]:
    """What a list of NCCL's leaves: the words of it, or after `^` all others. ValueError for another word.

    What it names and the model lacks is noted.
    """
    words = [word.strip().lower() for word in text.removeprefix("^").split(",") if word.strip()]
    if not words or any(word not in known for word in words):
        raise ValueError(text)
    if text.startswith("^"):
        return [word for word in known if word not in words]
    lacking = [
        written for written in text.split(",") if written.strip().lower() not in (*_ALGORITHMS, *_PROTOCOLS)
    ]
    if lacking and len(lacking) < len(words):
        notes.append(f"of {name}, {', '.join(one.strip() for one in lacking)} not modelled")
    return words


def _traffic_class(
    tree: Node, location: Location, value: int, place: Place, notes: list[str]
) -> tuple[str, str]:
    """The priority of a traffic class is the group that switches put its DSCP into; NICs write that DSCP."""
    dscp = value >> 2
    traffic_class = mapped(tree, "dscp_to_tc", dscp, dscp >> 3)
    priority = mapped(tree, "tc_to_priority_group", traffic_class, traffic_class)
    if location == ("transport", "data_priority"):
        _lossless(tree, priority, place, notes)
    refused = _set(tree, location, priority, place)
    if not refused[0] and dscp != 8 * priority:
        refused = _set(tree, ("nic", "dscp", str(priority)), dscp, place)
    return refused


def _lossless(tree: Node, priority: int, place: Place, notes: list[str]) -> None:
    """Make the priority of data lossless, unless the scenario says which are."""
    switch = tree.child("switch")
    pfc = None if switch is None else switch.child("pfc")
    if pfc is not None and pfc.child("priorities") is not None:
        return
    if priority not in DEFAULT_LOSSLESS:
        meant = sorted({priority, *DEFAULT_LOSSLESS[1:]})
        _set(tree, ("switch", "pfc", "priorities"), meant, place)
        notes.append(f"data in priority {priority}, so switch.pfc.priorities: {meant}")


def _set(tree: Node, location: Location, meant: object, place: Place) -> tuple[str, str]:
    """Write a key, unless it says something else already."""
    node = opened(tree, location[:-1], place)
    if node is None:
        return "", ""  # a section that is no mapping is refused for that
    last = str(location[-1])
    assert isinstance(node.value, dict), location
    there = node.value.get(last)
    if there is not None and not _same(there.plain(), meant):
        said = shown(there.plain()) + (f" at line {there.place.line}" if there.place.line else "")
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


def _without_nvls(tree: Node, place: Place) -> tuple[str, str]:
    """The tuner chooses among the others, unless NCCL_ALGO has said among which of these."""
    tuner = tree.child("ncclx")
    tuner = None if tuner is None else tuner.child("tuner")
    among = None if tuner is None else tuner.child("among")
    if among is not None and "nvls" not in str(among.plain()):
        return "", ""
    rest = [name for name in _ALGORITHMS.values() if not name.startswith("nvls")]
    return _set(tree, ("ncclx", "tuner", "among"), rest, place)


def _named_pxn(tree: Node) -> int:
    """The first job that names PXN as an algorithm; -1 if none does."""
    for at, job in enumerate(_items(tree.child("jobs"))):
        workload = job.child("workload")
        collective = workload is not None and workload.child("op") is not None
        for call in [workload] if collective else _items(workload and workload.child("operations")):
            named = None if call is None else call.child("algorithm")
            if named is not None and named.value == "pxn":
                return at
    return -1


def _channels(tree: Node, place: Place, bounds: tuple[int, int]) -> tuple[str, str]:
    """Channels lie between bounds: those that are configured must; otherwise the least is taken, or the most
    where no least is given.
    """
    least, most = bounds
    if least > most:
        return (
            f"leaves nothing between at least {least} and at most {most} channels",
            "a least below the most",
        )
    section = tree.child("ncclx")
    there = None if section is None else section.child("channels")
    if there is None:
        return _set(tree, ("ncclx", "channels"), least if least > 1 else most, place)
    if isinstance(there.value, int) and not least <= there.value <= most:
        return f"does not allow ncclx.channels: {there.value}", f"channels from {least} to {most}"
    return "", ""


def _algorithms(tree: Node, words: Iterable[str], place: Place) -> tuple[str, str]:
    """Every collective of every job that leaves its algorithm open takes the one of the list that can do it,
    or `auto` among several; operations that have none of NCCL's algorithms keep their own. Training steps and
    traces leave the choice among them to the tuner.
    """
    named = tuple(_ALGORITHMS[word] for word in words if word in _ALGORITHMS)
    if not named:
        return "CollNet, reductions in switches, is not modelled", KNOBS["NCCL_ALGO"].accepted
    for at, job in enumerate(_items(tree.child("jobs"))):
        workload = job.child("workload")
        kind = None if workload is None else workload.child("kind")
        if workload is None or kind is None:
            continue
        collective = kind.value == "collective"
        calls = [workload] if collective else _items(workload.child("operations"))
        for call in calls if kind.value in ("collective", "program") else ():
            op, own = call.child("op" if collective else "do"), call.child("algorithm")
            if op is None or op.value not in _NCCL_CALLS or (own is not None and own.value in named):
                continue
            able = [name for name in named if op.value in ALGORITHMS[name]]
            meant = "auto" if len(able) > 1 else able[0] if able else named[0]
            if not collective and (own is not None or not able):
                continue
            reason, accepted = _set(call, ("algorithm",), meant, place)
            if reason:
                return reason.replace("algorithm:", f"jobs[{at}].workload.algorithm:"), accepted
    return _set(tree, ("ncclx", "tuner", "among"), named, place)


def _items(node: Node | None) -> list[Node]:
    return node.value if node is not None and isinstance(node.value, list) else []
