"""What each rank of a training job does in one step.

Dimensions. A rank's coordinates are (tp, cp, pp, dp); `order` says which of them changes fastest from rank to
rank, so it decides which groups stay within a server and which cross tiers. Within DP, `ep` ranks in a row
share a layer's experts. Bytes are of 2-byte activations and parameters, gradients of 4 bytes.

    TP   Megatron's tensor parallelism with sequence parallelism: before attention and before the MLP an
         all_gather of the activations (tokens x h), after each a reduce_scatter; backward the same of their
         gradients. `regather`: only a rank's part of the activations is kept, so the backward pass gathers
         them again for the gradients of the weights, beside the gradients of the input (half of it). With
         `chunks` c (MegaScale) each is cut in c, and a chunk's communication runs beside another's GEMM.
    CP   before attention an all_gather of keys and values of the whole sequence, backward a reduce_scatter of
         their gradients (Llama 3); nothing runs beside it.
    PP   activations to the next stage, gradients to the one before, 1F1B (`emu.workload.pipeline`). Where two
         layers are missing to divide evenly, the first and the last chunk have one fewer (Llama 3: the
         embedding and the logits are there).
         `decoupled` (MegaScale): computing goes on while they are sent; else it waits until they have left
         for the channel buffer (which is at once, where all of them fit into it), interleaved also until
         what the next two passes begin with is there.
    DP   fsdp: an all_gather of each layer's parameters before its first use in the step, a reduce_scatter of
         its gradients after its last, over DP x CP, not gathered again in between (Llama 3). `prefetch`:
         gathered from the step's beginning on, in the order of use, and scattered beside the passes that
         follow; else computing waits for each. ddp: an all_reduce of gradients alone. none: nothing.
         With `replicas` (HSDP) both are within a replica, one of as many equal parts of DP, and each shard's
         gradients are reduced among the replicas afterwards.
    EP   before and after the MLP an exchange of tokens x top_k x h over the group: equal shares, or with
         `expert_skew` shares by Zipf's law, the first rank having most, and computing of the MLP with them.
         Experts' parameters and gradients are shared among the DP ranks that have the same experts.

`parallel_attention` (MegaScale, after GPT-J): attention and MLP begin from the same input, so that a layer
has one norm, one gather and one scatter in place of two. `kernels` has the efficiency of matrix products and
of attention's scores apart, and the memory bandwidth of elementwise operators and of the optimizer's step.

Computing takes FLOPs / (TP x CP) / (peak x efficiency), each layer's attention and MLP apart (`Model`); a
straggler's takes `slowdown` times as long, and jitter moves each piece by up to +-jitter, drawn from the
seed.
`scale` multiplies every size and every duration, which leaves their ratio.

Sources: Megatron-LM sequence parallelism (Korthikanti et al. 2022), section 4.2; The Llama 3 Herd of Models,
section 3.3.2; MegaScale (NSDI'24), section 3.2.

Recomputation (`recompute`). `full`: the backward pass of a layer begins with its forward pass again, with its
computing and its collectives, of every `recompute_every`-th layer. `selective`: with attention's scores alone
(Korthikanti et al. 2022, section 4.3). Neither is counted in model FLOPs, so MFU is lower.

Sharded parameters are gathered once a step, or with `reshard` before each pass of each micro-batch, one layer
ahead of its use (FSDP2's reshard_after_forward). Gradients are reduced after the last micro-batch, or with
`reduce_each` after each. `bucket_bytes`: with ddp, gradients are reduced in buckets of so many bytes, in the
order in which layers are done, across layers (PyTorch's bucket_cap_mb); else each layer's by itself.

Not modelled: experts that change from step to step, the first embedding's gradient, memory.

Models. FLOPs and bytes of a transformer, from its shape.

Per layer and token, in the forward pass, over the whole model:

    projections   2 x parameters of attention: h (2h + 2h k/a) for query, output, key and value
    attention     4 s h: scores and their sum over s tokens (not halved for the causal mask); with a sliding
                  `window` over so many tokens, which MFU counts, too
    MLP           2 x parameters that a token uses: 3 h f gated, 2 h f plain, times top_k experts

and 2 h V for the logits, once. The backward pass is twice the forward pass. Recomputed activations are not
model FLOPs and are not run. h hidden size, a heads, k key/value heads, f MLP size, s sequence, V vocabulary.

Source of the formula: PaLM (2022), appendix B (6N + 12 L H Q T per token, N the parameters); of the shapes:
The Llama 3 Herd of Models, table 3; Language Models are Few-Shot Learners (GPT-3), table 2.1; Mixtral of
Experts (2024), table 1.

Not modelled: embeddings (a look-up), routers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, NamedTuple

from actors.kernel.mixing import Stream
from actors.kernel.units import PS_PER_S
from actors.ncclx.script import COLLECTIVE, EXCHANGE, REASONS, Group, GroupCall, Script, ScriptPlan
from emu.workload.pipeline import Pass, Stage


class Model(NamedTuple):
    """A transformer's shape."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    sequence: int
    gated: bool = True
    """Whether the MLP is gated (three matrices, not two)."""
    experts: int = 1
    top_k: int = 1
    """Experts that a token uses."""
    window: int = 0
    """Tokens that one attends to; 0: the whole sequence."""

    def attention_parameters(self) -> int:
        """Parameters of the attention of one layer."""
        return self.hidden * (2 * self.hidden + 2 * self.hidden * self.kv_heads // self.heads)

    def expert_parameters(self) -> int:
        """Parameters of the MLP of one layer, or of one expert of it."""
        return (3 if self.gated else 2) * self.hidden * self.ffn

    def attention_flops(self, tokens: int) -> int:
        """Forward, of one layer's attention with its projections, over so many tokens."""
        return self.projection_flops(tokens) + self.score_flops(tokens)

    def projection_flops(self, tokens: int) -> int:
        """Forward, of query, key, value and output of one layer."""
        return tokens * 2 * self.attention_parameters()

    def score_flops(self, tokens: int) -> int:
        """Forward, of the scores of one layer and their sum."""
        return tokens * 4 * (self.window or self.sequence) * self.hidden

    def elementwise_bytes(self, tokens: int, *, fused: bool, parallel: bool) -> int:
        """What norms, activation, dropout and residuals of one layer read and write in a forward pass.

        A fused norm or activation passes over its values once, one that is not three times.
        """
        passes = 1 if fused else 3
        norms = (1 if parallel else 2) * 2 * self.hidden
        activation = (3 if self.gated else 2) * self.ffn * self.top_k
        residuals = (1 if parallel else 2) * 3 * self.hidden
        return tokens * VALUE_BYTES * (passes * (norms + activation) + residuals)

    def mlp_flops(self, tokens: int) -> int:
        """Forward, of one layer's MLP, over so many tokens."""
        return tokens * 2 * self.top_k * self.expert_parameters()

    def head_flops(self, tokens: int) -> int:
        """Forward, of the logits, over so many tokens."""
        return tokens * 2 * self.hidden * self.vocab

    def step_flops(self, tokens: int) -> int:
        """Forward and backward, of the whole model, over so many tokens."""
        layer = self.attention_flops(tokens) + self.mlp_flops(tokens)
        return 3 * (self.layers * layer + self.head_flops(tokens))


PRESETS: Final = {
    "llama3-8b": Model(32, 4096, 32, 8, 14336, 128256, 8192),
    "llama3-70b": Model(80, 8192, 64, 8, 28672, 128256, 8192),
    "llama3-405b": Model(126, 16384, 128, 8, 53248, 128256, 8192),
    "gpt3-175b": Model(96, 12288, 96, 96, 49152, 50257, 2048, gated=False),
    "mixtral-8x7b": Model(32, 4096, 32, 8, 14336, 32000, 8192, experts=8, top_k=2),
}
"""Name -> shape."""

DIMENSIONS: Final = ("tp", "cp", "pp", "dp")
TP, CP, DP, EP = (REASONS.index(name) for name in ("tp", "cp", "dp", "ep"))
LOADING: Final = len(REASONS)
"""What a step with data to read can wait for besides."""
VALUE_BYTES: Final = 2
GRADIENT_BYTES: Final = 4
_OPTIMIZER_BYTES: Final = 4 * 4 + 3 * 4 + VALUE_BYTES
_PURPOSE: Final = 0x4A495454
"""Names the random stream of jitter ("JITT")."""
_JITTER_STEPS: Final = 1 << 20


@dataclass(frozen=True)
class Training:
    """What is trained, how it is cut, and which overlaps there are."""

    model: Model
    """With the layers that are run."""
    tp: int
    cp: int
    pp: int
    dp: int
    ep: int
    order: tuple[str, ...]
    batches: int
    """Micro-batches of a step, for each DP rank."""
    batch: int
    """Sequences of a micro-batch."""
    virtual: int
    """Chunks of layers of a stage; above 1 the pipeline is interleaved."""
    data: str
    """fsdp, ddp or none."""
    replicas: int
    """Copies of the model with fsdp, each over dp / replicas places of DP."""
    prefetch: bool
    decoupled: bool
    tp_chunks: int
    regather: bool
    """Whether sequence parallelism gathers activations a second time, in the backward pass."""
    flops_per_s: Fraction
    """Rate of one GPU in matrix products: peak x efficiency."""
    score_flops_per_s: Fraction
    """The same in the scores of attention."""
    memory_bytes_per_s: int
    """What elementwise operators and the optimizer read and write a second; 0: they take no time."""
    fused: bool
    """Whether norms and activations pass over memory once."""
    parallel: bool
    """Whether attention and MLP begin from the same input."""
    loading_ps: int
    """What the data of a step takes to be read."""
    loads_beside: bool
    """Whether that is done beside the step before."""
    expert_weights: tuple[int, ...]
    """Tokens of each rank of an expert group, in proportion; empty: as many for each."""
    peak_flops_per_s: int
    scale: Fraction
    jitter: Fraction
    slowdowns: dict[int, Fraction]
    """By rank."""
    recompute: str = "none"
    """What the backward pass does again: none, selective or full."""
    recompute_every: int = 1
    """With full recomputation, one layer out of this many."""
    reshard: bool = False
    """Whether fsdp gathers parameters again for each pass."""
    reduce_each: bool = False
    """Whether gradients are reduced after each micro-batch."""
    bucket_bytes: int = 0
    """Size of a bucket with ddp; 0: each layer's gradients by themselves."""

    @property
    def ranks(self) -> int:
        """How many GPUs it takes."""
        return self.tp * self.cp * self.pp * self.dp

    @property
    def reasons(self) -> tuple[str, ...]:
        """What a rank can wait for."""
        return (*REASONS, "loading") if self.loading_ps else REASONS

    @property
    def copies(self) -> int:
        """How many times the whole model is there, so that others can go on without one."""
        return self.replicas if self.data == "fsdp" else self.dp // self.ep

    @property
    def shards(self) -> int:
        """Places of DP over which parameters are sharded."""
        return self.dp // self.replicas

    def copy_of(self, rank: int) -> int:
        """To which of the copies a rank belongs."""
        return self.coordinates(rank)["dp"] // (self.dp // self.copies)

    def among(self, members: Sequence[int]) -> Training:
        """The same of the copies whose ranks these are, as the job counts them, in their order."""
        copies = len(members) * self.copies // self.ranks
        return replace(
            self,
            dp=self.dp // self.copies * copies,
            replicas=copies if self.data == "fsdp" else 1,
            slowdowns={
                place: self.slowdowns[rank] for place, rank in enumerate(members) if rank in self.slowdowns
            },
        )

    def size(self, dimension: str) -> int:
        """Size of a dimension."""
        return {"tp": self.tp, "cp": self.cp, "pp": self.pp, "dp": self.dp}[dimension]

    def coordinates(self, rank: int) -> dict[str, int]:
        """A rank's place in every dimension."""
        found: dict[str, int] = {}
        for dimension in self.order:
            rank, found[dimension] = divmod(rank, self.size(dimension))
        return found

    def rank_at(self, coordinates: dict[str, int]) -> int:
        """The rank at a place."""
        rank = 0
        for dimension in reversed(self.order):
            rank = rank * self.size(dimension) + coordinates[dimension]
        return rank

    def tokens(self) -> int:
        """Tokens of a micro-batch."""
        return self.batch * self.model.sequence

    def step_flops(self) -> Fraction:
        """Model FLOPs of a step of the whole job, scaled."""
        return self.model.step_flops(self.tokens()) * self.batches * self.dp * self.scale

    def first_layer(self, stage: int, chunk: int) -> int:
        """How many layers of a stage are before one of its chunks; before `virtual`, all of them."""
        chunks = self.pp * self.virtual
        uneven = self.model.layers % chunks > 0
        each = (self.model.layers + 2 * uneven) // chunks
        first, last = stage == 0 and chunk > 0, stage == self.pp - 1 and chunk == self.virtual
        return each * chunk - uneven * (first + last)

    def rank_compute_ps(self, stage: int) -> int:
        """What one micro-batch, forward and backward, takes a rank of a stage, without jitter."""
        tokens = self.tokens()
        layer = self.attention_ps() + self.mlp_ps() + self.elementwise_ps()
        layers = self.first_layer(stage, self.virtual)
        head = self.duration_ps(self.model.head_flops(tokens)) if stage == self.pp - 1 else 0
        again = sum(map(self.does_again, range(layers))) * layer + layers * self.again_ps()
        return 3 * (layer * layers + head) + again

    def attention_ps(self) -> int:
        """What attention of one layer takes a rank, forward, with its projections."""
        tokens = self.tokens()
        if self.score_flops_per_s == self.flops_per_s:
            return self.duration_ps(self.model.attention_flops(tokens))
        scores = self.model.score_flops(tokens) * self.flops_per_s / self.score_flops_per_s
        return self.duration_ps(self.model.projection_flops(tokens) + scores)

    def again_ps(self) -> int:
        """What the backward pass of a layer computes again with `selective`: the scores of attention."""
        if self.recompute != "selective":
            return 0
        return self.duration_ps(
            self.model.score_flops(self.tokens()) * self.flops_per_s / self.score_flops_per_s
        )

    def does_again(self, layer: int) -> bool:
        """Whether the whole forward pass of a layer is done again before its backward pass."""
        return self.recompute == "full" and layer % self.recompute_every == 0

    def mlp_ps(self, weight: Fraction = Fraction(1)) -> int:
        """What the MLP of one layer takes a rank, forward, that has so many times its share of the tokens."""
        return self.duration_ps(self.model.mlp_flops(self.tokens()) * weight)

    def elementwise_ps(self) -> int:
        """What the elementwise operators of one layer take a rank, forward."""
        if not self.memory_bytes_per_s:
            return 0
        size = self.model.elementwise_bytes(self.tokens(), fused=self.fused, parallel=self.parallel)
        return int(size * self.scale * PS_PER_S / (self.memory_bytes_per_s * self.tp * self.cp))

    def optimizer_ps(self, parameters: int) -> int:
        """What the optimizer takes for so many parameters of a rank: parameters, gradient and two moments in
        four bytes, all but the gradient written back, and the parameters in two."""
        if not self.memory_bytes_per_s:
            return 0
        return int(parameters * _OPTIMIZER_BYTES * self.scale * PS_PER_S / self.memory_bytes_per_s)

    def duration_ps(self, flops: int | Fraction) -> int:
        """What a forward pass of so many FLOPs of the model takes a rank."""
        return int(flops * self.scale * PS_PER_S / (self.flops_per_s * self.tp * self.cp))

    def bytes_of(self, values: int, value_bytes: int = VALUE_BYTES) -> int:
        """Bytes of this many values on the wire, scaled; at least one."""
        return max(int(values * value_bytes * self.scale), 1)


def zipf(ranks: int, exponent: Fraction) -> tuple[int, ...]:
    """Shares of ranks by Zipf's law: of rank k, counted from 1, 1 / k ** exponent, in ten-thousandths."""
    return tuple(max(round(10_000 / (place + 1) ** float(exponent)), 1) for place in range(ranks))


class Plan(ScriptPlan):
    """The groups of a training job and the script of each rank."""

    def __init__(self, training: Training, seed: int, job: int) -> None:
        super().__init__()
        self.reasons = training.reasons
        self.training = training
        self._rings: dict[tuple[object, ...], int] = {}
        written: dict[tuple[object, ...], Script] = {}
        for rank in range(training.ranks):
            writer = _Writer(self, rank, Stream(seed, job << 24 | rank, _PURPOSE))
            like = written.get(writer.kind())
            script = writer.write() if like is None else writer.copied(like)
            written.setdefault(writer.kind(), script)
            self.scripts.append(script)

    def ring(
        self, name: str, reason: int, at: dict[str, int], over: tuple[str, ...], line: range | None = None
    ) -> int:
        """The number of the group of all ranks that differ from a place in these dimensions alone; in the
        last of them, if not at all places, at those of `line`. -1 where that is one rank.
        """
        last = range(self.training.size(over[-1])) if line is None else line
        key = (name, last, *(value for dimension, value in at.items() if dimension not in over))
        found = self._rings.get(key)
        if found is None:
            places = [at]
            for dimension in reversed(over):
                several = last if dimension == over[-1] else range(self.training.size(dimension))
                places = [one | {dimension: place} for one in places for place in several]
            members = tuple(map(self.training.rank_at, places))
            found = self.group(Group(COLLECTIVE, reason, members)) if len(members) > 1 else -1
            self._rings[key] = found
        return found


class _Writer:
    """Writes one rank's script."""

    def __init__(self, plan: Plan, rank: int, stream: Stream) -> None:
        self.plan = plan
        self.training = plan.training
        self.rank = rank
        self.script = Script(rank)
        self._stream = stream
        self._at = self.training.coordinates(rank)
        self._slowdown = self.training.slowdowns.get(rank, Fraction(1))
        self._places: dict[str, int] = {}
        self._gathered: dict[int, tuple[int, ...]] = {}
        self._scattered: list[int] = []
        self._bucket_bytes = 0
        """Gradients that wait for their bucket to be full."""

    def kind(self) -> tuple[object, ...]:
        """Ranks of the same kind do the same, each in groups of its own."""
        training, at = self.training, self._at
        alone = self.rank if training.jitter else -1
        return at["pp"], self._slowdown, at["dp"] % training.ep if training.expert_weights else 0, alone

    def copied(self, like: Script) -> Script:
        """The whole step, of a rank for whose kind it is written."""
        self._join()
        self._pipeline()
        return replace(like, rank=self.rank, groups=self.script.groups, like=like.rank)

    def write(self) -> Script:
        """The whole step."""
        training = self.training
        stage = self._at["pp"]
        self._join()
        pipeline = self._pipeline()
        pipeline.receive()
        order = pipeline.order
        if training.data == "fsdp" and training.prefetch and not training.reshard and "dp" in self._places:
            for layer in range(training.first_layer(stage, training.virtual)):
                self._gathered[layer] = self._parameters(layer, ())
        data = self._read()
        if data >= 0 and not training.loads_beside:
            self.script.wait(data, LOADING)
        last = {one.chunk: place for place, one in enumerate(order) if not one.forward}
        for place, one in enumerate(order):
            pipeline.begin(one)
            scatters = not one.forward and (training.reduce_each or last[one.chunk] == place)
            self._pass(one, scatters=scatters)
            pipeline.end(one)
        self._last_bucket()
        for event in self._scattered:
            self.script.wait(event, DP)
        self._compute(training.optimizer_ps(self._own_values()))
        if data >= 0 and training.loads_beside:  # of the next step
            self.script.wait(data, LOADING)
        return self.script

    def _read(self) -> int:
        """Read the data of a step, on a stream of its own; the event of its end, -1 if it takes no time."""
        if not self.training.loading_ps:
            return -1
        reader = self.script.stream()
        self.script.compute(self.training.loading_ps, reader)
        return self.script.record(reader)

    # ---- groups

    def _join(self) -> None:
        training, at = self.training, self._at
        self._ring("tp", TP, ("tp",))
        self._ring("cp", CP, ("cp",))
        if training.data != "none":
            shards, place = training.shards, at["dp"] % training.shards
            first = at["dp"] - place
            self._ring("dp", DP, ("cp", "dp"), range(first, first + shards))
            if training.ep > 1:
                equal = range(first + place % training.ep, first + shards, training.ep)
                self._ring("experts", DP, ("cp", "dp"), equal)
            if training.replicas > 1:
                self._ring("replicas", DP, ("dp",), range(place, training.dp, shards))
        if training.ep > 1:
            first = at["dp"] // training.ep * training.ep
            experts = [at | {"dp": first + place} for place in range(training.ep)]
            members = tuple(training.rank_at(one) for one in experts)
            self._places["ep"] = self.script.join(self.plan.group(Group(EXCHANGE, EP, members)))

    def _ring(self, name: str, reason: int, over: tuple[str, ...], line: range | None = None) -> None:
        number = self.plan.ring(name, reason, self._at, over, line)
        if number >= 0:
            self._places[name] = self.script.join(number)

    # ---- the pipeline

    def _pipeline(self) -> Stage:
        training = self.training
        values = training.tokens() // training.cp * training.model.hidden // training.tp
        return Stage(
            self.plan,
            self.script,
            [training.rank_at(self._at | {"pp": stage}) for stage in range(training.pp)],
            self._at["pp"],
            batches=training.batches,
            chunks=training.virtual,
            size_bytes=training.bytes_of(values),
            decoupled=training.decoupled,
        )

    def _pass(self, one: Pass, *, scatters: bool) -> None:
        stage = self._at["pp"]
        chunk = range(
            self.training.first_layer(stage, one.chunk), self.training.first_layer(stage, one.chunk + 1)
        )
        final = self._at["pp"] == self.training.pp - 1 and one.chunk == self.training.virtual - 1
        head_ps = self.training.duration_ps(self.training.model.head_flops(self.training.tokens()))
        if not one.forward and final:
            self._compute(2 * head_ps)
        layers = list(chunk if one.forward else reversed(chunk))
        if self.training.reshard:
            self._gather_ahead(layers[:1])
        for at, layer in enumerate(layers):
            if self.training.reshard:
                self._gather_ahead(layers[at + 1 : at + 2])
            self._layer(layer, forward=one.forward)
            if scatters:
                self._gradients()
        if one.forward and final:
            self._compute(head_ps)

    # ---- a layer

    def _layer(self, layer: int, *, forward: bool) -> None:
        training = self.training
        if not forward:
            self._need(layer)
            if training.does_again(layer):
                self._layer(layer, forward=True)
        attention_ps, mlp_ps = training.attention_ps(), training.mlp_ps(self._load())
        elementwise_ps = training.elementwise_ps()
        if training.parallel:
            whole_ps = attention_ps + mlp_ps + elementwise_ps
            if forward:
                self._need(layer)
                self._context("all_gather")
                self._block(whole_ps)
            else:
                self._block(2 * whole_ps + training.again_ps(), backward=True)
                self._context("reduce_scatter")
            return
        attention_ps += elementwise_ps // 2
        mlp_ps += elementwise_ps - elementwise_ps // 2
        if forward:
            self._need(layer)
            self._context("all_gather")
            self._block(attention_ps)
            self._exchanged(mlp_ps)
        else:
            self._exchanged(2 * mlp_ps, backward=True)
            self._block(2 * attention_ps + training.again_ps(), backward=True)
            self._context("reduce_scatter")

    def _load(self) -> Fraction:
        """Tokens of the rank in the MLP over its even share."""
        weights = self.training.expert_weights
        if not weights:
            return Fraction(1)
        return Fraction(weights[self._at["dp"] % self.training.ep] * len(weights), sum(weights))

    def _block(self, duration_ps: int, *, backward: bool = False) -> None:
        """Gather, compute, scatter, each in so many chunks; backward gather twice, the second time beside
        half of the computing."""
        if "tp" not in self._places:
            self._compute(duration_ps)
            return
        training, place = self.training, self._places["tp"]
        chunks = training.tp_chunks
        size = training.bytes_of(training.tokens() // training.cp * training.model.hidden // chunks)
        begun = (self.script.record(),)
        again = backward and training.regather
        # Two chunks ahead where each is gathered twice, so that none waits for what a later one needs.
        ahead = min(2, chunks) if again else chunks
        gathered: list[int] = []
        scattered = -1
        for at in range(chunks):
            while len(gathered) < min(at + ahead, chunks) * (2 if again else 1):
                gathered.append(self.script.call(place, "all_gather", size, begun))
            piece_ps = duration_ps * (at + 1) // chunks - duration_ps * at // chunks
            self.script.wait(gathered[2 * at if again else at], TP)
            if again:
                self._compute(piece_ps // 2)
                self.script.wait(gathered[2 * at + 1], TP)
            self._compute(piece_ps - piece_ps // 2 if again else piece_ps)
            scattered = self.script.call(place, "reduce_scatter", size, (self.script.record(),))
        self.script.wait(scattered, TP)

    def _exchanged(self, duration_ps: int, *, backward: bool = False) -> None:
        """The MLP, between two exchanges of tokens where experts are elsewhere."""
        self._exchange(home=False)
        self._block(duration_ps, backward=backward)
        self._exchange(home=True)

    def _exchange(self, *, home: bool) -> None:
        """Tokens go to the ranks of their experts, or home."""
        if "ep" not in self._places:
            return
        training = self.training
        values = training.tokens() // training.cp * training.model.top_k * training.model.hidden
        size = training.bytes_of(values // training.tp)
        place, weights = self._places["ep"], training.expert_weights
        call = GroupCall("all_to_all", size, "direct")
        if weights:
            rows = tuple((one,) * len(weights) if home else weights for one in weights)
            most = max(map(sum, rows))
            call = GroupCall("all_to_allv", size * most // sum(weights), "direct", weights=rows)
        stream = self.script.stream_of[place]
        self.script.wait(self.script.record(), 0, stream)
        self.script.put_call(place, call)
        self.script.wait(self.script.record(stream), EP)

    def _context(self, op: str) -> None:
        if "cp" in self._places:
            training, model = self.training, self.training.model
            width = 2 * model.hidden * model.kv_heads // model.heads // training.tp
            size = training.bytes_of(training.tokens() * width)
            begun = self.script.record()
            self.script.wait(self.script.call(self._places["cp"], op, size, (begun,)), CP)

    # ---- parameters and gradients

    def _shared(self) -> list[tuple[str, int, int]]:
        """The parameters of one layer that groups share: by group, how many, and over how many ranks."""
        training, model = self.training, self.training.model
        attention, experts = model.attention_parameters(), model.experts * model.expert_parameters()
        among = training.shards * training.cp
        if training.ep == 1:
            return [("dp", (attention + experts) // training.tp, among)]
        return [
            ("dp", attention // training.tp, among),
            ("experts", experts // training.ep // training.tp, among // training.ep),
        ]

    def _own_values(self) -> int:
        """Parameters of this stage that this rank's optimizer has: its shard, or with `ddp` all of them."""
        training = self.training
        layers = training.first_layer(self._at["pp"], training.virtual)
        if training.data == "fsdp":
            return sum(layers * values // among for _, values, among in self._shared())
        return layers * sum(values for _, values, _ in self._shared())

    def _parameters(self, layer: int, after: tuple[int, ...]) -> tuple[int, ...]:
        del layer  # Layers are alike.
        return tuple(
            self.script.call(self._places[name], "all_gather", self.training.bytes_of(values), after)
            for name, values, _ in self._shared()
            if name in self._places
        )

    def _gather_ahead(self, layers: Sequence[int]) -> None:
        """Gather parameters for a pass, from now on."""
        for layer in layers:
            if self.training.data == "fsdp" and "dp" in self._places and self.training.prefetch:
                self._gathered[layer] = self._parameters(layer, (self.script.record(),))
            else:
                self._gathered.pop(layer, None)

    def _need(self, layer: int) -> None:
        """Wait for a layer's parameters, at their first use since they were gathered."""
        if self.training.data != "fsdp" or "dp" not in self._places:
            return
        if not self.training.prefetch and layer not in self._gathered:
            self._gathered[layer] = self._parameters(layer, (self.script.record(),))
        for event in self._gathered[layer]:
            self.script.wait(event, DP)
        self._gathered[layer] = ()

    def _gradients(self) -> None:
        """Send a layer's gradients, after its last backward pass."""
        training = self.training
        if training.bucket_bytes:
            self._into_buckets()
            return
        op = "reduce_scatter" if training.data == "fsdp" else "all_reduce"
        for name, values, among in self._shared():
            calls = [(name, op, values), ("replicas", "all_reduce", values // among)]
            event = -1
            for group, does, many in calls:
                if group in self._places:
                    size = training.bytes_of(many, GRADIENT_BYTES)
                    after = self.script.record() if event < 0 else event
                    event = self.script.call(self._places[group], does, size, (after,))
            if event >= 0 and training.prefetch:
                self._scattered.append(event)
            elif event >= 0:
                self.script.wait(event, DP)

    def _into_buckets(self) -> None:
        """Add a layer's gradients to the bucket underway, and reduce those that are full."""
        training = self.training
        if "dp" not in self._places:
            return
        full = training.bytes_of(training.bucket_bytes, 1)
        self._bucket_bytes += sum(training.bytes_of(many, GRADIENT_BYTES) for _, many, _ in self._shared())
        while self._bucket_bytes >= full:
            self._bucket_bytes -= full
            self._reduce(full)

    def _last_bucket(self) -> None:
        """Reduce what is left in the bucket underway."""
        if self._bucket_bytes:
            self._reduce(self._bucket_bytes)
            self._bucket_bytes = 0

    def _reduce(self, size_bytes: int) -> None:
        event = self.script.call(self._places["dp"], "all_reduce", size_bytes, (self.script.record(),))
        if self.training.prefetch:
            self._scattered.append(event)
        else:
            self.script.wait(event, DP)

    def _compute(self, duration_ps: int) -> None:
        """Compute for this time, stretched by the slowness of this rank and moved by jitter."""
        duration = duration_ps * self._slowdown
        if self.training.jitter:
            drawn = int(self._stream.below(2 * _JITTER_STEPS)) - _JITTER_STEPS
            duration += duration * self.training.jitter * drawn / _JITTER_STEPS
        self.script.compute(int(duration))
