"""Workload `training`: the model, its parallelism over the GPUs, and its overlaps.

Workload `training`. What its steps consist of is in `emu.workload.training`; how much a layer computes and
holds in `emu.workload.training`. Sources: The Llama 3 Herd of Models, section 3.3 (order of dimensions, FSDP,
context parallelism); MegaScale (NSDI'24), section 3.2 (overlaps, stragglers).
"""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Annotated, Final, Literal

from actors.ncclx.script import with_memberships
from emu.base.records import Field
from emu.base.units import parse_fraction
from emu.scenario.section import Refusal, Section
from emu.scenario.workloads.recover import RecoverSection
from emu.scenario.workloads.workload import Scripts, Site, Workload, training_steps, tuned_calls
from emu.scenario.yaml.values import (
    AutoFractionToOne,
    AutoPositiveSizeBytes,
    AutoRateBps,
    FractionToOne,
    PositiveFraction,
    Reading,
    TimePs,
)
from emu.workload.step_facts import facts_of
from emu.workload.training import DIMENSIONS, PRESETS, Model, Plan, Training, zipf

Degree = Annotated[int, Field(ge=1, le=65536)]
Dimension = Literal["tp", "cp", "pp", "dp"]
SHARE_ACCEPTED: Final = "a fraction from 0 to below 1, like 0.02"


def _read_share(value: object) -> Fraction:
    return parse_fraction(value)


Share = Annotated[
    Fraction,
    Reading(
        _read_share,
        str,
        SHARE_ACCEPTED,
        {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]},
        "fraction",
    ),
]


class OwnModel(Section):
    """The shape of a model that is no preset."""

    layers: Annotated[int, Field(ge=1, le=4096)]
    """Layers."""
    hidden: Annotated[int, Field(ge=1, le=2**20)]
    """Hidden size."""
    heads: Annotated[int, Field(ge=1, le=2**16)]
    """Attention heads."""
    kv_heads: Annotated[int, Field(ge=1, le=2**16)]
    """Heads of keys and values."""
    ffn: Annotated[int, Field(ge=1, le=2**22)]
    """Width of the MLP, or of one expert."""
    vocab: Annotated[int, Field(ge=0, le=2**24)] = 0
    """Vocabulary; 0 leaves the logits out."""
    sequence: Annotated[int, Field(ge=1, le=2**24)]
    """Tokens of a sequence."""
    gated: bool = True
    """Whether the MLP has three matrices (SwiGLU), not two."""
    experts: Annotated[int, Field(ge=1, le=4096)] = 1
    """Experts of a layer."""
    top_k: Annotated[int, Field(ge=1, le=4096)] = 1
    """Experts that a token uses."""


class Overlap(Section):
    """What communication runs beside."""

    fsdp_prefetch: bool = True
    """Parameters are gathered ahead of use and gradients scattered beside the passes that follow."""
    decoupled_pipeline: bool = True
    """A stage computes on while its activations are sent."""
    tp_chunks: Annotated[int, Field(ge=1, le=64)] = 1
    """Pieces of a tensor-parallel GEMM; with more than one, a piece's communication runs beside another's
    computing."""


class Kernels(Section):
    """How fast the kinds of kernels are. One calibration, in docs/training.md, has numbers of an A100."""

    gemm: AutoFractionToOne = None
    """Share of the peak that matrix products reach. `auto`: `efficiency`."""
    attention: AutoFractionToOne = None
    """Share of the peak that the scores of attention reach, forward and backward. `auto`: `efficiency`."""
    memory_bps: AutoRateBps = None
    """Bandwidth that elementwise operators (norms, activation, dropout, residuals) and the optimizer's step
    reach. `auto`: they take no time."""
    fused: bool = True
    """Whether norms and activations pass over memory once, or three times (MegaScale, section 3.2). Needs
    `memory`."""


