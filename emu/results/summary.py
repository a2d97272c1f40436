"""The schema of `summary.json`.

These models are the declaration: the JSON Schema `docs/summary.schema.json` is generated from them, and a
run's summary is built as them, so the file cannot differ from its documentation.

Units: a name ends in its unit (`_ps`, `_bytes`, `_bps`, `_s`), with three exceptions that carry the field's
own names: `algbw` and `busbw` are bit/s, `bytes` is bytes. Shares are plain fractions, rounded to six
decimals.

Everything outside `engine` is the same, bit for bit, for every number of workers and every placement.
Source of algbw and busbw: nccl-tests, `doc/PERFORMANCE.md`.

What a kind of workload adds to the results of its job is a part in a file of its own
(`emu.results.training_result`), and a field of `Job`.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple, get_args

from emu.base.records import Field
from emu.results.percentiles import FlowTimes
from emu.results.serving_result import ServingResult
from emu.results.storage_result import StorageResult
from emu.results.summary_part import KindResult, Part
from emu.results.training_result import TrainingResult


class Diagnosed(Part):
    """A cause that the run is suspected to have suffered from; see docs/diagnosis.md."""

    cause: str
    """What: `link_down`, `slow_receiver`, `configuration_drift` and so on."""
    place: str
    """Where: a device, a link `a:b`, or a port `a>b`."""
    score: int
    """How directly the evidence points to it, up to 1000."""
    since_ps: int
    """When it began, as far as is known; -1 where nothing tells."""
    sentence: str
    """What happened, in words."""
    evidence: list[str]
    """What speaks for it, a line each."""
    back_ps: int | None = None
    """What it gives back of the time of the job that gains most if this is as built from the start; null
    where that was not emulated."""
    back: float | None = None
    """The same as a share of the time that the job took."""


class Reconfigured(Part):
    """A change of a running configuration that a device logged."""

    at_ps: int
    """When; 0 for what differed from the start."""
    device: str
    """Which device."""
    what: str
    """What it runs with since then, in words."""


class Reference(Part):
    """What a run is compared with, to tell what mattered: the same jobs where all is well."""

    jobs: dict[str, int]
    """How long each job took there that ended well, in ps; of one that repeats, its longest round."""
    alarms: dict[str, int]
    """What an operator is called for, and how often it was counted there."""
    imbalance: dict[str, float]
    """Fullest over the mean, for every group of equal ports that carried payload there."""
    span_ps: int | None = None
    """Where jobs repeat: for how long they ran there; what was counted is compared by virtual time."""


class Counterfactual(Part):
    """What the same jobs come to where some components are as built from the start."""

    healed: list[str]
    """Cause and place of each."""
    jobs: dict[str, int]
    """How long each job took that ended well, in ps; of one that repeats, its longest round."""
    failed: dict[str, str]
    """Status of each job that failed, or came to no end."""
    alarms: dict[str, int]
    """What an operator is called for, and how often it was counted."""
    under_way: list[str] = Field(default_factory=list)
    """Jobs that were not done when it was broken off."""
    until_ps: int = 0
    """When it ended."""
    nudge_ns: int = 0
    """By how much NICs were slower, to see whether an effect stands."""
    left_out: str = ""
    """Jobs that did not run."""
    shared: dict[str, float] = Field(default_factory=dict)
    """The busiest ports that it shared with others, and its share of the payload there."""
    around: str = ""
    """The operation around which a stretch of the run was emulated in place of the whole; its time stands in
    `jobs`. Empty: the whole run."""


class Judged(NamedTuple):
    """What was made of a run at its end: fields of the summary, under their names there."""

    diagnosis: list[Diagnosed]
    reference: Reference | None = None
    counterfactuals: tuple[Counterfactual, ...] = ()
    uncompared_events: int | None = None
    changes: tuple[Reconfigured, ...] = ()


class Unfired(Part):
    """A feature that the scenario configures and that made no difference."""

    feature: str
    """The scenario's key."""
    reason: str
    """One line."""


