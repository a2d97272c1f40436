"""Workloads of plain verbs that a job posts: flows in a pattern, in a list or in a file.

A flow is so many bytes from one rank to another, posted as perftest's ib_write_bw (ib_send_bw, ib_read_bw)
would: `message` bytes a message, over `qps` queue pairs in turn. With `read`, the receiving rank posts.

How a pattern becomes a list of flows is in `emu.workload.flows`.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Annotated, ClassVar, Final, Literal

from actors.optional.perftest import TX_DEPTH
from emu.base.records import Field
from emu.scenario.section import Refusal, Section
from emu.scenario.workloads.workload import Flows, MisfitError, Site, Workload
from emu.scenario.yaml.values import (
    AutoPositiveSizeBytes,
    AutoPriority,
    PositiveFraction,
    PositiveSizeBytes,
    TimePs,
)
from emu.workload.flows import (
    Flow,
    PatternError,
    check_ranks,
    incast,
    permutation,
    poisson,
    poisson_incasts,
)

LONGEST_MESSAGE_BYTES: Final = 2**31
"""What a message may have (InfiniBand Architecture Specification volume 1, section 9.4.3): RETH's length has
32 bits, and more than 2^31 bytes are not allowed."""
MOST_FLOWS: Final = 2**16
"""Flows of a job that are drawn."""

Rank = Annotated[int, Field(ge=0, le=2**20)]


class FlowsWorkload(Workload):
    """What every pattern shares."""

    parts: ClassVar[tuple[str, ...]] = ("flows",)
    calls_library: ClassVar[bool] = False
    talks: ClassVar[bool] = True
    never_absent: ClassVar[str] = "flows are posted by nobody who could stay away"

    verb: Literal["write", "write_with_imm", "send", "read"] = "write"
    """Verb that is posted. The bytes of a flow go from its source to its destination whatever the verb: with
    `read`, the destination posts."""
    network: Literal["backend", "frontend"] = "backend"
    """Over which NICs: those of the GPUs, or the one of each host on the front end (`frontend.enabled`)."""
    qps: Annotated[int, Field(ge=1, le=128)] = 1
    """Queue pairs of a flow (perftest's -q)."""
    tx_depth: Annotated[int, Field(ge=1, le=16384)] = TX_DEPTH
    """Messages that a queue pair of a flow has outstanding at most (perftest's -t)."""
    message_bytes: AutoPositiveSizeBytes = None
    """Bytes of one message (perftest's -s), at most 2GiB. `auto`: the flow's bytes in equal shares, one for
    each queue pair; of a flow that is longer than these can be, as many of 2GiB as it takes."""

    def write_bytes_of(self, size_bytes: int) -> int:
        """Bytes of a message of a flow of so many bytes."""
        return self.message_bytes or min(-(-size_bytes // self.qps), LONGEST_MESSAGE_BYTES)

    def message_of(self, size_bytes: int) -> int:
        """How long the longest message of a flow of so many bytes is."""
        return min(size_bytes, self.write_bytes_of(size_bytes))

    @property
    def reads(self) -> bool:
        """With the verb `read`."""
        return self.verb == "read"

    @property
    def flows_on_front_end(self) -> bool:
        """As `network` says."""
        return self.network == "frontend"

    def fit(self, site: Site) -> Flows:
        """The flows of the pattern, in messages."""
        try:
            flows = self.drawn(site)
        except PatternError as error:
            raise site.misfit(("workload", error.key), error.reason, error.accepted) from error
        if self.flows_on_front_end:
            self._check_front_end(site, flows)
        longest = max(self.message_of(flow.size_bytes) for flow in flows)
        if longest > LONGEST_MESSAGE_BYTES:
            reason = f"a message of {longest} bytes is longer than a message can be"
            raise site.misfit(("workload", "message"), reason, "at most 2GiB")
        return self.posted(flows)

    def posted(self, flows: Sequence[Flow]) -> Flows:
        """How these flows are posted."""
        sizes = tuple(self.write_bytes_of(flow.size_bytes) for flow in flows)
        return Flows(
            tuple(flows), sizes, self.verb, self.qps, self.flows_on_front_end, tx_depth=self.tx_depth
        )

    def rates_bps(self, site: Site) -> list[int]:
        """The rate of each rank's link to the fabric that the flows use."""
        if self.flows_on_front_end:
            return [site.environment.frontend.link_bps for _ in site.gpus]
        return [site.topology.ports(site.topology.nics_of_gpu(gpu)[0])[0].rate_bps for gpu in site.gpus]

    def drawn(self, site: Site) -> Sequence[Flow]:
        """The flows of the pattern. Raises PatternError, or MisfitError."""
        raise NotImplementedError

    def _check_front_end(self, site: Site, flows: Sequence[Flow]) -> None:
        """Refuse flows that cannot go over the front end. Raises MisfitError."""
        where = ("workload", "network")
        if not site.environment.frontend.enabled:
            accepted = "frontend.enabled: true, or backend"
            raise site.misfit(where, "there is no front-end network", accepted)
        hosts = [site.topology.nodes[one].name for one in site.servers]
        inside = next((one for one in flows if hosts[one.src] == hosts[one.dst]), None)
        if inside is not None:
            name = hosts[inside.src]
            reason = f"ranks {inside.src} and {inside.dst} are both on {name}, which has one NIC there"
            raise site.misfit(where, reason, "ranks of different hosts, or backend")


class Permutation(FlowsWorkload):
    """Every rank sends to one other, and every rank receives from one."""

    kind: Literal["permutation"] = "permutation"
    """A derangement drawn from the scenario's seed."""
    size_bytes: PositiveSizeBytes
    """Bytes of each flow."""
    racks: Literal["any", "distinct", "next"] = "any"
    """Whether a flow may stay in its rack, must leave it, or goes to the same place in the next rack."""

    def drawn(self, site: Site) -> Sequence[Flow]:
        """One flow from every rank."""
        return permutation(site.racks, self.size_bytes, self.racks, site.seed, site.job)


class Incast(FlowsWorkload):
    """Many ranks send to one."""

    kind: Literal["incast"] = "incast"
    """`fan_in` ranks send to `destination`."""
    size_bytes: PositiveSizeBytes
    """Bytes of each flow."""
    fan_in: Annotated[int, Field(ge=1, le=65535)]
    """Number of senders: the ranks that follow the destination in rank order, from the start again after the
    last."""
    destination: Rank = 0
    """The rank that receives."""
    racks: Literal["any", "distinct"] = "any"
    """Whether senders may be of the destination's rack, or not."""

    def drawn(self, site: Site) -> Sequence[Flow]:
        """`fan_in` flows into one rank."""
        return incast(site.racks, self.size_bytes, self.fan_in, self.destination, self.racks)


class OneFlow(Section):
    """One flow of a list."""

    src: Rank
    """The rank that sends."""
    dst: Rank
    """The rank that receives."""
    size_bytes: PositiveSizeBytes
    """Bytes."""
    start_ps: TimePs = 0
    """When it is posted, after the job's own start."""
    priority: AutoPriority = None
    """Traffic class of its queue pairs. `auto`: the job's `data_priority`."""

    def check(self) -> Iterator[Refusal]:
        """Refuse a flow to itself."""
        if self.src == self.dst:
            yield Refusal(("dst",), f"rank {self.dst} sends to itself", "another rank than `src`")


class FlowList(FlowsWorkload):
    """Flows spelled out."""

    kind: Literal["flows"] = "flows"
    """The flows as listed."""
    flows: Annotated[tuple[OneFlow, ...], Field(min_length=1, max_length=2**20)]
    """The flows; a flow's number is its place in the list."""

    def classes(self) -> tuple[int | None, ...]:
        """The traffic class of each flow."""
        return tuple(flow.priority for flow in self.flows)

    def drawn(self, site: Site) -> Sequence[Flow]:
        """As listed."""
        ranks = len(site.gpus)
        flows = [
            Flow(flow.src, flow.dst, flow.size_bytes, flow.start_ps, flow.priority) for flow in self.flows
        ]
        wrong = [
            Refusal(
                site.key("workload", "flows", flow, end),
                f"there is no rank {rank}: the job has {ranks}",
                f"a rank from 0 to {ranks - 1}",
            )
            for flow, end, rank in check_ranks(flows, ranks)
        ]
        if wrong:
            raise MisfitError(wrong)
        return flows


class FlowTable(FlowsWorkload):
    """Flows in a file; loading a scenario turns it into `flows`, so that an effective scenario is
    complete."""

    kind: Literal["flow_table"] = "flow_table"
    """The flows in a CSV file."""
    file: Annotated[str, Field(min_length=1, max_length=4096)]
    """The file, relative to the scenario's own directory. Columns: src, dst, size (with unit) or
    size_bytes, and optionally start (with unit) or start_ps. Or a flow file of HPCC's simulator: a count,
    then source, destination, priority group, port, bytes and start in seconds of each flow."""


class Poisson(FlowsWorkload):
    """Background traffic: flows that arrive at random between random ranks."""

    kind: Literal["poisson"] = "poisson"
    """Flows between ranks drawn evenly, the times between their arrivals exponential."""
    sizes: Literal["web_search", "hadoop"] = "web_search"
    """Their sizes: of DCTCP's web search (1.7 MB in the mean), or of Facebook's Hadoop (120 KB)."""
    load: PositiveFraction = Fraction(1, 10)
    """Bytes posted over bytes that the ranks' links could send, in the mean over time; at most 1."""
    flows: Annotated[int, Field(ge=1, le=MOST_FLOWS)]
    """Number of flows; the job ends with the last of them."""
    size_scale: PositiveFraction = Fraction(1)
    """Factor of all sizes, to make a run shorter at the same load; at most 1."""

    def drawn(self, site: Site) -> Sequence[Flow]:
        """Flows at random times between random ranks."""
        rates_bps = self.rates_bps(site)
        return poisson(rates_bps, self.sizes, self.size_scale, self.load, self.flows, site.seed, site.job)

    def check(self) -> Iterator[Refusal]:
        """Refuse more than there can be."""
        for key, value in (("load", self.load), ("size_scale", self.size_scale)):
            if value > 1:
                yield Refusal((key,), f"{value} is above 1", "a fraction above 0 and up to 1")


class PoissonIncasts(FlowsWorkload):
    """Incasts that arrive at random, as a job beside background traffic."""

    kind: Literal["poisson_incasts"] = "poisson_incasts"
    """Incasts of drawn ranks into a drawn rank, the times between them exponential."""
    fan_in: Annotated[int, Field(ge=1, le=65535)]
    """Senders of each incast, drawn evenly and all different."""
    size_bytes: PositiveSizeBytes
    """Bytes of each sender's flow."""
    load: PositiveFraction = Fraction(1, 50)
    """Bytes posted over bytes that the ranks' links could send, in the mean over time; at most 1."""
    incasts: Annotated[int, Field(ge=1, le=MOST_FLOWS)]
    """Number of incasts; the job ends with the last of them."""

    def drawn(self, site: Site) -> Sequence[Flow]:
        """The flows of all incasts."""
        rates_bps = self.rates_bps(site)
        return poisson_incasts(
            rates_bps, self.size_bytes, self.fan_in, self.load, self.incasts, site.seed, site.job
        )

    def check(self) -> Iterator[Refusal]:
        """Refuse more than there can be."""
        if self.load > 1:
            yield Refusal(("load",), f"{self.load} is above 1", "a fraction above 0 and up to 1")
        flows = self.incasts * self.fan_in
        if flows > MOST_FLOWS:
            reason = f"{self.incasts} incasts of {self.fan_in} flows are {flows} flows"
            yield Refusal(("incasts",), reason, f"at most {MOST_FLOWS // self.fan_in}")
