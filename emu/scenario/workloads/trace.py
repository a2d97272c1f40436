"""Workloads of traces: a workload text of SimAI, or execution traces of Chakra.

How they are read, and what of them is not modelled, is in `emu.scenario.readers.simai` and
`emu.scenario.readers.chakra`.
"""

import base64
import binascii
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Final, Literal

from actors.ncclx.script import ScriptPlan
from emu.base.records import Field
from emu.scenario.readers.chakra import GROUP_NAME, MOST_TRACE_BYTES, ChakraError, Trace, read_chakra
from emu.scenario.readers.chakra_plan import ChakraPlan
from emu.scenario.readers.chakra_plan import MisfitError as MismatchedTraceError
from emu.scenario.readers.simai import Pipelining, Simai, SimaiError, SimaiPlan, chunks_of, read_simai
from emu.scenario.section import Refusal, Section
from emu.scenario.workloads.workload import Scripts, Site, Workload, training_steps, tuned_calls
from emu.scenario.yaml.values import PositiveFraction, word
from emu.workload.step_facts import TrainingFacts, trace_facts, traced_calls

_LONGEST_BASE64: Final = (MOST_TRACE_BYTES + 2) // 3 * 4


class TraceWorkload(Workload):
    """Steps as a trace tells them."""

    scale: PositiveFraction = Fraction(1)
    """Factor of every size and duration, at most 1."""
    steps: Annotated[int, Field(ge=1, le=1000)] = 1
    """Steps, one after another."""

    def check(self) -> Iterator[Refusal]:
        """Refuse what would make it longer."""
        if self.scale > 1:
            yield Refusal(("scale",), f"{self.scale} is above 1", "a fraction above 0 and up to 1")

    def cut(self) -> str:
        """How it is cut over the ranks."""
        raise NotImplementedError

    def fit(self, site: Site) -> Scripts:
        """What the ranks do in each step, as the tuner likes it."""
        plan = tuned_calls(self.planned(site), site.picks)
        calls = traced_calls(plan, self.steps)
        return Scripts(plan, training_steps(self.steps), self.facts(plan), calls=calls)

    def planned(self, site: Site) -> ScriptPlan:
        """What the ranks do. Raises MisfitError."""
        raise NotImplementedError

    def facts(self, plan: ScriptPlan) -> TrainingFacts:
        """What the results need to know of its steps."""
        return trace_facts(self.steps, len(plan.scripts), self.cut(), self.scale, plan.reasons)


class SimaiTrace(TraceWorkload):
    """Steps as a workload text of SimAI tells them."""

    kind: Literal["simai_trace"] = "simai_trace"
    """SimAI's workload text."""
    file: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """The file, relative to the scenario's own directory; loading puts its text in place."""
    text: Annotated[str, Field(max_length=2**22)] | None = None
    """The text itself."""
    pipeline: Pipelining = "auto"
    """Schedule of the stages of a text with `pp` above 1. `interleaved`: in `vpp` chunks; `1f1b`: in one;
    `auto`: interleaved if micro-batches are a multiple of the stages and can be divided so. `formula`:
    one stage runs the text, and the results have SimAI's bubble beside."""
    micro_batches: Annotated[int, Field(ge=1, le=2**20)] | None = None
    """Run the first so many micro-batches of a text with `pp` above 1."""
    any_ranks: bool = False
    """Whether a job of another size than the text's `all_gpus` runs it, with fewer or more data-parallel
    ranks."""

    def check(self) -> Iterator[Refusal]:
        """Refuse a text that is no such workload."""
        if self.text is None:
            if self.file is None:  # else it could not be read, which is said already
                yield Refusal(("text",), "is missing", "`file`, or the text itself")
            return
        try:
            simai = read_simai(self.text)
        except SimaiError as error:
            yield Refusal(("text",), f"line {error.line}: {error.reason}", error.accepted)
            return
        if self.micro_batches is not None and simai.stages == 1:
            yield Refusal(("micro_batches",), "the text has no stages, whose micro-batches it tells", "none")
        yield from super().check()

    def _read(self) -> Simai:
        simai = read_simai(self.text or "")
        if self.micro_batches is None:
            return simai
        batches = simai.batches[: self.micro_batches]
        layers = (*simai.before, *(layer for batch in batches for layer in batch), *simai.after)
        return simai._replace(batches=batches, layers=layers)

    def cut(self) -> str:
        """How it is cut over the ranks."""
        simai = self._read()
        cut = f"SimAI: {len(simai.layers)} layers, tp {simai.tp}, ep {simai.ep}"
        if simai.stages == 1:
            return cut
        chunks = chunks_of(simai, self.pipeline)
        if self.pipeline == "formula":
            how = "as one stage, with a bubble by SimAI's formula"
        elif chunks == 1:
            how = "1F1B"
        else:
            how = f"interleaved in {chunks} chunks"
        return f"{cut}, pp {simai.stages} {how}, {len(simai.batches)} micro-batches"

    def planned(self, site: Site) -> SimaiPlan:
        """The text, on so many ranks as the job has. Raises MisfitError."""
        simai, ranks = self._read(), len(site.gpus)
        if simai.ranks is not None and simai.ranks != ranks and not self.any_ranks:
            reason = f"the text is for {simai.ranks} GPUs, the job has {ranks}"
            raise site.misfit(("ranks",), reason, f"{simai.ranks} ranks, or any_ranks: true")
        if ranks % (simai.tp * simai.ep * simai.stages):
            stages = f" x pp {simai.stages}" if simai.stages > 1 else ""
            reason = f"tp {simai.tp} x ep {simai.ep}{stages} does not divide {ranks} ranks"
            raise site.misfit(("ranks",), reason, f"a multiple of {simai.tp * simai.ep * simai.stages}")
        chunks = chunks_of(simai, self.pipeline)
        if isinstance(chunks, str):
            raise site.misfit(("workload", "pipeline"), chunks, "pipeline: 1f1b")
        return SimaiPlan(simai, ranks, self.scale, chunks, formula=self.pipeline == "formula")

    def fit(self, site: Site) -> Scripts:
        """The same with the bubble of its pipeline."""
        plan = self.planned(site)
        facts = replace(
            self.facts(plan),
            bubble_ps=(plan.bubble_ps() if plan.formula() is None else 0,) * len(plan.scripts),
            bubble_ideal=round(plan.bubble_ideal(), 6),
            formula=plan.formula(),
        )
        tuned = tuned_calls(plan, site.picks)
        return Scripts(tuned, training_steps(self.steps), facts, calls=traced_calls(tuned, self.steps))


