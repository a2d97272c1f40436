"""Times of requests to a serving job: to the first token, and for each token after it.

How tokens follow from the arrival of keys and values is in `emu.workload.serving`. Percentiles are those of
flows: of n times the one of rank ceil(n x share).
"""

from __future__ import annotations

from collections.abc import Sequence

from emu.measure.summary.percentiles import percentiles
from emu.results.summary import Flow, ServingResult
from emu.workload.serving import ServingFacts, decoded


def serving_result(facts: ServingFacts, start_ps: int, flows: Sequence[Flow]) -> ServingResult:
    """From the flows of a job, `tp` of them for each request; `start_ps` is when the job began."""
    serving, requests = facts.serving, facts.requests
    arrived_ps: dict[int, int] = {}
    sent_ps: list[int] = []
    for number, request in enumerate(requests):
        parts = [one.delivered_ps for one in flows[number * serving.tp : (number + 1) * serving.tp]]
        ends = [at for at in parts if at is not None]
        if len(ends) == len(parts):
            arrived_ps[number] = max(ends) - start_ps
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
    return ServingResult(
        requests=len(requests),
        answered=len(tokens),
        prefill_wait=percentiles([one.begins_ps - one.asked.at_ps for one in requests]),
        transfer=percentiles(sent_ps),
        first_token=percentiles(first_ps),
        each_token=percentiles(each_ps),
        tokens_per_s=round(given * 1e12 / last_ps, 3) if last_ps else None,
    )
