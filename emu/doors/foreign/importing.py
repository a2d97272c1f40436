"""Scenarios written from files of others, for a person to read and edit.

    edge list of ns-3's RDMA simulators or SimAI    topology; of SimAI host.nvlink
    topology of htsim or containerlab               topology
    flow file of HPCC or ConWeave, CSV of flows, connection matrix of htsim    a job of flows
    requests of Azure, Mooncake, vidur              a job that serves them
    workload text of SimAI, Chakra's traces         a job; servers around one switch if no file has a fabric
    ASTRA-sim's communicator groups (JSON)          the groups of the Chakra traces beside them
    traces of PyTorch's profiler, its flight recorder's dumps    a job (`emu.doors.pytorch.traces`)
    script or nccl.conf that sets NCCL_...          ncclx.env
    launch script with Megatron's arguments         a training job, and ncclx.env
    TOML or Python configuration of torchtitan      a training job
    log of NCCL (NCCL_DEBUG=INFO)                   topology, ncclx, a job of its calls
    algorithm of MSCCL (XML)                        a job of its collective, ncclx
    topology of a server by NCCL (XML)              servers around one switch, NVLink, PCIe

What has at most `MOST_ROWS` rows is spelled out with names and units; more stays in its file, which the
scenario names. Each section says in a comment where it comes from and what of it is left out. A file is
recognised by what is in it, not by its name, but for Chakra's (.et).

Every line that is written knows the line of the file that it comes from, so that what is wrong with the
scenario is reported there.
"""

import os
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import indent, wrap
from typing import Final, NamedTuple

import yaml

from actors.ncclx.operations import ALGORITHMS as OPERATIONS_OF
from actors.ncclx.settings import MOST_CHANNELS
from emu.base.doors import FileReader, Part
from emu.base.errors import FormatError, Problem, QuantityError, ScenarioError
from emu.base.units import counted, format_rate, format_size, format_time, parse_size, parse_time
from emu.doors.foreign.comm_groups import is_groups, read_groups
from emu.doors.foreign.containerlab import is_containerlab, read_containerlab
from emu.doors.foreign.nccl_log import NcclLog, is_nccl_log, read_nccl_log
from emu.doors.foreign.torchtitan_python import is_trainer, read_trainer
from emu.doors.foreign.training_recipe import (
    Recipe,
    is_megatron,
    is_torchtitan,
    read_megatron,
    read_torchtitan,
    with_ranks,
)
from emu.scenario.load import read_file as read_bytes
from emu.scenario.readers.chakra import MOST_FILE_BYTES, ChakraError, pared, read_chakra
from emu.scenario.readers.chakra import left_out as chakra_left_out
from emu.scenario.readers.foreign import LeftOut
from emu.scenario.readers.htsim import is_matrix, is_topo, read_matrix
from emu.scenario.readers.msccl import Msccl, read_msccl
from emu.scenario.readers.msccl import left_out as msccl_left_out
from emu.scenario.readers.nccl_topology import Machine, Nic, read_machine
from emu.scenario.readers.read_fabric import EdgeList
from emu.scenario.readers.request_traces import is_requests, read_requests
from emu.scenario.readers.simai import KINDS, read_simai
from emu.scenario.readers.simai import left_out as simai_left_out
from emu.scenario.readers.topology_files import left_out, ranks_of, read_edge_list
from emu.scenario.readers.workload_files import read_flow_file
from emu.scenario.sections.nccl_names import NOT_MODELLED, VARIABLES, exported
from emu.scenario.yaml.document import decode