class Init(Part):
    """A job's init at the bootstrap store (`ncclx.init`)."""

    begun_ps: int
    """When the first rank asked the store."""
    end_ps: int | None
    """When the last host had the last answer; null if some rank never came."""
    time_ps: int | None
    """From the one to the other."""
    rounds: int
    """How often every rank has to come to the store."""
    done: int
    """How many of these rounds are over."""
    missing: list[int]
    """The first ranks that did not come to the present round."""


def init_result(row: Sequence[int]) -> Init:
    """From the controller's row: job, begun_ps, end_ps or -1, rounds over, rounds, missing ranks."""
    _, begun_ps, end_ps, done, rounds, *missing = row
    ended = end_ps >= 0
    return Init(
        begun_ps=begun_ps,
        end_ps=end_ps if ended else None,
        time_ps=end_ps - begun_ps if ended else None,
        rounds=rounds,
        done=done,
        missing=missing,
    )


SCHEMA_VERSION: Final = 2

Ending = Literal["finished", "stalled", "time_limit", "interrupted", "failed"]
Scalar = int | float | str | bool | None


class ScenarioName(Part):
    """Which scenario was run."""

    name: str
    """The scenario's name."""
    seed: int
    """The seed everything random was drawn from."""


class Engine(Part):
    """How the run was carried out: the only part that depends on the machine and on the placement."""

    workers: int
    """Workers, or parts of a run in one process."""
    placement: str
    """`local`, `packed`, `node` or `device`."""
    choice: str = ""
    """Why one process or workers: `asked for`, or what was estimated of both."""
    events: int
    """Events executed by all devices."""
    packet_hops: int
    """Frames other than PFC received by a device over a fabric link."""
    data_packet_hops: int
    """Frames with payload among these."""
    windows: int
    """Windows of the protocol between workers."""
    wall_s: float
    """Wall time of the run, without building and without writing results."""
    cpu_s: float
    """CPU time of all workers for the same span."""
    peak_rss_bytes: int
    """Largest resident memory, summed over workers."""
    recoveries: int
    """How often the run went back to a snapshot because a worker or a connection was lost."""
    snapshots: int
    """Snapshots taken."""
    snapshots_s: float
    """Wall time for which the run stood still for them."""
    solves: int | None = None
    """At flow level, how often rates were worked out for transfers that share links; null at packet level."""
    solved_transfers: int | None = None
    """Transfers in all solutions, counted each time."""
    doubts: list[str] = Field(default_factory=list)
    """What flow level may have wrong in this run by more than the bounds of docs/flow_level.md, and why."""


class ClearToSends(Part):
    """How long clear-to-sends waited on their way: from post to arrival, less the unloaded flight."""

    count: int
    """How many came to senders."""
    p50_ps: int
    """Median."""
    p90_ps: int
    """Nine of ten waited no longer. Like the median the lower end of a bucket at most 3 % wide."""
    max_ps: int
    """The longest wait."""


class Collective(Part):
    """One collective operation."""

    op: str
    """`all_reduce`, `all_to_all` and so on."""
    algorithm: str
    """`ring`, `direct` and so on; empty for a send or receive."""
    communicator: str
    """Communicator of a program, as it names it; empty for a benchmark."""
    bytes: int
    """Size S as nccl-tests counts it; for all_gather and reduce_scatter over all ranks."""
    ranks: int
    """Ranks, the n of the formulas for busbw."""
    iteration: int
    """Counted from 0 for each size; warm-ups are neither counted nor listed. Of a program, the step."""
    start_ps: int | None
    """When the first rank began; null if it did not."""
    end_ps: int | None
    """When the last rank was done; null if it was not."""
    algbw: int | None
    """S / time, bit/s."""
    busbw: int | None
    """algbw x the collective's factor: 2(n-1)/n for all_reduce, (n-1)/n or 1 for others; bit/s."""
    status: str
    """`success`, `unfinished`, or what went wrong."""
    cts_wait: ClearToSends | None
    """How long clear-to-sends waited; null without any, or with `ncclx.admission: none`."""
    wrong: int | None
    """Elements that came out wrong, over all ranks; null unless the scenario says `payload: real`, and where
    there is nothing to compare: after a barrier, or without success."""
    wrong_ranks: list[int] = Field(default_factory=list)
    """Ranks of the job that have some of them, the first sixteen."""


