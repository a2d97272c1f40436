"""Workload `serving`: requests to prefill and decode instances, and the keys and values between them.

What it means, and its sources, are in `emu.workload.serving`.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Annotated, ClassVar, Final, Literal

from emu.base.records import Field
from emu.base.units import parse_rate
from emu.scenario.section import Refusal, Section
from emu.scenario.workloads.flows import LONGEST_MESSAGE_BYTES, FlowsWorkload
from emu.scenario.workloads.training import OwnModel
from emu.scenario.workloads.workload import Flows, Site
from emu.scenario.yaml.values import FractionToOne, PositiveFraction, RateBps, TimePs
from emu.workload.flows import Flow, PatternError
from emu.workload.serving import Asked, Request, Serving, ServingFacts, drawn, prefilled, transfers
from emu.workload.training import PRESETS, Model

Tokens = Annotated[int, Field(ge=1, le=2**20)]
Instances = Annotated[int, Field(ge=1, le=4096)]
MOST_TOKENS: Final = 2**22
"""Tokens that a job gives in all."""


class AskedRequest(Section):
    """One request of a trace."""

    at_ps: TimePs
    """When it arrives, after the job's start."""
    prompt: Tokens
    """Tokens of the prompt."""
    output: Tokens
    """Tokens that it is given."""
    cached: Annotated[int, Field(ge=0, le=2**20)] = 0
    """Tokens at the beginning of the prompt that are cached, and not computed; fewer than the prompt has."""


