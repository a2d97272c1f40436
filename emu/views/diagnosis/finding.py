"""A finding: what, where, since when, and its evidence.

One suspected cause: what, where, since when, one sentence, and the values that speak for it. A finding is
only told if something suffered from it. `alarms` says that its own evidence is something an operator is
called for: losses, timeouts, a link that went down, a job that failed. Otherwise a job must have become
slower since (`emu.views.diagnosis.impact`). `has_impact` stands for that where no time before the finding is
known to compare with: a cause that was there from the start.

`score` ranks findings: the more direct the evidence, the higher. Integers, and ties go by cause and place.
"""

from typing import NamedTuple

from emu.base.foreseen import LATE_MARKING, LOSSY, SHORT_HEADROOM


class Finding(NamedTuple):
    """A suspected cause."""

    cause: str
    """One of `CAUSES`."""
    place: str
    """A device, a link `a:b`, or a port `a>b` as faults name them."""
    score: int
    """How directly the evidence points to it, up to 1000."""
    sentence: str
    """What happened, in words."""
    evidence: tuple[str, ...] = ()
    """Series or table, place and value; a line each."""
    since_ps: int = 0
    """When it began, as far as is known; -1 where nothing tells."""
    alarms: bool = False
    """Whether the evidence itself is something to be called for."""
    has_impact: bool = False
    """Whether the evidence itself shows an impact where there is no earlier time to compare with."""
    item: int = -1
    """What of the configuration drifted (`emu.counts.device_state`)."""
    until_ps: int = -1
    """When it ended, as far as is known; -1 where it lasts, or nothing tells."""
    setting: tuple[str, str] = ("", "")
    """A key of the scenario and the value that repairs it; empty where it is no setting."""

    @property
    def key(self) -> str:
        """What tells it apart from all others of a run."""
        what = f" {self.item}" if self.item >= 0 else ""
        return f"{self.cause} {self.place}{what}" + (f" {self.setting[0]}" if self.setting[0] else "")

    def order(self) -> tuple[int, str, str]:
        """Findings sorted by this come with the best first."""
        return -self.score, self.cause, self.place


CONTENTION = "contention"
ODD = "odd_configuration"
GIVEN = "given_straggler"
WRONG = "payload_errors"
TIMER_SHORT = "timeout_short"
BIT_ERRORS = "bit_errors"
EVERYTHING = Finding("everything", "everything", 0, "the intended fabric")
"""Stands for all that is scripted to go wrong: healed, it is the intended fabric."""
EVIDENCE = ("timer_without_loss", BIT_ERRORS, "drops", "reordering")
"""What was counted and accuses no component: reported where nothing else is."""
MEANT = (CONTENTION, ODD, LOSSY, SHORT_HEADROOM, LATE_MARKING, GIVEN, TIMER_SHORT, *EVIDENCE)
"""What is so on the intended fabric too."""
CAUSES = {
    "deadlock": "pauses that wait for each other in a circle",
    "host_lost": "a server that went dark",
    "switch_down": "a switch whose links all went down at once",
    "nic_reset": "a NIC whose queue pairs all went into error at once",
    "nic_down": "a NIC with several ports whose links all went down at once",
    "link_down": "a link that lost its signal",
    "link_flap": "a link that lost its signal again and again",
    "degraded_link": "a link that is slower than it should be, or spoils frames",
    "delayed_link": "a link that takes longer than it should",
    "pause_storm": "a port that says stop though its buffer is empty",
    "pause_loss": "a port that does not hear pauses",
    "slow_receiver": "memory behind a NIC that does not keep up",
    "gpu_lost": "a GPU that fell off the bus",
    "gpu_hung": "a GPU that does not do what it is asked for",
    "gpu_slow": "a GPU that takes longer than its peers",
    "straggler": "a server whose GPUs all take longer than their peers",
    "rank_absent": "a rank that never joined",
    "rank_mismatch": "a rank that called another size than the others",
    "qp_error": "a queue pair that went into error by itself",
    "switch_drained": "a switch that its neighbours route around though its links are up",
    "configuration_drift": "a device that runs another configuration than was meant",
    ODD: "a device or link that is configured otherwise than its peers",
    GIVEN: "a rank that the scenario makes slower than the others",
    WRONG: "results with wrong elements, though every check of a frame passed",
    LOSSY: "data that NICs send as lossless and switches treat as lossy, or do not stop",
    LATE_MARKING: "marking that begins above XOFF, so that pauses come first",
    SHORT_HEADROOM: "headroom that is less than what arrives after XOFF",
    "miscabling": "cables that lead elsewhere than was meant",
    CONTENTION: "a job that keeps another waiting at ports that both use",
    TIMER_SHORT: "a timer of queue pairs that is shorter than an answer takes",
    "timer_without_loss": "timers that expired because a NAK was overtaken",
    BIT_ERRORS: "frames that links spoil as they are meant to",
    "drops": "frames that were dropped for want of room",
    "reordering": "packets that were sent again because they were overtaken",
    "imbalance": "equal ports that are loaded less evenly than where all is well",
    "restarted": "a job that its operator stopped, and brought back or gave up, where no cause was found",
    "unexplained_impact": "a job that failed or became slower where no cause was found",
    "unexplained_wait": "who waits for whom, where no cause was found",
}
"""Every cause that can be named."""