MOST_ROWS: Final = 400
"""Nodes and links, or flows, that are spelled out."""
PER_SERVER: Final = 8
MOST_SHOWN: Final = 4
"""Rings and ranks of a tree that a comment shows."""
MOST_IN_RING: Final = 64
LOGGED_ALGORITHMS: Final = {
    "tree": "double_binary_tree",
    "ring": "ring",
    "nvls": "nvls",
    "nvls_tree": "nvls_tree",
    "pat": "pat",
}
"""NCCL's algorithms, by the names that a scenario has for them."""
MOST_AT_ONE_SWITCH: Final = 256
"""Ports of a switch whose buffer has room for their headroom, at 400G and somewhat above."""
KNOWN: Final = (
    "an edge list of ns-3 or SimAI, a topology of htsim or containerlab, a flow file, a CSV of flows, a "
    "connection matrix of htsim, requests of Azure, Mooncake or vidur, a workload text of SimAI, a Chakra "
    "trace (.et) and its groups (JSON), a trace of PyTorch's profiler, a dump of its flight recorder, a "
    "script that sets NCCL's variables or has Megatron's arguments, a TOML or Python configuration of "
    "torchtitan, a log of NCCL, a topology of NCCL, or an algorithm of MSCCL (XML)"
)
GZIP: Final = b"\x1f\x8b"
_BEGINNING: Final = 1 << 16
"""Bytes by which a file is recognised."""
_NOT_READ: Final = (
    (
        (b'"workload_graph"',),
        "is a Chakra trace written as JSON",
        "the .et from which it was written",
    ),
    (
        (b'"schema"', b'"nodes"', b'"inclusive_dur"'),
        "is a linked trace of PyTorch that is not converted yet",
        "the .et that chakra_converter makes of it, or the trace of torch.profiler alone",
    ),
    (
        (b'"schema"', b'"nodes"'),
        "is an execution trace of PyTorch's host (ExecutionTraceObserver), which has no times of a GPU",
        "the trace of torch.profiler of the same run, or both linked and converted (.et)",
    ),
    (
        (b'"train_micro_batch_size_per_gpu"',),
        "is a configuration of DeepSpeed, which says nothing of the model",
        "`kind: training` with data: fsdp, tp, pp and micro_batch written by hand, or a trace of the run",
    ),
    (
        (b'"zero_optimization"',),
        "is a configuration of DeepSpeed, which says nothing of the model",
        "`kind: training` with data: fsdp, tp, pp and micro_batch written by hand, or a trace of the run",
    ),
)
"""What a JSON file contains near its beginning, what it is, and what is read in its place."""
_TABLES_NOT_READ: Final = (
    (
        ("comm_type", "comm_group", "msg_size"),
        "is a list of calls of AICB for its own replay",
        "the workload text that AICB writes for SimAI",
    ),
    (
        ("num_tokens", "time_stats.mlp_up_proj.min"),
        "is a table of kernel times of vidur",
        "its traces of requests: arrived_at, num_prefill_tokens, num_decode_tokens",
    ),
    (
        ("num_workers", "size", "collective"),
        "is a table of collective times of vidur",
        "a log of nccl-tests, with `emu fit`",
    ),
)
"""Columns of a CSV that is not read, what it is, and what is read in its place."""
_MARK: Final = re.compile("\x00(.*?)\x01(\\d+)")
"""Stands at the end of a line that is written, before it is written: the file and line that it comes from."""
_SHAPES: Final = (
    ("htsim", is_topo),
    ("matrix", is_matrix),
    ("requests", is_requests),
    ("groups", is_groups),
    ("trainer", is_trainer),
    ("containerlab", is_containerlab),
)
"""What is recognised by its shape, in this order."""
_RANKED: Final = re.compile(r"\.\d+$")
_NAMED: Final = re.compile(r"(?<=name: )\w+")


class NoVariableError(FormatError):
    """A script without variables."""


class UnreadTableError(FormatError):
    """A table that is known and not read."""


class Wish(NamedTuple):
    """What the files leave open."""

    name: str
    hosts: int
    """Servers like the one of an NCCL topology."""
    rate_bps: int
    """Rate of a NIC where no file says it."""
    config: str = ""
    """The function of a Python configuration that is meant."""


class Groups(NamedTuple):
    """Communicator groups, and the file that lists them."""

    path: Path
    ranks: dict[str, tuple[int, ...]]


class _File(NamedTuple):
    path: Path
    shown: str
    """Its path from where the scenario is written."""
    text: str

    def at(self, line: int) -> str:
        """Marks a line that is written as made of a line of this file."""
        return f"\x00{self.path}\x01{line}"


class Imported(NamedTuple):
    """A scenario that is written, and where its lines come from."""

    text: str
    origins: dict[int, tuple[str, int]]
    """By line: the file and the line there, 0 for the file as a whole."""

    def located(self, error: ScenarioError, written: str) -> ScenarioError:
        """The same problems at the lines of the files, where `written` is what they call the scenario."""

        def placed(one: Problem) -> Problem:
            origin = self.origins.get(one.line) if one.file == written else None
            return one if origin is None else one._replace(file=origin[0], line=origin[1])

        return ScenarioError(list(dict.fromkeys(placed(one) for one in error.problems)))


