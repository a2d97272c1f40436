"""The algorithm of a collective: its name, or a send/receive graph of the user's own.

`algorithm: FILE` (`.yaml`, `.yml`, `.json`, MSCCL's `.xml`, beside the scenario) becomes `algorithm: graph`
with the file's content in `graph`, in the tree, before anything is validated. A file says into how many
chunks the buffers are cut, and for each rank what it does, in the words of `actors.ncclx.graph`.

The name is one of the library's algorithms, or `default`, or `auto`, the tuner's choice; or `module:Class`, a
class with a method `steps`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from actors.ncclx.algorithms.given import Given, GivenStep
from actors.ncclx.graph import DATA, NOBODY, OUTPUT, SCRATCH, Algorithm
from actors.ncclx.operations import ALGORITHMS
from emu.base.errors import FormatError, Problem, ScenarioError
from emu.base.records import Field, RefusedError
from emu.base.spelling import did_you_mean, shown
from emu.scenario.plugins import SEPARATOR, HookFailure, check_class, load_plugin
from emu.scenario.section import Refusal, Section
from emu.scenario.yaml.document import Node, Place, Scalar, decode, read_document
from emu.scenario.yaml.values import Reading

DEFAULT: Final = "default"
AUTO: Final = "auto"
GRAPH: Final = "graph"
_WORDS: Final = (DEFAULT, AUTO, *ALGORITHMS)
ACCEPTED: Final = ", ".join((*_WORDS, "FILE.yaml", "module:Class"))


def _read(value: object) -> str:
    if isinstance(value, str) and (value in _WORDS or value == GRAPH):
        return value
    if isinstance(value, str) and SEPARATOR in value:
        found = load_plugin(value)
        check_class(value, found, Algorithm, ("steps",), {"actors.ncclx.graph:Algorithm": ("steps",)})
        try:
            found()
        except SystemExit as error:
            raise HookFailure(value, f"its `__init__` called sys.exit({error.code!r})") from error
        except Exception as error:
            reason = f"{value!r} cannot be made: {type(error).__name__}: {' '.join(str(error).split())}"
            raise RefusedError(reason[:400], "a class whose instances take no arguments") from error
        return value
    hint = did_you_mean(value, _WORDS) if isinstance(value, str) else ""
    raise RefusedError(f"{shown(value)} is not one of the choices{hint}", ACCEPTED)


AlgorithmChoice = Annotated[
    str,
    Reading(
        _read,
        str,
        ACCEPTED,
        {"anyOf": [{"enum": [*_WORDS, GRAPH]}, {"type": "string", "pattern": "[.:]"}]},
        "name, file or `module:Class`",
    ),
]


def by_default(op: str) -> str:
    """The algorithm that `default` stands for."""
    return "ring" if op in ALGORITHMS["ring"] else "direct"


def able(op: str) -> list[str]:
    """The algorithms of the library that can do an operation."""
    return [name for name, known in ALGORITHMS.items() if op in known]


_BUFFERS: Final = {"data": DATA, "output": OUTPUT, "scratch": SCRATCH}
MSCCL: Final = ".xml"
SUFFIXES: Final = (".yaml", ".yml", ".json", MSCCL)
Rank = Annotated[int, Field(ge=0, le=1_000_000)]


class GraphStep(Section):
    """One step of one rank: receive, reduce, copy, send, as many of them as are given."""

    receive: Rank | None = None
    """Rank that the chunks come from."""
    reduce: bool = False
    """Whether what comes is added to what is there."""
    copied: tuple[Rank, ...] = ()
    """Chunks of `data` that are copied into `chunks`, where nothing is received."""
    send: tuple[Rank, ...] = ()
    """Ranks that the chunks go to."""
    chunks: Annotated[tuple[Rank, ...], Field(min_length=1)]
    """The chunks, in this order."""
    buffer: Literal["data", "output", "scratch"] = "data"
    """The buffer of the chunk."""
    lane: Annotated[int, Field(ge=0, le=31)] = 0
    """Connections of their own between the same ranks."""

    def check(self) -> Iterator[Refusal]:
        """Refuse a step that does nothing, and a copy that is none."""
        if self.receive is None and not self.send and not self.copied:
            yield Refusal(("chunks",), "the step does nothing with them", "receive, send or copied")
        if self.reduce and self.receive is None:
            yield Refusal(("reduce",), "nothing is received", "only with receive")
        if self.copied and (self.receive is not None or self.send or len(self.copied) != len(self.chunks)):
            yield Refusal(
                ("copied",), "is no plain copy", "as many chunks as in `chunks`, no receive, no send"
            )


class GraphSection(Section):
    """A send/receive graph. What a step reads and writes says what it waits for."""

    chunks: Annotated[int, Field(ge=1, le=65536)]
    """Parts into which the buffer is cut; a multiple of the ranks where it consists of blocks."""
    steps: Annotated[tuple[tuple[GraphStep, ...], ...], Field(min_length=2)]
    """For each rank, what it does, in order."""

    def check(self) -> Iterator[Refusal]:
        """Refuse ranks and chunks that are not there."""
        ranks = len(self.steps)
        for rank, steps in enumerate(self.steps):
            for at, step in enumerate(steps):
                peers = [*step.send, *(() if step.receive is None else (step.receive,))]
                if any(peer >= ranks or peer == rank for peer in peers):
                    accepted = f"0 to {ranks - 1}, not {rank}"
                    yield Refusal(("steps", rank, at), "talks to a rank that is no peer", accepted)
                if any(chunk >= self.chunks for chunk in (*step.chunks, *step.copied)):
                    yield Refusal(("steps", rank, at), "names a chunk too many", f"0 to {self.chunks - 1}")


def own_algorithm(name: str, graph: GraphSection | None) -> Algorithm | None:
    """The algorithm of a collective where it is none of the library's: of a graph, or of the user's class."""
    if graph is not None:
        return Given(
            graph.chunks,
            [
                [
                    GivenStep(
                        NOBODY if step.receive is None else step.receive,
                        step.reduce,
                        step.copied,
                        step.send,
                        step.chunks,
                        _BUFFERS[step.buffer],
                        step.lane,
                    )
                    for step in steps
                ]
                for steps in graph.steps
            ],
        )
    if SEPARATOR not in name:
        return None
    own: Algorithm = load_plugin(name)()
    return own


def put_graphs_in_place(tree: Node, directory: Path, read_file: Callable[[Path], bytes]) -> list[Problem]:
    """Replace every graph named in `jobs` by what its file holds; returns what could not be read."""
    problems: list[Problem] = []
    jobs = tree.child("jobs")
    for index, job in enumerate(_items(jobs)):
        workload = job.child("workload")
        if workload is None:
            continue
        key = f"jobs[{index}].workload"
        problems += _put_in_place(workload, key, directory, read_file)
        for at, operation in enumerate(_items(workload.child("operations"))):
            problems += _put_in_place(operation, f"{key}.operations[{at}]", directory, read_file)
    return problems


def _items(node: Node | None) -> list[Node]:
    return node.value if node is not None and isinstance(node.value, list) else []


def _node(value: Scalar | list[Any] | dict[str, Any], place: Place) -> Node:
    """A plain value in a tree, all of it at one place."""
    if isinstance(value, list):
        return Node([_node(item, place) for item in value], place)
    if isinstance(value, dict):
        node = Node({key: _node(item, place) for key, item in value.items()}, place)
        node.keys = dict.fromkeys(value, place)
        return node
    return Node(value, place)


def _put_in_place(
    node: Node, key: str, directory: Path, read_file: Callable[[Path], bytes]
) -> Iterator[Problem]:
    """Replace the graph that a collective names, if it names one."""
    named = node.child("algorithm")
    if named is None or not isinstance(named.value, str) or not named.value.endswith(SUFFIXES):
        return
    path = directory / named.value
    place = node.keys["algorithm"]
    assert isinstance(node.value, dict), node
    del node.value["algorithm"], node.keys["algorithm"]
    try:
        text = decode(read_file(path), str(path))
        if path.suffix == MSCCL:
            from emu.scenario.readers.msccl import read_msccl  # noqa: PLC0415 - which needs XML

            given = read_msccl(text)
            root = _node({"chunks": given.chunks, "steps": given.steps}, Place(str(path), 1))
            found: list[Problem] = []
        else:
            root, found = read_document(text, str(path))
    except FormatError as error:
        yield Problem(place.file, place.line, f"{key}.algorithm", f"{path}: {error.reason}", error.accepted)
        return
    except ScenarioError as error:
        for problem in error.problems:
            reason = f"{path}: {problem.reason}"
            yield Problem(place.file, place.line, f"{key}.algorithm", reason, problem.accepted)
        return
    yield from found
    node.value |= {"algorithm": Node("graph", place), "graph": root}
    node.keys |= {"algorithm": place, "graph": place}