class ProcessGroup(Section):
    """A process group that the nodes of a trace name."""

    name: Annotated[str, word("a name of a group", GROUP_NAME.pattern, "letters, digits, _, ., : and -")]
    """Its pg_name."""
    ranks: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1, max_length=65536)]
    """Its members, in the order of their ring."""


class ChakraTrace(TraceWorkload):
    """Steps as Chakra's execution traces tell them, a file for each rank."""

    kind: Literal["chakra_trace"] = "chakra_trace"
    """Chakra's execution traces."""
    file: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """`NAME` for NAME.0.et, NAME.1.et and so on, a file for each rank, or `NAME.et` for one that all ranks
    carry out; relative to the scenario's own directory. Loading puts what is in them in place."""
    traces: (
        Annotated[
            tuple[Annotated[str, Field(max_length=_LONGEST_BASE64)], ...],
            Field(min_length=1, max_length=65536),
        ]
        | None
    ) = None
    """The files themselves in Base64, one for each rank or one for all."""
    groups: tuple[ProcessGroup, ...] = ()
    """Process groups beside those that the traces list, as ASTRA-sim takes them from its file of
    communicator groups."""
    peak_tflops: Annotated[int, Field(ge=0, le=10**6)] = 0
    """Rate at which a computation is done that has `num_ops` and no duration; 0: it takes no time."""

    def check(self) -> Iterator[Refusal]:
        """Refuse files that are no such traces."""
        if self.traces is None:
            if self.file is None:  # else they could not be read, which is said already
                yield Refusal(("traces",), "is missing", "`file`, or the traces themselves")
            return
        if sum(map(len, self.traces)) > _LONGEST_BASE64:
            yield Refusal(("traces",), "are too large", f"at most {MOST_TRACE_BYTES} bytes in all")
            return
        for rank, one in enumerate(self.traces):
            try:
                _read(one)
            except binascii.Error as error:
                yield Refusal(("traces", rank), f"is no Base64: {error}", "a file's bytes in Base64")
                return
            except ChakraError as error:
                where = f"rank {rank}, {error.unit} {error.line}"
                yield Refusal(("traces", rank), f"{where}: {error.reason}", error.accepted)
                return
        for at, group in enumerate(self.groups):
            if any(group.name == other.name for other in self.groups[:at]):
                yield Refusal(("groups", at), f"{group.name!r} is listed already", "each group once")
        yield from super().check()

    def cut(self) -> str:
        """How it is cut over the ranks."""
        traces = [_read(one) for one in self.traces or ()]
        nodes = sum(len(one.nodes) for one in traces)
        return f"Chakra: {nodes} nodes in {len(traces)} {'files' if len(traces) > 1 else 'file'}"

    def planned(self, site: Site) -> ChakraPlan:
        """The nodes of each rank's trace, in order. Raises MisfitError."""
        traces, ranks = [_read(one) for one in self.traces or ()], len(site.gpus)
        if len(traces) not in (1, ranks):
            reason = f"the traces are for {len(traces)} ranks, the job has {ranks}"
            raise site.misfit(("ranks",), reason, f"{len(traces)} ranks, or one trace for all ranks")
        groups = {group.name: group.ranks for group in self.groups}
        try:
            return ChakraPlan(traces, ranks, groups, self.scale, self.peak_tflops * 10**12)
        except MismatchedTraceError as error:
            raise site.misfit(("workload", "traces"), str(error), error.accepted) from error


@lru_cache(maxsize=1024)
def _read(encoded: str) -> Trace:
    return read_chakra(base64.b64decode(encoded, validate=True))