def imported(
    paths: Sequence[Path],
    directory: Path,
    wish: Wish,
    read_file: Callable[[Path], bytes],
    readers: Sequence[FileReader] = (),
    added: str = "",
) -> Imported:
    """The scenario of these files, to be written in a directory. ScenarioError names file and line.

    `readers` are those of other doors; each takes all files that it knows. `added` goes on with `KNOWN`, what
    is read, where a file is not.
    """
    given, parts = paths, []
    for reader in readers:
        theirs = [path for path in paths if reader.knows(path)]
        parts += [_from(theirs[0], reader.read(theirs))] if theirs else []
        paths = [path for path in paths if path not in theirs]
    texts = {path: "" if path.suffix == ".et" else _text_in(path, read_file(path)) for path in paths}
    kinds = {path: _kind_of(path, text) for path, text in texts.items()}
    numbers = _ranks(kinds, texts)
    sets: dict[Path, Path] = {}
    groups = _groups(kinds, texts)
    for path, text in texts.items():
        first = sets.setdefault(_set_of(path), path)
        if first != path or kinds[path] == "groups":
            continue  # another rank of traces that are one job
        file = _File(path, os.path.relpath(path, directory), text)
        if not kinds[path]:
            raise ScenarioError([Problem(str(path), 1, "", "is no file that emu knows", f"{KNOWN}{added}")])
        try:
            if kinds[path] == "chakra":
                part = _chakra(file, groups)
            else:
                part = _part(kinds[path], file, wish, numbers)
        except FormatError as error:
            raise ScenarioError([Problem(str(path), error.line, "", error.reason, error.accepted)]) from error
        parts.append(_from(path, part))
    return _written(given, parts, wish)


def _ranks(kinds: Mapping[Path, str], texts: Mapping[Path, str]) -> dict[int, int] | None:
    """The rank of each host of the file of ns-3, by its number there; None if there is none."""
    for path, text in texts.items():
        if kinds[path] == "ns3":
            try:
                return ranks_of(text)
            except FormatError as error:
                problem = Problem(str(path), error.line, "", error.reason, error.accepted)
                raise ScenarioError([problem]) from error
    return None


def _groups(kinds: Mapping[Path, str], texts: Mapping[Path, str]) -> Groups | None:
    """The communicator groups of a file that has some; there is at most one."""
    files = [path for path, kind in kinds.items() if kind == "groups"]
    if not files:
        return None
    if len(files) > 1 or "chakra" not in kinds.values():
        reason = "lists groups of Chakra traces, of which there are none here"
        if len(files) > 1:
            reason = f"lists groups, as {files[0].name} does"
        raise ScenarioError([Problem(str(files[-1]), 0, "", reason, "one such file, beside traces (.et)")])
    try:
        return Groups(files[0], read_groups(texts[files[0]]))
    except FormatError as error:
        problem = Problem(str(files[0]), error.line, "", error.reason, error.accepted)
        raise ScenarioError([problem]) from error


def _from(path: Path, part: Part) -> Part:
    """A part whose lines all know that they come from a file."""

    def marked(text: str) -> str:
        rows = text.splitlines()
        return "".join(f"{row}\n" if "\x00" in row else f"{row}\x00{path}\x010\n" for row in rows)

    return part._replace(
        topology=marked(part.topology),
        jobs=marked(part.jobs),
        ncclx=marked(part.ncclx),
        host=marked(part.host),
    )


def _set_of(path: Path) -> Path:
    """The traces of all ranks that a Chakra trace belongs to, without rank and ending; else the file."""
    return path.with_name(_RANKED.sub("", path.stem)) if path.suffix == ".et" else path


def _text_in(path: Path, data: bytes) -> str:
    """The text of a file. ScenarioError if it is none, or known to be of a form that is not read."""
    begins = data[:_BEGINNING]
    packed = begins.startswith(GZIP)
    if packed:
        try:
            begins = zlib.decompressobj(wbits=31).decompress(begins, _BEGINNING)
        except zlib.error as error:
            raise ScenarioError([Problem(str(path), 1, "", f"cannot be unpacked: {error}", "gzip")]) from None
    for marks, reason, accepted in _NOT_READ:
        if begins.lstrip().startswith(b"{") and all(mark in begins for mark in marks):
            raise ScenarioError([Problem(str(path), 1, "", reason, accepted)])
    if packed:
        raise ScenarioError([Problem(str(path), 1, "", "is packed by gzip", f"unpacked, {KNOWN}")])
    return decode(data, str(path))


def _kind_of(path: Path, text: str) -> str:
    """What a file is. ScenarioError if it is known and not read."""
    try:
        return "chakra" if path.suffix == ".et" else _kind(text)
    except FormatError as error:
        raise ScenarioError([Problem(str(path), error.line, "", error.reason, error.accepted)]) from error