class Flow(Part):
    """One flow: a message of `size` from one NIC to another, as perftest would post it."""

    flow: int
    """Its number in the job."""
    source: str
    """Where it comes from."""
    destination: str
    """Where it goes."""
    bytes: int
    """Payload."""
    start_ps: int | None
    """When the host posted it."""
    delivered_ps: int | None
    """When its last byte was at the receiver."""
    completed_ps: int | None
    """When the sender's host had the completion."""
    throughput_bps: int | None
    """Payload / (delivered - start)."""
    ideal_ps: int | None = None
    """What (delivered - start) is alone in the fabric: doorbell, devices and wires of a shortest path, of
    which the slowest is always busy."""
    slowdown: float | None = None
    """(delivered - start) / ideal."""
    status: str
    """`success`, `unfinished`, or the status of the completion."""


class Kpis(Part):
    """Figures of acceptance tests of one job, from what it did and what its GPUs could send."""

    accelerator_bps: int | None = None
    """B_acc: what the NICs of a rank send, of the server where they are fewest for its ranks; of a job in one
    server, a GPU's NVLinks."""
    jct_ps: int | None = None
    """Time of the steps, or of the timed operations of a benchmark."""
    roofline_ps: int | None = None
    """The least that it can be where nothing overlaps: computing, and S f / B_acc of each call."""
    jct_ratio: float | None = None
    """The one over the other. Below 1 where communication hides behind computing, or stays on NVLink."""
    exposed_ps: int | None = None
    """Of a job in steps: time of a step without computing. ITL_fabric where a step gives a token."""
    overlap: float | None = None
    """Of a job in steps: 1 - (JCT - computing) / time of its calls."""
    jain: float | None = None
    """Jain's fairness index of the throughputs of its flows: 1 / N to 1."""
    interference: float | None = None
    """Time beside the other jobs over time by itself; null without `interference` in `run.kpis`."""


class Convergence(Part):
    """When the rates of all flows had come within a tenth of their mean (`convergence` in `run.kpis`)."""

    flows: int
    """How many there are."""
    since_ps: int
    """When the last of them began."""
    took_ps: int | None
    """From then to the end of the first sample in which each NIC's rate for a flow was within 10 % of the
    mean; null if there was none before the first flow ended. No finer than `run.sample_every`."""
    held: float | None
    """Share of the time from there to the end of the first flow in which that was so."""


class RankFailure(Part):
    """What ended an operation at one rank."""

    rank: int
    """Which."""
    communicator: str
    """Whose call it was; empty in a benchmark."""
    operation: int
    """Its number among the calls of that, from 0; -1 where there was none."""
    status: str
    """`timed_out` by the watchdog, or the status of a completion."""
    waits_for: str
    """`data`, `clear_to_send`, `acknowledgement`, `nothing`, or `error` of a queue pair."""
    peer: int | None
    """The rank at the other end; null where it waits for nobody."""
    nic: str | None
    """The NIC whose queue pair it is."""
    qpn: int | None
    """The queue pair's number; null where data is waited for without clear-to-sends."""
    at_ps: int
    """When."""


class Job(Part):
    """One job."""

    ranks: int
    """How many ranks it has."""
    status: str
    """`success` if everything was; otherwise the first other status; `disabled` if it was not to run."""
    start_ps: int | None
    """Its earliest start."""
    end_ps: int | None
    """Its latest end; null if it did not end."""
    collectives: list[Collective]
    """In the order in which they were planned; of a program, step by step in the order of its list."""
    flows: list[Flow]
    """By number."""
    flow_times: FlowTimes | None = None
    """Null where no flow was delivered."""
    training: TrainingResult | None = None
    """Null unless its workload is a training, a trace or a program."""
    serving: ServingResult | None = None
    """Null unless its workload is serving."""
    storage: StorageResult | None = None
    """Null unless its workload is on storage."""
    init: Init | None = None
    """Null where ranks know each other when time begins."""
    idle_nics: str = ""
    """Which NICs carried nothing, in words, of a job of the library on several servers."""
    idle_ports: str = ""
    """In words, which NICs have fewer queue pairs for the job's data than ports."""
    failures: list[RankFailure]
    """Failures of ranks of collectives, earliest first; at most 64."""
    suspects: list[str]
    """Who never joined, called another size, or lost whom, in a job that did not end well; a line each."""
    kpis: Kpis | None = None
    """Null of a job that did not end well."""

    def of_kind(self) -> dict[str, KindResult]:
        """What its kind of workload adds, by the name of the field; empty for kinds that add nothing."""
        found = {field: getattr(self, field) for field in KIND_FIELDS}
        return {field: one for field, one in found.items() if one is not None}


