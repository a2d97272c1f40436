"""Serving with prefill and decode apart: what requests cost, and when their tokens come out.

An instance is `tp` GPUs that hold the whole model. Requests arrive, wait for the first prefill instance that
is free, and are computed there, one after the other. Then keys and values go to a decode instance (they take
turns), from each GPU to the one at the same place, page by page: a page has `page` tokens of one layer. From
the moment when the last page is there the request takes part in the decode instance's iterations, each of
which gives every request in it one token, up to `most` requests at a time (continuous batching).

    prefill     forward FLOPs of the prompt / (tp x peak x efficiency); logits of its last token alone
    keys, values    2 x layers x h k/a x 2 bytes for each token, 1 / tp of it from each GPU
    iteration   (parameters x 2 bytes + keys and values of all tokens of its requests) / (tp x memory): the
                GPU reads all of that for one token each

So nothing but the transfers depends on the fabric: requests are drawn and prefilled beforehand, transfers are
flows, and iterations follow from when they arrived.

    TTFT    from arrival to the end of the iteration that gives the first token: waiting, prefill, transfer,
            waiting for the iteration before to end, and one iteration
    TPOT    (last token - first token) / (tokens - 1)

Sources: DistServe (OSDI'24), sections 3 and 4 (prefill and decode apart; transfer of the cache); vLLM, pages
of 16 tokens (SOSP'23) and disaggregated prefilling, where the decode instance gives all tokens; Orca
(OSDI'22), continuous batching; FLOPs as in `emu.workload.training`.

Tokens of a prompt that are cached (`cached`, of a trace) are not computed; their keys and values go to the
decode instance like the others.

Not modelled: prefill in batches or chunks, layers that are sent before the last one is computed, how much a
cache of prefixes holds and what it takes to fetch from it, requests that are turned away or swapped out,
communication of tensor parallelism, the request itself and its tokens on the wire.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

from actors.kernel.mixing import Stream
from actors.kernel.units import PS_PER_S
from emu.results.job_facts import JobFacts, JobRows
from emu.results.percentiles import percentiles
from emu.results.serving_result import ServingResult
from emu.results.summary_part import KindResult
from emu.workload.flows import Flow, exponential
from emu.workload.training import VALUE_BYTES, Model

_REQUESTS: Final = 0x53455256
"""Names the random stream of requests ("SERV")."""
_PLACES: Final = 32


class Serving(NamedTuple):
    """Instances and their speed."""

    model: Model
    prefills: int
    decodes: int
    tp: int
    page: int
    """Tokens."""
    most: int
    """Requests of an iteration."""
    flops_per_s: Fraction
    """Rate of one GPU, in prefill."""
    memory_bytes_per_s: int
    """Memory rate of one GPU, in decode."""

    @property
    def ranks(self) -> int:
        """How many GPUs they are; prefill instances are the first."""
        return (self.prefills + self.decodes) * self.tp

    def prefill_ps(self, tokens: int, cached: int = 0) -> int:
        """What a prompt takes of which the first tokens are cached: what it takes less what these take."""
        model = self.model
        flops = model.layers * (self._layer_flops(tokens) - self._layer_flops(cached)) + model.head_flops(1)
        return int(flops * PS_PER_S / (self.flops_per_s * self.tp))

    def _layer_flops(self, tokens: int) -> int:
        """Forward FLOPs of a layer for a prompt."""
        if tokens == 0:
            return 0
        model = self.model._replace(window=min(tokens, self.model.window or tokens))
        return model.attention_flops(tokens) + model.mlp_flops(tokens)

    def token_bytes(self) -> int:
        """Keys and values of a token, all layers."""
        return self.model.layers * self._layer_bytes()

    def page_bytes(self) -> int:
        """A page of one layer, as one GPU has it."""
        return max(self.page * self._layer_bytes() // self.tp, 1)

    def _layer_bytes(self) -> int:
        model = self.model
        return 2 * model.hidden * model.kv_heads // model.heads * VALUE_BYTES

    def iteration_ps(self, tokens: int) -> int:
        """What an iteration takes over requests with so many tokens together."""
        model = self.model
        used = model.attention_parameters() + min(model.experts, model.top_k) * model.expert_parameters()
        weights = (model.layers * used + model.hidden * model.vocab) * VALUE_BYTES
        read = weights + tokens * self.token_bytes()
        return read * PS_PER_S // (self.memory_bytes_per_s * self.tp)


class Asked(NamedTuple):
    """What a request asks for."""

    at_ps: int
    prompt: int
    output: int
    """Tokens."""
    cached: int = 0
    """Tokens at the beginning of the prompt whose keys and values are there."""


class Request(NamedTuple):
    """A request, and what it is given before the fabric comes in."""

    asked: Asked
    prefill: int
    """Which instance."""
    begins_ps: int
    ready_ps: int
    """When its keys and values are computed."""
    decode: int
    """Which instance."""


@dataclass(frozen=True, slots=True)
class ServingFacts(JobFacts):
    """What the results need to know of a serving job, whose flows carry keys and values."""

    serving: Serving
    requests: tuple[Request, ...]

    def results(self, rows: JobRows) -> dict[str, KindResult]:
        """Times of the requests, from the flows of the job: `tp` of them for each request."""
        serving, requests = self.serving, self.requests
        arrived_ps: dict[int, int] = {}
        sent_ps: list[int] = []
        for number, request in enumerate(requests):
            parts = [one.delivered_ps for one in rows.flows[number * serving.tp : (number + 1) * serving.tp]]
            ends = [at for at in parts if at is not None]
            if len(ends) == len(parts):
                arrived_ps[number] = max(ends) - rows.start_ps
                sent_ps.append(arrived_ps[number] - request.ready_ps)
        tokens = decoded(serving, requests, arrived_ps)
        first_ps = [one.first_ps - requests[number].asked.at_ps for number, one in tokens.items()]
        each_ps = [
            (one.last_ps - one.first_ps) // (requests[number].asked.output - 1)
            for number, one in tokens.items()
            if requests[number].asked.output > 1
        ]
        given = sum(requests[number].asked.output for number in tokens)
        last_ps = max((one.last_ps for one in tokens.values()), default=0)
        result = ServingResult(
            requests=len(requests),
            answered=len(tokens),
            prefill_wait=percentiles([one.begins_ps - one.asked.at_ps for one in requests]),
            transfer=percentiles(sent_ps),
            first_token=percentiles(first_ps),
            each_token=percentiles(each_ps),
            tokens_per_s=round(given * 1e12 / last_ps, 3) if last_ps else None,
        )
        return {"serving": result}


class Tokens(NamedTuple):
    """When a request's first and last token came out."""

    first_ps: int
    last_ps: int