class Loading(Section):
    """Data for a step (MegaScale, section 3.4)."""

    time_ps: TimePs = 0
    """Time of one reader for the data of a step."""
    asynchronous: bool = True
    """Whether that is done beside the step before, so that a step waits for what is longer; otherwise it
    waits for all of it."""
    shared: bool = True
    """Whether one reader of a server serves its tensor-parallel group; otherwise each rank reads, and they
    share the disk."""


class SlowRank(Section):
    """A slow GPU."""

    rank: Annotated[int, Field(ge=0, le=2**20)]
    """Whose."""
    slowdown: PositiveFraction = Fraction(11, 10)
    """Factor of its computing time (MegaScale: 0.5 % of hosts about 1.1)."""


class TrainingWorkload(Workload):
    """Steps of training a transformer."""

    kind: Literal["training"] = "training"
    """Training steps."""
    model: Literal["llama3-8b", "llama3-70b", "llama3-405b", "gpt3-175b", "mixtral-8x7b", "own"]
    """The model: a preset, or `own`."""
    own: OwnModel | None = None
    """The shape, with `model: own`."""
    layers: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Layers that are run, if not all; the factor is printed. A multiple of the pipeline's chunks, or two
    less: then the first and the last chunk have one fewer (126 over 16 stages, Llama 3)."""
    sequence: Annotated[int, Field(ge=1, le=2**24)] | None = None
    """Tokens of a sequence, if not the model's."""
    scale: FractionToOne = Fraction(1)
    """Factor of every size and duration, for a shorter run at the same ratio. Latencies stay, so the MFU is
    not comparable with that of the whole."""
    tp: Degree = 1
    """Tensor parallelism."""
    cp: Degree = 1
    """Context parallelism."""
    pp: Degree = 1
    """Pipeline stages."""
    dp: Degree | None = None
    """Data parallelism; unless given, what the job's ranks leave."""
    ep: Degree = 1
    """Expert parallelism, within DP."""
    order: Annotated[tuple[Dimension, ...], Field(min_length=4, max_length=4)] = ("tp", "cp", "pp", "dp")
    """Dimensions, the one that changes fastest from rank to rank first."""
    micro_batches: Annotated[int, Field(ge=1, le=4096)] = 1
    """Micro-batches of a step, for each DP rank."""
    micro_batch: Annotated[int, Field(ge=1, le=4096)] = 1
    """Sequences of a micro-batch."""
    virtual_stages: Annotated[int, Field(ge=1, le=64)] = 1
    """Chunks of layers of a pipeline stage; above 1 the pipeline is interleaved."""
    data: Literal["fsdp", "ddp", "none"] = "fsdp"
    """Sharing among data-parallel ranks: parameters and gradients (fsdp), gradients alone (ddp), nothing."""
    replicas: Annotated[int, Field(ge=1, le=65536)] = 1
    """With `data: fsdp`: copies of the model, each sharded over DP / replicas (x CP) ranks, among which the
    shards' gradients are reduced (HSDP). `jobs[].recover` goes on without those that lose a rank."""
    overlap: Overlap = Overlap()
    """Communication that runs beside computing."""
    parallel_attention: bool = False
    """Whether attention and MLP begin from the same input, which halves the communication of tensor
    parallelism (MegaScale, section 3.1; Wang and Komatsuzaki 2021)."""
    window: Annotated[int, Field(ge=1, le=2**24)] | None = None
    """Sliding window: tokens that one attends to, if not all (MegaScale, section 3.1; Beltagy et al.
    2020)."""
    larger_batches: Annotated[int, Field(ge=1, le=64)] = 1
    """Micro-batches of a step, times so many: what LAMB allows, so that pipeline, gradients and optimizer are
    paid for less often (MegaScale, section 3.1: 4; You et al. 2020)."""
    expert_skew: Share = Fraction(0)
    """Exponent of Zipf's law by which tokens go to the ranks of an expert group; 0: evenly."""
    loading: Loading = Loading()
    """Data for a step."""
    kernels: Kernels = Kernels()
    """Efficiency by kind of kernel."""
    regather: bool = True
    """Whether tensor parallelism gathers activations a second time, in the backward pass: sequence
    parallelism keeps a rank's part alone (Korthikanti et al. 2022, section 4.2.2). Runs beside half of the
    computing."""
    recompute: Literal["none", "selective", "full"] = "none"
    """Recomputation in the backward pass: nothing; attention's scores (Megatron's `--recompute-granularity
    selective`); whole layers, with their collectives (`full`)."""
    recompute_every: Annotated[int, Field(ge=1, le=4096)] = 1
    """With `recompute: full`: of so many layers one (torchtitan's `selective_ac_option`)."""
    reshard: bool = False
    """Whether FSDP drops a layer's parameters after its forward pass, and gathers them for each pass of each
    micro-batch, one layer ahead (FSDP2's `reshard_after_forward`)."""
    reduce_each: bool = False
    """Whether gradients are reduced after each micro-batch, not once after the last (gradient accumulation
    without `no_sync`)."""
    bucket_bytes: AutoPositiveSizeBytes = None
    """With `data: ddp`: bytes of gradients that are reduced together (PyTorch's `bucket_cap_mb`, 25 MiB).
    `auto`: each layer's."""
    peak_tflops: Annotated[int, Field(ge=1, le=10**6)] = 989
    """Peak rate of one GPU (H100, BF16, dense)."""
    efficiency: FractionToOne = Fraction(6, 10)
    """Share of it that kernels reach, communication apart."""
    jitter: Share = Fraction(0)
    """Largest change of each piece of computing, drawn evenly from the seed."""
    stragglers: Annotated[tuple[SlowRank, ...], Field(max_length=65536)] = ()
    """Slow GPUs."""
    steps: Annotated[int, Field(ge=1, le=1000)] = 1
    """Steps, one after another."""

    def shape(self) -> Model:
        """The whole model, with the sequence that is run."""
        model = PRESETS[self.model] if self.own is None else Model(**self.own.model_dump())
        model = model._replace(sequence=self.sequence or model.sequence)
        return model._replace(window=min(self.window or model.sequence, model.sequence))

    def check(self) -> Iterator[Refusal]:
        """Refuse what cannot be cut as asked."""
        if (self.model == "own") != (self.own is not None):
            yield Refusal(("own",), "goes with `model: own`, and only with that", "both or neither")
            return
        model = self.shape()
        layers = self.layers or model.layers
        if layers > model.layers:
            yield Refusal(("layers",), f"the model has {model.layers}", f"at most {model.layers}")
        chunks = self.pp * self.virtual_stages
        if layers < chunks == self.pp:
            yield Refusal(("pp",), f"{layers} layers leave a stage without one", f"at most {layers}")
            return
        if layers % chunks and (layers + 2) % chunks:
            reason = f"{layers} layers do not divide into {self.pp} x {self.virtual_stages} chunks"
            accepted = f"a multiple of {chunks}, or two less: the first and the last have one fewer"
            yield Refusal(("layers",), reason, accepted)
        if self.virtual_stages > 1 and (self.pp == 1 or self.micro_batches * self.larger_batches % self.pp):
            reason = f"interleaving takes micro-batches in multiples of {self.pp} stages, two or more"
            yield Refusal(("virtual_stages",), reason, "1, or such `pp` and `micro_batches`")
        if sorted(self.order) != sorted(DIMENSIONS):
            yield Refusal(("order",), "does not name each dimension once", "tp, cp, pp and dp in any order")
        if model.heads % self.tp:
            yield Refusal(("tp",), f"does not divide {model.heads} heads", f"a divisor of {model.heads}")
        if self.parallel_attention and model.experts > 1:
            reason = "experts are exchanged between attention and the MLP, which are one block"
            yield Refusal(("parallel_attention",), reason, "false, or a model without experts")
        if model.sequence % (self.cp * self.tp):
            reason = f"CP x TP does not divide a sequence of {model.sequence}"
            yield Refusal(("cp",), reason, "a divisor, TP counted")
        if model.experts % self.ep or (self.dp is not None and self.dp % self.ep):
            reason = f"does not divide the experts ({model.experts}) and `dp`"
            yield Refusal(("ep",), reason, "a divisor of both")
        yield from self._check_idle_keys()
        yield from self._check_stragglers()
        if self.jitter >= 1:
            yield Refusal(("jitter",), f"{self.jitter} is not below 1", SHARE_ACCEPTED)

    def _check_idle_keys(self) -> Iterator[Refusal]:
        """Refuse keys that would change nothing without another."""
        if not self.kernels.fused and self.kernels.memory_bps is None:
            reason = "elementwise operators take no time without `kernels.memory`, however often they pass"
            yield Refusal(("kernels", "fused"), reason, "true, or a rate as `kernels.memory`")
        if self.overlap.tp_chunks > 1 and self.tp == 1:
            yield Refusal(
                ("overlap", "tp_chunks"), "no rank waits for tensor parallelism", "1, or `tp` above 1"
            )
        if self.expert_skew and self.ep == 1:
            yield Refusal(("expert_skew",), "no rank exchanges tokens", "0, or `ep` above 1")
        if self.recompute != "full" and self.recompute_every > 1:
            yield Refusal(("recompute_every",), "is of whole layers", "1, or `recompute: full`")
        if self.reshard and self.data != "fsdp":
            yield Refusal(("reshard",), f"`data: {self.data}` shards nothing", "false, or `data: fsdp`")
        if self.reduce_each and (self.data == "none" or self.micro_batches * self.larger_batches == 1):
            reason = "there is one micro-batch, or nothing is reduced"
            yield Refusal(("reduce_each",), reason, "false, or `data` with several `micro_batches`")
        if self.bucket_bytes is not None and (self.data != "ddp" or self.ep > 1):
            reason = "buckets are of gradients that all data-parallel ranks reduce"
            yield Refusal(("bucket",), reason, "auto, or `data: ddp` without `ep`")
        if self.replicas > 1 and self.data != "fsdp":
            reason = f"`data: {self.data}` shards nothing"
            yield Refusal(("replicas",), reason, "1, or `data: fsdp`")

    def _check_stragglers(self) -> Iterator[Refusal]:
        """Refuse a rank that is listed twice."""
        slow = [one.rank for one in self.stragglers]
        for at, rank in enumerate(slow):
            if rank in slow[:at]:
                yield Refusal(("stragglers", at, "rank"), f"rank {rank} is listed already", "each rank once")

    def fitted(self, ranks: int, spares: int = 0) -> Training | str:
        """The job over so many ranks, but for some that are spare; or why it does not fit them."""
        rest = self.tp * self.cp * self.pp
        dp = self.dp or max((ranks - spares) // rest, 1)
        cut = f"tp {self.tp} x cp {self.cp} x pp {self.pp} x dp {dp}"
        if rest * dp != ranks - spares:
            return f"{cut} is {rest * dp} ranks, the job has {ranks}" + (
                f", {spares} to spare" if spares else ""
            )
        if dp % (self.replicas * self.ep):
            parts = f"{self.replicas} replicas" if self.replicas > 1 else ""
            whole = f"{parts} x ep {self.ep}" if parts and self.ep > 1 else parts or f"ep {self.ep}"
            verb = "does not" if whole.startswith("ep") else "do not"
            return f"{whole} {verb} divide dp {dp}"
        wrong = [one.rank for one in self.stragglers if one.rank >= ranks]
        if wrong:
            return f"there is no rank {wrong[0]} to be slow: the job has {ranks}"
        model = self.shape()
        gemm, scores = (one or self.efficiency for one in (self.kernels.gemm, self.kernels.attention))
        return Training(
            model=model._replace(layers=self.layers or model.layers),
            tp=self.tp,
            cp=self.cp,
            pp=self.pp,
            dp=dp,
            ep=self.ep,
            order=self.order,
            batches=self.micro_batches * self.larger_batches,
            batch=self.micro_batch,
            virtual=self.virtual_stages,
            data=self.data,
            replicas=self.replicas,
            prefetch=self.overlap.fsdp_prefetch,
            decoupled=self.overlap.decoupled_pipeline,
            tp_chunks=self.overlap.tp_chunks,
            regather=self.regather,
            flops_per_s=gemm * self.peak_tflops * 10**12,
            score_flops_per_s=scores * self.peak_tflops * 10**12,
            memory_bytes_per_s=(self.kernels.memory_bps or 0) // 8,
            fused=self.kernels.fused,
            parallel=self.parallel_attention,
            loading_ps=int(self.loading.time_ps * (1 if self.loading.shared else self.tp) * self.scale),
            loads_beside=self.loading.asynchronous,
            expert_weights=zipf(self.ep, self.expert_skew) if self.expert_skew else (),
            peak_flops_per_s=self.peak_tflops * 10**12,
            scale=self.scale,
            jitter=self.jitter,
            slowdowns={one.rank: one.slowdown for one in self.stragglers},
            recompute=self.recompute,
            recompute_every=self.recompute_every,
            reshard=self.reshard,
            reduce_each=self.reduce_each,
            bucket_bytes=self.bucket_bytes or 0,
        )

    def misfit(self, ranks: int) -> tuple[str, str] | None:
        """Why so many ranks cannot have it, and what they can have."""
        fitted = self.fitted(ranks)
        return (fitted, f"degrees that make {ranks}") if isinstance(fitted, str) else None

    def recovered(self) -> Iterator[tuple[str, str]]:
        """Replicas are left; `fit` looks whether there are any."""
        yield from ()

    def slow_ranks(self) -> dict[int, Fraction]:
        """As `stragglers` has them."""
        return {one.rank: one.slowdown for one in self.stragglers}

    def peers(self, ranks: int) -> list[dict[str, list[int]]]:
        """By dimension of the parallelism that has several ranks."""
        training = self.fitted(ranks)
        if isinstance(training, str):
            return []
        return [
            {
                dimension: [
                    training.rank_at(here | {dimension: at}) for at in range(training.size(dimension))
                ]
                for dimension in here
                if training.size(dimension) > 1
            }
            for here in (training.coordinates(rank) for rank in range(ranks))
        ]

    def fit(self, site: Site) -> Scripts:
        """The steps of each rank, as the tuner likes their collectives."""
        spares = len(site.recover.spares) if site.recover else 0
        fitted = self.fitted(len(site.gpus), spares)
        if isinstance(fitted, str):
            accepted = "dimensions whose product is the number of ranks, replicas and ep that divide dp"
            raise site.misfit(("workload",), fitted, accepted)
        if site.recover is None:
            plan = Plan(fitted, site.seed, site.job)
            tuned_calls(plan, site.picks)
        else:
            plan = self._recovering(site, site.recover, fitted)
        facts = facts_of(self.steps, plan.training, self.shape())
        bubble_ps = (*facts.bubble_ps, *([0] * spares))  # which are of no stage
        facts = replace(facts, bubble_ps=bubble_ps, members=tuple(plan.memberships))
        return Scripts(plan, training_steps(self.steps), facts)

    def _recovering(self, site: Site, recover: RecoverSection, fitted: Training) -> Plan:
        """Steps that go on without replicas that lose a rank: those that are left do the same with fewer."""
        if fitted.copies == 1:
            reason = "no other rank has the parameters that a lost one has a part of"
            accepted = "`data: ddp`, or `data: fsdp` with `replicas`, of 2 replicas or more"
            raise site.misfit(("recover",), reason, accepted)
        if recover.spares and fitted.pp > 1:
            reason = "a spare is of no stage before it is needed"
            raise site.misfit(("recover", "spares"), reason, "none, or `pp: 1`")
        made = []
        for members in site.memberships([fitted.copy_of(rank) for rank in range(fitted.ranks)]):
            plan = Plan(fitted.among(members), site.seed, site.job)
            tuned_calls(plan, site.picks_of(members))
            made.append((plan, dict(enumerate(members)), members))
        return with_memberships(made, len(site.gpus))