KIND_FIELDS: Final = tuple(
    field
    for field, info in Job.model_fields.items()
    if any(isinstance(one, type) and issubclass(one, KindResult) for one in get_args(info.annotation))
)
"""Fields of `Job` that some kinds of workload fill, in the order of the report."""


class Drops(Part):
    """Frames dropped."""

    total: int
    """For any reason."""
    congestion: int
    """Because a buffer was full."""
    by_reason: dict[str, int]
    """Every reason with a counter, those with none included."""


class Link(Part):
    """One direction of a fabric link."""

    source: str = Field(key="from")
    """The sender."""
    destination: str = Field(key="to")
    """The receiver."""
    name: str
    """The link, as targets of faults name it."""
    data_bytes: int
    """Payload sent."""
    wire_bytes: int
    """All bytes sent, preamble and gap included."""
    utilisation: float
    """Share of the time in which jobs ran (`ran_ps`) that the wire was busy."""
    paused: float | None
    """Share of `ran_ps` that the receiver had stopped the sender, or left it without credits, for the most
    paused priority."""
    paused_ps: int | None
    """The same as a time."""


class GroupLoad(Part):
    """How a switch spread payload over ports that are equal to it."""

    switch: str
    members: int
    """Ports."""
    idle: int
    """Ports that carried no payload."""
    data_bytes: int
    """Payload over all."""
    max_over_mean: float | None
    """Payload of the fullest over the mean: 1 is even. Null if there was none."""
    towards: list[str]
    """The other end of each member, in the order of ports."""
    loads: list[int]
    """Payload that each member carried, in the same order; bytes."""
    flows: list[int] | None = None
    """Queue pairs for data whose hash leads to each member; null without `flow_counts` in `run.kpis`, and
    where every packet of a queue pair has a choice of its own."""
    flows_max_over_mean: float | None = None
    """MMR: the most of them over the mean."""


class Tier(Part):
    """Payload that crossed the links below the switches of a tier."""

    tier: int
    """1: between NICs and leaves; 2: between leaves and spines; and so on."""
    up_bytes: int
    """Payload sent towards the higher tier."""
    down_bytes: int
    """Payload sent from it."""
    up_bps: int | None = None
    """Payload towards the higher tier over `ran_ps`, all links together; bit/s."""
    down_bps: int | None = None
    """Payload from it, likewise."""
    up_utilisation: float | None = None
    """Share of what all these links could have carried up in `ran_ps`, preamble and gap included."""
    down_utilisation: float | None = None
    """Share of what they could have carried down."""
    up_xoff_frames: int | None = None
    """PFC frames that stop a priority, sent towards the higher tier."""
    down_xoff_frames: int | None = None
    """Those sent from it."""


class Plane(Part):
    """Payload between the NICs and one plane of a fabric whose planes nothing joins."""

    plane: int
    """Its number."""
    switches: int
    """How many it has."""
    up_bytes: int
    """Payload that NICs sent into it."""
    down_bytes: int
    """Payload that it brought to NICs."""
    up_bps: int | None = None
    """Payload of NICs into it over `ran_ps`; bit/s."""
    up_utilisation: float | None = None
    """Share of what the NICs' ports on it could have sent in `ran_ps`, preamble and gap included."""
    drops: int | None = None
    """Frames dropped by its switches and by the NICs' ports on it, for any reason."""
    xoff_frames: int | None = None
    """PFC frames that stop a priority, sent by those."""


class SpanRates(Part):
    """Rates in a part of the run (`run.span`)."""

    from_ps: int
    until_ps: int
    """The end of the span or of the run."""
    delivered_bps: int
    """Payload that NICs delivered, all together; bit/s."""
    tiers: list[Tier]
    """As `fabric.tiers`, of that time alone."""