def _kind(text: str) -> str:
    """What a text is, by the words that `_part` knows; empty if none of them."""
    if is_nccl_log(text):
        return "nccl_log"
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    first = lines[0] if lines else []
    if text.lstrip().startswith("<"):
        return "msccl" if re.search(r"<algo\b", text[:_BEGINNING]) else "machine"
    if first and first[0] in KINDS:
        return "simai"
    if len(first) in (1, 3, 4, 6) and all(word.isdecimal() for word in first):
        return "flows" if len(first) == 1 else "ns3"
    if len(first) == 6 and all(word.isdecimal() for word in first[:5]):
        return "simai_topology"
    columns = {column.strip() for column in ",".join(first).replace(",,", ",").split(",")}
    for names, reason, accepted in _TABLES_NOT_READ:
        if set(names) <= columns:
            raise UnreadTableError(1, reason, accepted)
    if {"src", "dst"} <= columns:
        return "flows"
    if text.lstrip()[:1] in ("#", "[") and is_torchtitan(text):
        return "torchtitan"
    for kind, is_it in _SHAPES:
        if is_it(text):
            return kind
    return "nccl" if exported(text, "")[0] or is_megatron(text) else ""


def _part(kind: str, file: _File, wish: Wish, numbers: Mapping[int, int] | None) -> Part:
    if kind in ("ns3", "simai_topology", "htsim"):
        file_format = "simai" if kind == "simai_topology" else kind
        return _fabric(file, read_edge_list(file.text, file_format), file_format)
    if kind == "containerlab":
        return _fabric(file, read_containerlab(file.text, format_rate(wish.rate_bps)), "")
    if kind in ("flows", "matrix"):
        return _flows(file, numbers)
    if kind == "requests":
        return _requests(file)
    if kind == "simai":
        return _simai(file)
    if kind == "torchtitan":
        return _recipe(file, read_torchtitan(file.text), wish)
    if kind == "trainer":
        return _recipe(file, read_trainer(file.text, wish.config), wish)
    if kind == "msccl":
        return _algorithm(file, read_msccl(file.text))
    if kind == "nccl_log":
        return _logged(file, read_nccl_log(file.text), wish)
    return _script(file, wish) if kind == "nccl" else _servers(file, read_machine(file.text), wish)


def _fabric(file: _File, read: EdgeList, file_format: str) -> Part:
    """The fabric spelled out; a large one stays in its file where a scenario can name that."""
    roles = [one.role for one in read.nodes]
    count = f"{roles.count('switch')} switches, {roles.count('gpu')} GPUs"
    about = f"  # {file.shown}: {len(read.links)} links, {count}.\n"
    rest = left_out(file.text) if file_format == "ns3" else ""
    about += f"  # {rest[:1].upper()}{rest[1:]}.\n" if rest else ""
    about += _noted(read.left_out)
    host = ""
    if read.nvlink_rate:
        host = f"  nvlink: {{rate: {read.nvlink_rate}, delay: {read.nvlink_delay}}}  # {file.shown}\n"
    if file_format and len(read.nodes) + len(read.links) > MOST_ROWS:
        named = f"  kind: file\n  format: {file_format}\n  path: {_text(file.shown)}\n"
        return Part(topology=f"{about}{named}", host=host)
    rows = [
        f"  - {{name: {_text(one.name)}, role: {one.role}"
        f"{f', host: {_text(one.host)}' if one.host else ''}}}{file.at(one.line)}"
        for one in read.nodes
    ]
    cables = [
        f"  - {{a: {_text(one.a)}, b: {_text(one.b)}, rate: {one.rate}, delay: {one.delay}}}"
        f"{file.at(one.line)}"
        for one in read.links
    ]
    body = "\n  ".join(["  kind: graph", "nodes:", *rows, "links:", *cables])
    return Part(topology=f"{about}{body}\n", host=host)


def _noted(left_out: LeftOut) -> str:
    """What a reader left out, as comments."""
    note = left_out.note()
    return "".join(f"  # {line}\n" for line in wrap(f"{note}.", 110, break_on_hyphens=False)) if note else ""


def _flows(file: _File, numbers: Mapping[int, int] | None) -> Part:
    """A job of flows; the nodes of a connection matrix are servers with a GPU each."""
    rows, ignored = read_flow_file(file.text, numbers)
    ends = [int(row.cells[end]) for row in rows for end in ("src", "dst") if row.cells[end].isdecimal()]
    about = f"  # {file.shown}: {len(rows)} flows. src and dst are ranks"
    about += ", the hosts of the fabric in their order.\n" if numbers else ".\n"
    about += _noted(ignored)
    ranks, per_server = max(ends, default=1) + 1, 0
    if is_matrix(file.text):
        ranks, per_server = max(ranks, read_matrix(file.text).nodes), 1
    if len(rows) > MOST_ROWS:
        work = f"{{kind: flow_table, file: {_text(file.shown)}}}"
        return Part(
            jobs=f"{about}  - {{name: flows, workload: {work}}}\n", ranks=ranks, per_server=per_server
        )
    flows = "".join(
        f"        - {{{', '.join(f'{key}: {_plainer(key, cell)}' for key, cell in row.cells.items())}}}"
        f"{file.at(row.line)}\n"
        for row in rows
    )
    jobs = f"{about}  - name: flows\n    workload:\n      kind: flows\n      flows:\n{flows}"
    return Part(jobs=jobs, ranks=ranks, per_server=per_server)