class ServingWorkload(FlowsWorkload):
    """Requests to a model whose prefill and decode are on GPUs of their own."""

    parts: ClassVar[tuple[str, ...]] = ("flows", "serving")

    kind: Literal["serving"] = "serving"
    """Requests, with prefill and decode apart."""
    model: Literal["llama3-8b", "llama3-70b", "llama3-405b", "gpt3-175b", "mixtral-8x7b", "own"]
    """The model: a preset, or `own`."""
    own: OwnModel | None = None
    """The shape, with `model: own`."""
    prefills: Instances = 1
    """Prefill instances: the first ranks of the job."""
    decodes: Instances = 1
    """Decode instances: the ranks after them."""
    tp: Annotated[int, Field(ge=1, le=64)] = 1
    """GPUs of an instance."""
    requests: Annotated[int, Field(ge=1, le=2**16)] | None = None
    """Requests that arrive, with `rate`; of a trace, the number of first requests."""
    rate: Annotated[int, Field(ge=1, le=10**6)] | None = None
    """Requests a second in the mean; the times between them are exponential, drawn from the seed."""
    prompt: Tokens = 512
    """Tokens of each prompt, with `rate`."""
    output: Tokens = 32
    """Tokens that each is given, with `rate`."""
    trace: Annotated[tuple[AskedRequest, ...], Field(max_length=2**16)] = ()
    """The requests, in place of `rate`."""
    file: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """A file of requests, relative to the scenario's own directory; loading puts them into `trace`. CSV
    with the columns of Azure's traces of 2023, of vidur's, or at (with unit), prompt, output and perhaps
    cached; or lines of JSON, as Mooncake's traces."""
    time_scale: PositiveFraction = Fraction(1)
    """Factor of the times of a trace: with 1/100 requests arrive a hundred times as fast."""
    page: Annotated[int, Field(ge=1, le=4096)] = 16
    """Tokens of a page of keys and values; a page of one layer is one message. 16 (vLLM)."""
    most: Annotated[int, Field(ge=1, le=4096)] = 256
    """Requests of a decode iteration. 256 (vLLM)."""
    peak_tflops: Annotated[int, Field(ge=1, le=10**6)] = 989
    """Peak rate of one GPU (H100, BF16, dense)."""
    efficiency: FractionToOne = Fraction(6, 10)
    """Share of it that prefill reaches."""
    memory_bps: RateBps = parse_rate("2700GB/s")
    """Memory bandwidth of one GPU in decode: four fifths of an H100's 3.35 TB/s, a choice."""

    def check(self) -> Iterator[Refusal]:
        """Refuse what cannot be served."""
        if (self.model == "own") != (self.own is not None):
            yield Refusal(("own",), "goes with `model: own`, and only with that", "both or neither")
            return
        if self.file is not None:  # not read, which is said already, unless both are given
            if self.trace:
                yield Refusal(("file",), "says beside `trace` when requests arrive", "one of the two")
            return
        if (self.rate is None) != bool(self.trace) or (self.requests is None and not self.trace):
            accepted = "`rate` and `requests`, `trace`, or `file`"
            yield Refusal(("trace",), "does not say once when requests arrive", accepted)
            return
        for at, one in enumerate(self.trace):
            if one.cached >= one.prompt:
                reason = f"{one.cached} of {one.prompt} tokens are cached"
                yield Refusal(("trace", at, "cached"), reason, "fewer: one token is computed at least")
                return
        if self.rate is not None and self.time_scale != 1:
            yield Refusal(("time_scale",), "belongs to a trace", "1, or another `rate`")
        tokens = sum(one.output for one in self._taken()) or (self.requests or 0) * self.output
        if tokens > MOST_TOKENS:
            yield Refusal(("output",), f"{tokens} tokens in all", f"at most {MOST_TOKENS}")
        if self.message_bytes is not None:
            yield Refusal(("message",), "a page of keys and values is a message", "none; `page` in tokens")
        if self.verb not in ("write", "read"):
            yield Refusal(("verb",), f"{self.verb} moves no pages", "write or read")
        shape = self.shape()
        if shape.kv_heads % self.tp:
            yield Refusal(("tp",), f"does not divide {shape.kv_heads} key/value heads", "a divisor")
        if self.serving().page_bytes() > LONGEST_MESSAGE_BYTES:
            yield Refusal(("page",), "a message would be longer than 2 GiB", "a smaller page")

    def _taken(self) -> tuple[AskedRequest, ...]:
        """The requests of the trace that are answered."""
        return self.trace[: self.requests]

    def shape(self) -> Model:
        """The model."""
        return PRESETS[self.model] if self.own is None else Model(**self.own.model_dump())

    def serving(self) -> Serving:
        """Instances and their speed."""
        return Serving(
            model=self.shape(),
            prefills=self.prefills,
            decodes=self.decodes,
            tp=self.tp,
            page=self.page,
            most=self.most,
            flops_per_s=self.efficiency * self.peak_tflops * 10**12,
            memory_bytes_per_s=self.memory_bps // 8,
        )

    def asked(self, seed: int, job: int) -> list[Request]:
        """The requests, prefilled."""
        if self.rate is None or self.requests is None:
            asked = [
                Asked(int(one.at_ps * self.time_scale), one.prompt, one.output, one.cached)
                for one in self._taken()
            ]
        else:
            asked = drawn(self.requests, Fraction(10**12, self.rate), self.prompt, self.output, seed, job)
        return prefilled(self.serving(), asked)

    def drawn(self, site: Site) -> Sequence[Flow]:
        """The transfers of keys and values."""
        ranks = len(site.gpus)
        if self.serving().ranks != ranks:
            cut = f"({self.prefills} + {self.decodes}) instances of {self.tp} GPUs are {self.serving().ranks}"
            raise PatternError("prefills", f"{cut} ranks, the job has {ranks}", "as many")
        return transfers(self.serving(), self.asked(site.seed, site.job))

    def fit(self, site: Site) -> Flows:
        """The same, with the requests that they are of."""
        facts = ServingFacts(self.serving(), tuple(self.asked(site.seed, site.job)))
        return super().fit(site)._replace(facts=facts)

    def write_bytes_of(self, size_bytes: int) -> int:
        """A page of one layer."""
        return min(self.serving().page_bytes(), size_bytes)

    def message_of(self, size_bytes: int) -> int:
        """The same."""
        return self.write_bytes_of(size_bytes)