class Engineering(Part):
    """What traffic engineering did."""

    rounds: int
    """Collections that the controller began."""
    installs: int
    """Entries that it sent."""
    unplaced: int
    """Demands, counted each round, for which no path or table had room."""
    entries: int
    """Entries in all tables at the end."""
    matched_frames: int
    """Frames that left by an entry's port."""
    withdrawn: int
    """Entries that went away because a link on their way went down."""
    refused: int
    """Installs that a switch refused: full table, or no way to the prefix."""


class ServerLoad(Part):
    """What a server of storage or metadata did."""

    server: str
    """Its name."""
    taken_bytes: int
    """Payload that came, requests included."""
    given_bytes: int
    """Payload that it sent."""
    utilisation: float
    """Share of the time in which jobs ran (`ran_ps`) that its disks were busy; of a metadata server, that it
    worked on requests."""


class Timers(Part):
    """Timers of queue pairs that expired, short ones of adaptive retransmission included."""

    expired: int
    """How often."""
    nic: str
    """Whose was the first."""
    at_ps: int
    """When that was."""
    ran_ps: int
    """How long it had run."""
    why: str
    """The reasons that were counted."""


class Fabric(Part):
    """What the network did. What flow level does not know (`fidelity`) is null."""

    drops: Drops | None
    """Frames dropped; also at the top level."""
    pfc_transmit_xoff_frames: int | None
    """PFC frames sent that stop a priority, counted for each priority."""
    pfc_transmit_xon_frames: int | None
    """PFC frames sent that resume a priority, counted for each priority."""
    pfc_paused_ps: int | None
    """Time that ports were stopped, summed over ports and priorities."""
    queue_marked_frames: int | None
    """Frames marked by a switch."""
    nic_retransmitted_frames: int | None
    """Data frames that NICs sent again."""
    nic_out_of_sequence: int | None
    """Packets that arrived with another sequence number than the expected one."""
    nic_local_ack_timeout_err: int | None
    """Times that an acknowledgement timer expired."""
    nic_rnr_nak_retry_err: int | None
    """Times that a requester waited because its responder had no receive posted."""
    timers: Timers | None = None
    """Null if no timer of a queue pair expired, and at flow level."""
    buffer_peak_bytes: int | None
    """Largest use of a switch's shared buffer."""
    buffer_peak_switch: str | None
    """Where."""
    ran_ps: int | None = None
    """How long some job ran, from its first operation to its end; one that did not end well, to the end of
    the run, and one of which nothing ended, from the begin of the run. Utilisations, rates and paused shares
    are over this time."""
    nic_context_misses: int = 0
    """Contexts of queue pairs that NICs had to fetch (`nic.context_cache`)."""
    links: list[Link]
    """Every fabric link, both directions, in the order of the topology; without links between devices that
    did nothing."""
    uplinks: list[GroupLoad]
    """The links that lead up, of every switch with two of them or more that did anything."""
    groups: list[GroupLoad]
    """Every other routing group of two members or more that carried payload: links that run in parallel, ways
    down or across. Of a fabric with all its links; a port that is in several groups counts in each."""
    tiers: list[Tier]
    """Every tier of switches from the lowest on."""
    planes: list[Plane] = Field(default_factory=list)
    """Every plane of the back end, where it has several that nothing joins."""
    servers: list[ServerLoad] = Field(default_factory=list)
    """Every server of storage and metadata on the front end."""
    span: SpanRates | None = None
    """Rates in `run.span`; null where there is none, or the run ended before."""
    worst_max_over_mean: float | None
    """The largest `max_over_mean` of `uplinks`; null if none carried payload."""
    worst_flows_max_over_mean: float | None = None
    """The largest `flows_max_over_mean` of `uplinks`."""
    delivered_bytes: int | None = None
    """S_fabric, measured: payload that NICs delivered, each byte once, clear-to-sends and the flags of LL and
    LL128 as well."""
    derived_bytes: int | None = None
    """S_fabric, derived: S x f x N of all calls, warm-ups too, and the bytes of flows. More than was measured
    where calls stay on NVLink or are reduced on their way."""
    out_of_order: float | None = None
    """`nic_out_of_sequence` over the data frames that NICs received."""
    convergence: Convergence | None = None
    """Null without `convergence` in `run.kpis`, and without flows."""
    idle_uplinks: int
    """Uplinks without payload, of switches whose other uplinks had some."""
    engineering: Engineering | None
    """Null unless `routing.kind` is `traffic_engineering`."""