def _requests(file: _File) -> Part:
    """A job that serves the requests of a file, on one prefill and one decode instance."""
    rows = read_requests(file.text)
    cached = sum(int(row.cells.get("cached", 0)) for row in rows)
    about = f"  # {file.shown}: {counted(len(rows), 'request')}. The file says neither model nor instances:\n"
    about += "  # llama3-8b here, one GPU that prefills, one that decodes (model, prefills, decodes, tp).\n"
    if cached:
        about += (
            f"  # {cached} tokens of prompts are cached: their hash_ids are those of an earlier request.\n"
        )
    work = f"{{kind: serving, model: llama3-8b, file: {_text(file.shown)}}}"
    return Part(jobs=f"{about}  - {{name: serving, ranks: 2, workload: {work}}}\n", ranks=2)


def _plainer(key: str, cell: str) -> str:
    """A size or a time in the unit that shows it shortest; what is none is refused where it is loaded."""
    try:
        if key == "size":
            return format_size(parse_size(cell))
        return format_time(parse_time(cell)) if key == "start" else cell
    except QuantityError:
        return _text(cell)


def _simai(file: _File) -> Part:
    simai = read_simai(file.text)
    least = simai.tp * simai.ep * simai.stages
    about = (
        f"  # {file.shown}: a workload text of SimAI, {len(simai.layers)} lines, tp {simai.tp}, ep {simai.ep}"
    )
    keys = [f"kind: simai_trace, file: {_text(file.shown)}"]
    if simai.stages > 1:
        size = format_size(simai.stage_bytes)
        about += f",\n  # {simai.stages} stages of {simai.chunks} chunks, {len(simai.batches)} micro-batches,"
        about += f" {size} from stage to stage"
        keys.append("pipeline: auto")
    ranks = simai.ranks or max(least, 2)
    if ranks % least:
        ranks = least
        keys.append("any_ranks: true")
    work = f"{{{', '.join(keys)}}}"
    about = f"{about}.\n{_noted(simai_left_out(file.text))}"
    return Part(jobs=f"{about}  - {{name: training, ranks: {ranks}, workload: {work}}}\n", ranks=ranks)


def _chakra(file: _File, groups: Groups | None) -> Part:
    name = _RANKED.sub("", file.path.stem)
    ranks = 0
    while file.path.with_name(f"{name}.{ranks}.et").exists():
        ranks += 1
    shown = file.shown if not ranks else str(Path(file.shown).with_name(name))
    about = f"  # {file.shown}: Chakra's traces of {ranks} ranks.\n"
    if not ranks:
        about = f"  # {file.shown}: a Chakra trace that all ranks carry out; set how many.\n"
    every = [file.path.with_name(f"{name}.{rank}.et") for rank in range(ranks)] or [file.path]
    about += _noted(_check_groups(every, name, groups))
    work = f"{{kind: chakra_trace, file: {_text(shown)}}}"
    head = f"{about}  - {{name: trace, ranks: {ranks or PER_SERVER}, workload: {work}}}\n"
    if groups is not None:
        rows = "".join(
            f"        - {{name: {_text(one)}, ranks: {list(members)}}}\x00{groups.path}\x010\n"
            for one, members in groups.ranks.items()
        )
        head = f"{about}  - name: trace\n    ranks: {ranks or PER_SERVER}\n    workload:\n"
        head += f"      kind: chakra_trace\n      file: {_text(shown)}\n      groups:\n{rows}"
    return Part(jobs=head, ranks=ranks or PER_SERVER)