def drawn(count: int, gap_ps: Fraction, prompt: int, output: int, seed: int, job: int) -> list[Asked]:
    """Draw `count` requests, the times between them exponential with mean `gap_ps`."""
    stream = Stream(seed, job, _REQUESTS)
    asked: list[Asked] = []
    at = Fraction(0)
    for _ in range(count):
        at = Fraction(int(at + gap_ps * exponential(stream.draw62()) / 2**_PLACES))
        asked.append(Asked(int(at), prompt, output))
    return asked


def prefilled(one: Serving, asked: Iterable[Asked]) -> list[Request]:
    """Requests in the order of their arrival, each with the instance that is free first."""
    free_ps = [0] * one.prefills
    requests: list[Request] = []
    for number, each in enumerate(sorted(asked, key=lambda request: request.at_ps)):
        instance = min(range(one.prefills), key=lambda place: (free_ps[place], place))
        begins_ps = max(each.at_ps, free_ps[instance])
        free_ps[instance] = begins_ps + one.prefill_ps(each.prompt, each.cached)
        requests.append(Request(each, instance, begins_ps, free_ps[instance], number % one.decodes))
    return requests


def transfers(one: Serving, requests: Sequence[Request]) -> list[Flow]:
    """The keys and values of each request, `tp` flows for each, in order; whole pages."""
    flows: list[Flow] = []
    for request in requests:
        pages = -(-request.asked.prompt // one.page) * one.model.layers
        source, destination = request.prefill * one.tp, (one.prefills + request.decode) * one.tp
        flows += [
            Flow(source + lane, destination + lane, pages * one.page_bytes(), request.ready_ps)
            for lane in range(one.tp)
        ]
    return flows


def decoded(one: Serving, requests: Sequence[Request], arrived_ps: Mapping[int, int]) -> dict[int, Tokens]:
    """The tokens of the requests whose keys and values arrived, by number."""
    found: dict[int, Tokens] = {}
    for instance in range(one.decodes):
        waiting = sorted(
            (at_ps, number) for number, at_ps in arrived_ps.items() if requests[number].decode == instance
        )
        found |= _iterations(one, requests, waiting[::-1])
    return found


def _iterations(
    one: Serving, requests: Sequence[Request], waiting: list[tuple[int, int]]
) -> dict[int, Tokens]:
    """The iterations of one instance; the first of `waiting` is its last."""
    found: dict[int, Tokens] = {}
    given: dict[int, int] = {}
    first_ps: dict[int, int] = {}
    now_ps = 0
    while waiting or given:
        if not given:
            now_ps = max(now_ps, waiting[-1][0])
        while waiting and waiting[-1][0] <= now_ps and len(given) < one.most:
            given[waiting.pop()[1]] = 0
        held = sum(requests[number].asked.prompt + tokens for number, tokens in given.items())
        now_ps += one.iteration_ps(held)
        for number in list(given):
            given[number] += 1
            first_ps.setdefault(number, now_ps)
            if given[number] == requests[number].asked.output:
                found[number] = Tokens(first_ps[number], now_ps)
                del given[number]
    return found