class FaultEffect(Part):
    """What one fault of the scenario did."""

    kind: str
    """As in the scenario."""
    target: str
    """As in the scenario; behind it, in brackets, what was found to be busiest, or what was drawn."""
    at_ps: int
    """When it began."""
    until_ps: int | None
    """When it ended; null if it lasted."""
    happened: bool
    """Whether the run was still going on when it began."""
    times: int
    """How often it began while the run was going on; a fault of several targets counts each."""
    frames_lost: int | None
    """Frames that its links lost because they were down; null at flow level. Where a link has several
    faults and no sample lies between them, the earliest has the losses of all."""
    loss_time_ps: int | None = None
    """From its begin to the end of the last sample in which its links lost frames for being down; null
    without `loss_time` in `run.kpis`. No finer than `run.sample_every`."""


class Expectation(Part):
    """One line of the scenario's `expect`, and what came of it."""

    value: str
    """The path, as written."""
    relation: str
    """`equals`, `at_least`, ..."""
    expected: Scalar
    """As written; of `between`, both bounds with "and" in the middle."""
    actual: Scalar
    """What the path led to; null if it led nowhere."""
    passed: bool
    """Whether it holds."""
    reason: str
    """Why it does not hold; empty if it does."""


class SelfCheck(Part):
    """One test of a self-check suite."""

    test: str
    """Which: loopback, nic_to_nic, all_to_all inside a server, all_reduce under a ToR."""
    failed: int
    """Hosts that did not pass it."""
    took_ps: int
    """How long it took."""


class RecoveryTimes(Part):
    """What the parts of a restart took; 0 of a part that it did not come to."""

    stop_ps: int
    """From the alarm until the job's processes had ended."""
    self_check_ps: int
    """The suite."""
    launch_ps: int
    """From the placement until the processes ran."""
    init_ps: int
    """Until the ranks had met at the store."""
    load_ps: int
    """Until the checkpoint was on the GPUs."""
    whole_ps: int
    """From the alarm until the job went on; 0 where it did not."""


class Recovery(Part):
    """One restart of the job that an operator tends."""

    rule: Literal["missed", "failed", "silent", "rows", "straggler", "stalled"]
    """By which alert rule the operator noticed."""
    host: str
    """Where; empty where the rule names none."""
    alarm_ps: int
    """When the rule held."""
    since_ps: int
    """When the last step that was done had ended, or the last part of the recovery that this alarm broke
    off."""
    noticed_ps: int
    """When the operator stopped the job: at once, or after a checkpoint where it could wait."""
    stopped_ps: int
    """When all processes had ended."""
    checks: list[SelfCheck]
    """The suite, test after test."""
    evicted: list[str]
    """Hosts that had to go."""
    placed: list[str]
    """Spare hosts, and the hosts whose places they took."""
    resumed_ps: int | None
    """When the job went on; null if it did not."""
    from_step: int | None
    """With which step."""
    lost_steps: int | None
    """Steps that had been done, and were done again."""
    caught_up_ps: int | None
    """When these were done."""
    took: RecoveryTimes
    """What its parts took."""


class SavedCheckpoint(Part):
    """A checkpoint that an operator had saved."""

    step: int
    """How many steps it holds."""
    begun_ps: int
    """When the job stood still for it."""
    whole_ps: int | None
    """When it was in storage whole; null if it never was."""


class TimeSpent(Part):
    """Where the time of a job went that an operator tends. All together are the time from its begin to its
    end.
    """

    kept_ps: int
    """Steps, the last time that each was done."""
    redone_ps: int
    """Steps that were done again later."""
    noticing_ps: int
    """From the end of a step, or of a part of a recovery, until the operator stopped the job: what is lost
    of the next one, and waiting."""
    stopping_ps: int
    """Until the processes had ended."""
    self_check_ps: int
    """Self-check suites."""
    launch_ps: int
    """Launches."""
    init_ps: int
    """Meetings at the store after a restart."""
    load_ps: int
    """Loading checkpoints."""
    between_ps: int
    """Standing still for checkpoints, what the control plane takes from step to step, and the first init."""