def _check_groups(files: Sequence[Path], name: str, groups: Groups | None) -> LeftOut:
    """Refuse traces that call groups which nobody lists, and name the file that would. Returns what is left
    out of the traces."""
    whole = 0
    ignored = LeftOut()
    for path in files:
        data = read_bytes(path, MOST_FILE_BYTES)
        whole += len(data)
        if whole > MOST_FILE_BYTES:
            return ignored  # refused where the scenario is loaded
        try:
            trace = read_chakra(pared(data))
            ignored.take(chakra_left_out(data))
        except ChakraError as error:
            reason = f"{error.unit} {error.line}: {error.reason}"
            raise ScenarioError([Problem(str(path), 0, "", reason, error.accepted)]) from error
        known = trace.groups.keys() | (groups.ranks.keys() if groups is not None else set())
        for node in trace.nodes:
            if node.group and node.group not in known:
                reason = f"message {node.message}: there is no process group {node.group!r}"
                beside = path.with_name(f"{name}.json")
                accepted = (
                    "a file of communicator groups (JSON, ASTRA-sim's --comm-group-configuration) as well"
                )
                if groups is not None:
                    accepted = f"{groups.path} with that group"
                elif beside.exists():
                    accepted += f", such as {beside}"
                raise ScenarioError([Problem(str(path), 0, "", reason, accepted)])
    return ignored


def _script(file: _File, wish: Wish) -> Part:
    """NCCL's variables, Megatron's arguments, or both."""
    if not is_megatron(file.text):
        return _variables(file)
    given, _ = exported(file.text, str(file.path))
    known = any(name in VARIABLES and name not in NOT_MODELLED for name in given)
    try:
        job = _recipe(file, read_megatron(file.text), wish)
    except FormatError as error:
        if not known:
            raise
        variables = _variables(file)
        why = f"  # No job is read of Megatron's arguments: {error.reason}.\n"
        return variables._replace(ncclx=why + variables.ncclx)
    return job._replace(ncclx=_variables(file).ncclx) if known else job


def _recipe(file: _File, recipe: Recipe, wish: Wish) -> Part:
    """A training job: each option is a key of it, or is named."""
    whose = "the script says" if recipe.ranks else "no file says; --hosts does"
    ranks = recipe.ranks or wish.hosts * recipe.per_server
    recipe = with_ranks(recipe, ranks)
    about = f"  # {file.shown}: {ranks} GPUs, which {whose}.\n"
    about += "".join(f"  # {note}.\n" for note in recipe.notes)
    for what, names in (
        ("Without effect here", recipe.without_effect),
        ("Not modelled", recipe.not_modelled),
    ):
        about += (
            "".join(
                f"  # {line}\n" for line in wrap(f"{what}: {', '.join(names)}.", 110, break_on_hyphens=False)
            )
            if names
            else ""
        )
    lines = yaml.safe_dump(recipe.keys, sort_keys=False, default_flow_style=None, width=110)
    body = indent(lines, "      ")
    job = f"  - name: train\n    ranks: {ranks}\n    workload:\n{body}"
    return Part(jobs=about + job, ranks=ranks, per_server=recipe.per_server)


def _variables(file: _File) -> Part:
    given, _ = exported(file.text, str(file.path))
    about = f"  # {file.shown}: what it sets last.\n"
    for what, names in (("not modelled", NOT_MODELLED), ("no variable of NCCL", ())):
        out = [name for name in given if (name in names if names else name not in VARIABLES)]
        about += f"  # Left out, {what}: {', '.join(out)}.\n" if out else ""
        given = {name: node for name, node in given.items() if name not in out}
    if not given:
        raise NoVariableError(1, "sets no variable of NCCL's that is modelled", "a script that does")
    lines = "".join(f"    {name}: {_text(str(node.value))}\n" for name, node in given.items())
    return Part(ncclx=f"{about}  env:\n{lines}")