class ReportedHost(Part):
    """A host that a rule reported, without a restart."""

    rule: Literal["missed", "failed", "silent", "rows", "straggler", "stalled"]
    """Which."""
    host: str
    """Its name."""
    at_ps: int
    """When the operator looked."""


class HostHealth(Part):
    """What samples of a host's NICs showed, over the whole run (`operator.heartbeat.samples`)."""

    host: str
    """Its name."""
    busiest_bps: int
    """What its NICs had acknowledged in the busiest sample, over the sample's time."""
    longest_stall_ps: int
    """For how long nothing was acknowledged at most, though bytes were under way; in whole samples."""


class OperatorResult(Part):
    """What an operator did for the job that it tends."""

    job: str
    """Its name."""
    ending: Literal["done", "gave_up", "unfinished"]
    """How it ended."""
    reason: Literal["no_spare", "no_restart"] | None
    """Why the operator gave up."""
    begun_ps: int
    """When the job began."""
    end_ps: int
    """When it was done or given up, or the run ended."""
    steps: int
    """Steps that were done, each counted once."""
    restarts: list[Recovery]
    """In order."""
    checkpoints: list[SavedCheckpoint]
    """In order."""
    left_out: int
    """Checkpoints that were due while the one before was still being written."""
    reported: list[ReportedHost] = Field(default_factory=list)
    """In order, each host once for each rule."""
    health: list[HostHealth] = Field(default_factory=list)
    """Health of every host of the job and every spare one, where there are samples."""
    goodput: float
    """The share of the time that is kept."""
    spent: TimeSpent
    """Where the time went."""


class Summary(Part):
    """The outcome of one run."""

    schema_version: int = SCHEMA_VERSION
    """Version of this layout."""
    version: str
    """Version of the emulator."""
    compiled: bool
    """Whether the packet path ran compiled."""
    fidelity: Literal["packet", "flow"] = "packet"
    """Whether packets were emulated, or flows."""
    scenario: ScenarioName
    """Which scenario was run."""
    digest: str
    """SHA-256 over what every device executed; empty if the run did not get that far."""
    ending: Ending
    """How the run ended. After `interrupted` and `failed` the summary is partial."""
    virtual_ps: int
    """Virtual time at its end."""
    engine: Engine
    """How it was carried out."""
    jobs: dict[str, Job]
    """By name, in the order of the scenario."""
    drops: Drops | None
    """The same as `fabric.drops`, for short paths in `expect`."""
    fabric: Fabric
    """What the network did."""
    faults: list[FaultEffect]
    """In the order of the scenario."""
    operator: OperatorResult | None = None
    """Results of the operator that tends the job; null without one."""
    diagnosis: list[Diagnosed] = Field(default_factory=list)
    """What the run suffered from, the likeliest first, as far as an operator can see; empty: nothing. At
    flow level nothing is looked for."""
    reference: Reference | None = None
    """What the run was compared with; null where that was not needed, or too large to be run again."""
    counterfactuals: tuple[Counterfactual, ...] = ()
    """What the same jobs come to with suspects as built: how the diagnosis knows what healing gives back."""
    uncompared_events: int | None = None
    """Where it was too large, of how many events; `emu diagnose RUN --emulate` compares it all the same."""
    changes: tuple[Reconfigured, ...] = ()
    """Changes of configuration that devices logged, with or without harm, in order of time."""
    never_fired: list[Unfired]
    """What was configured in vain. At flow level it is not looked for."""
    expectations: list[Expectation]
    """In the order of the scenario."""

    def plain(self) -> dict[str, Any]:
        """As JSON values, keys as in the file. Paths of `expect` are looked up in this."""
        return self.model_dump(mode="json", by_alias=True)

    def passed(self) -> bool:
        """Whether every expectation holds."""
        return all(one.passed for one in self.expectations)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of `summary.json`."""
    from emu.base.json_schema import json_schema_of  # noqa: PLC0415 - reads sources, which no run needs

    return json_schema_of(Summary)