def _logged(file: _File, log: NcclLog, wish: Wish) -> Part:
    """What NCCL found, chose and was asked for."""
    per_server = log.per_server or log.ranks
    servers = counted(log.servers, "server")
    about = f"  # {file.shown}: {counted(log.ranks, 'rank')} in {servers}. It says nothing of the fabric\n"
    about += "  # between servers: here one switch joins them.\n"
    for at, ring in enumerate(log.rings[:MOST_SHOWN]):
        if len(ring) <= MOST_IN_RING:
            about += f"  # Ring of channel {at}: {' '.join(map(str, ring))}.\n"
    trees = ", ".join(log.trees[one] for one in sorted(log.trees)[:MOST_SHOWN])
    about += f"  # First tree (children->rank->parent): {trees}.\n" if trees else ""
    about += _noted(LeftOut(*(f"{count} lines of {text!r}" for text, count in log.unread.items())))
    hosts = max(log.servers, -(-log.ranks // per_server), 2 if log.ranks == 1 else 1)
    rate = format_rate(wish.rate_bps)
    topology = f"{about}  kind: star\n  hosts: {hosts}\n  gpus_per_host: {per_server}\n  link: {rate}\n"
    ncclx = f"  channels: {log.channels}  # as logged\n" if 0 < log.channels <= MOST_CHANNELS else ""
    known = {name: value for name, value in log.variables.items() if name in VARIABLES}
    out = [name for name in log.variables if name not in known]
    ncclx += f"  # Left out, not modelled or no variable of NCCL: {', '.join(out)}.\n" if out else ""
    given = "".join(f"    {name}: {_text(value)}\n" for name, value in known.items())
    ncclx += f"  env:\n{given}" if given else ""
    return Part(topology=topology, ncclx=ncclx, jobs=_logged_calls(file, log), ranks=log.ranks)


def _algorithm(file: _File, given: Msccl) -> Part:
    """A measurement of an algorithm, which stays in its file."""
    ranks = len(given.steps)
    steps = sum(map(len, given.steps))
    about = f"  # {file.shown}: {given.op} of {ranks} ranks in {given.chunks} chunks, {steps} steps.\n"
    about += "  # Its thread blocks are not kept: a step waits for the steps whose chunks it uses.\n"
    about += _noted(msccl_left_out(file.text))
    about += "  # An algorithm of one's own goes by the protocol Simple.\n"
    work = f"{{kind: collective, op: {given.op}, algorithm: {_text(file.shown)}, sizes: [1MiB, 16MiB]}}"
    job = f"  - {{name: algorithm, ranks: {ranks}, workload: {work}}}\n"
    ncclx = "  channels: 1  # the channels of the file are connections (lanes) of this one\n"
    return Part(jobs=about + job, ncclx=ncclx, ranks=ranks)


def _logged_calls(file: _File, log: NcclLog) -> str:
    if not log.calls:
        return ""
    rows = []
    for call in log.calls:
        unnamed = log.choices.get(("", call.bytes), ("", ""))
        chosen, protocol = log.choices.get((call.op, call.bytes), unnamed)
        keys = {"do": call.op, "size": f"{max(call.bytes, 4 * log.ranks)}B"}
        if call.op in ("broadcast", "reduce"):
            keys["root"] = str(call.root)
        algorithm = LOGGED_ALGORITHMS.get(chosen, "")
        note = f"  # NCCL chose {chosen}, {protocol}" if chosen else ""
        if algorithm and call.op in OPERATIONS_OF[algorithm]:
            keys["algorithm"] = algorithm
        rows.append(f"        - {{{', '.join(f'{key}: {value}' for key, value in keys.items())}}}{note}\n")
    about = f"  # {file.shown}: the calls of one rank, one after another; nothing says when.\n"
    about += f"  # Left out: {counted(log.others, 'call')} on smaller communicators.\n" if log.others else ""
    head = f"  - name: calls\n    ranks: {log.ranks}\n    workload:\n"
    head += "      kind: program\n      operations:\n"
    return about + head + "".join(rows)


def _servers(file: _File, machine: Machine, wish: Wish) -> Part:
    nic = machine.nics[0]
    rate = format_rate(nic.rate_bps or wish.rate_bps)
    count, nics = len(machine.gpus), len(machine.nics)
    about = f"  # {file.shown}: a server with {count} GPUs and {nics} NICs.\n"
    about += f"  # It says nothing of what is between servers: here one switch joins {wish.hosts} of them.\n"
    if not nic.rate_bps:
        about += f"  # It says no rate of its NICs: {rate} is assumed (--rate).\n"
    about += _noted(LeftOut(*machine.left_out))
    if count == nics:
        order = "".join(f"  #   GPU {at}: {one.name}\n" for at, one in enumerate(machine.nics))
        keys = f"  kind: star\n  hosts: {wish.hosts}\n  gpus_per_host: {count}\n  link: {rate}\n"
        topology = f"{about}  # NIC of each GPU:\n{order}{keys}"
    else:
        topology = about + _own_servers(machine, wish.hosts, rate)
    return Part(topology=topology, host=_inside(machine, nic, nic.rate_bps or wish.rate_bps), ranks=0)


def _own_servers(machine: Machine, hosts: int, rate: str) -> str:
    """Servers node by node, where GPUs share NICs or have several."""
    nodes, links = ["  - {name: tor-0, role: switch}"], []
    for host in range(hosts):
        nodes.append(f"  - {{name: host-{host}, role: host}}")
        nodes += [
            f"  - {{name: gpu-{host}-{at}, role: gpu, host: host-{host}}}" for at in range(len(machine.gpus))
        ]
        for at, nic in enumerate(machine.nics):
            note = f"  # {nic.name}, nearest to {machine.gpus[nic.gpu]}" if not host else ""
            nodes.append(f"  - {{name: nic-{host}-{at}, role: nic, host: host-{host}}}{note}")
            links.append(f"  - {{a: nic-{host}-{at}, b: tor-0, rate: {rate}, delay: 500ns}}")
    return "\n  ".join(["  kind: graph", "nodes:", *nodes, "links:", *links]) + "\n"


def _inside(machine: Machine, nic: Nic, rate_bps: int) -> str:
    if machine.nvlink_bps is None:
        lines = "  # The file says nothing of NVLink.\n"
    elif not machine.nvlink_bps:
        lines = "  nvlink: {enabled: false}  # no NVLink\n"
    else:
        lines = f"  nvlink: {{rate: {format_rate(machine.nvlink_bps)}}}  # {machine.links}\n"
    if nic.pcie_bps and nic.pcie_bps < rate_bps:
        lines += f"  pcie: {{enabled: true, rate: {nic.pcie_bps}bps}}  # slower than the NIC\n"
    elif nic.pcie_bps:
        lines += f"  # PCIe to a NIC carries {format_rate(nic.pcie_bps)}, more than the NIC.\n"
    return lines


def _text(text: str) -> str:
    """A text as YAML writes it in one line, quoted where it has to be."""
    return yaml.safe_dump(text, default_flow_style=True, width=10**6).removesuffix("\n").removesuffix("\n...")


def _written(paths: Sequence[Path], parts: Sequence[Part], wish: Wish) -> Imported:
    for key in ("topology", "ncclx"):
        if sum(bool(getattr(part, key)) for part in parts) > 1:
            raise ScenarioError([Problem(str(paths[-1]), 0, "", f"is the second that gives `{key}`", "one")])
    parts = _with_own_names(parts)
    joined = {
        key: "".join(getattr(part, key) for part in parts) for key in ("topology", "host", "ncclx", "jobs")
    }
    if not joined["topology"]:
        most = max(parts, key=lambda part: part.ranks)
        joined["topology"] = _made(most.ranks, most.per_server, wish)
    if not joined["jobs"]:
        joined["jobs"] = (
            "  # No file has a job: this one is a measurement.\n"
            "  - {name: bench, workload: {kind: collective, op: all_reduce, sizes: [1MiB, 16MiB]}}\n"
        )
    names = ", ".join(path.name for path in paths)
    head = f"# Written by `emu import` from {names}; edit it freely.\nname: {wish.name}\n"
    lines: list[str] = []
    origins: dict[int, tuple[str, int]] = {}
    for line in (head + "".join(_section(key, text) for key, text in joined.items() if text)).splitlines():
        found = _MARK.search(line)
        lines.append(line if found is None else line[: found.start()])
        if found is not None:
            origins[len(lines)] = found[1], int(found[2])
    return Imported("".join(f"{line}\n" for line in lines), origins)


def _with_own_names(parts: Sequence[Part]) -> list[Part]:
    """Jobs of which no two have one name: the second trace is trace_2."""
    found: list[Part] = []
    counts: dict[str, int] = {}
    for part in parts:
        named = _NAMED.search(part.jobs)
        if named is not None:
            count = counts[named[0]] = counts.get(named[0], 0) + 1
            if count > 1:
                part = part._replace(jobs=_NAMED.sub(rf"\g<0>_{count}", part.jobs, count=1))  # noqa: PLW2901
        found.append(part)
    return found


def _section(key: str, text: str) -> str:
    """A section, or what there is to say where it has no key."""
    if all(line.lstrip().startswith("#") for line in text.splitlines()):
        return "".join(f"{line.lstrip()}\n" for line in text.splitlines())
    return f"{key}:\n{text}"


def _made(ranks: int, per_server: int, wish: Wish) -> str:
    """One switch, or racks of two servers and more where it would have too many ports."""
    per_server = per_server or (PER_SERVER if ranks % PER_SERVER == 0 else 1)
    hosts = max(ranks // per_server, 1 if ranks > 1 else wish.hosts)
    about = "  # No file has a fabric: "
    rate = f"  link: {format_rate(wish.rate_bps)}\n"
    if hosts * per_server <= MOST_AT_ONE_SWITCH:
        keys = f"  kind: star\n  hosts: {hosts}\n  gpus_per_host: {per_server}\n"
        return f"{about}one switch, and a NIC for each GPU.\n{keys}{rate}"
    each = max(2, -(-hosts // MOST_AT_ONE_SWITCH))
    keys = f"  kind: ai_zone\n  racks: {-(-hosts // each)}\n  hosts_per_rack: {each}\n"
    keys += f"  gpus_per_host: {per_server}\n  spines: 16\n"
    return f"{about}racks of {each} servers, and a NIC for each GPU.\n{keys}{rate}"
