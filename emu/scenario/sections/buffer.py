"""Section `switch.buffer`: the buffer of a switch, and the share of each priority group.

One shared pool; profiles give groups thresholds, reserve and headroom of their own.

Sources: the numbers are the defaults on which simulators of lossless RoCE fabrics agree (pool 64 MB, alpha
1/8, reserve 4 KiB, XON 2 MTU below XOFF); they are not Meta's. Names of SONiC: its schema of CONFIG_DB.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Final

from pydantic import Field

from actors.switch.buffer import Admission
from emu.scenario.knobs import PolicySection, section_of
from emu.scenario.plugins import OneOfOrPlugin
from emu.scenario.section import Refusal, Section
from emu.scenario.yaml.values import (
    AutoPositiveSizeBytes,
    AutoSizeBytes,
    PositiveFraction,
    PositiveSizeBytes,
    Priority,
    Share,
    SizeBytes,
)
from emu.units import parse_size

MOST_THRESHOLD_BYTES: Final = 2**46
"""Thresholds are computed in 62 bits, 16 of them behind the point."""


class BufferProfile(Section):
    """What a priority group gets of the buffer. SONiC: BUFFER_PROFILE."""

    alpha: PositiveFraction = Fraction(1, 8)
    """Dynamic XOFF threshold of a priority group = alpha x (shared pool - used). SONiC: `dynamic_th`, the
    exponent of alpha to the base 2."""
    xoff_bytes: AutoPositiveSizeBytes = None
    """Static XOFF threshold: what a group may hold of the shared pool, whatever others hold. SONiC:
    `static_th`. `auto`: the dynamic one."""
    xon_bytes: AutoSizeBytes = None
    """Static XON: a group that was stopped goes on when it holds no more than this of the shared pool. SONiC:
    `xon`. `auto`: by `xon_offset` alone; with both, the higher of the two."""
    xon_offset_bytes: AutoSizeBytes = None
    """XON lies this far below XOFF. SONiC: `xon_offset`. `auto`: two largest frames, or nothing where `xon`
    is given."""
    reserve_bytes: SizeBytes = parse_size("4KiB")
    """Guaranteed to each port's priority group before it takes from the shared pool. SONiC: `size`."""
    headroom_bytes: AutoSizeBytes = None
    """Per port and lossless priority, for what arrives after XOFF. SONiC: `xoff`. `auto`: 2 x propagation x
    rate + 3 x largest frame + pause frame + (peer's response time + own ingress pipeline) x rate."""

    def check(self) -> Iterator[Refusal]:
        """Refuse thresholds in the wrong order."""
        if self.xoff_bytes is not None and (self.xon_bytes or 0) > self.xoff_bytes:
            yield Refusal(("xon",), "lies above xoff", "at most `xoff`")

    def misfits(self, pool_bytes: int) -> Iterator[Refusal]:
        """What of it is larger than the whole, and a threshold that is beyond counting."""
        parts = (
            ("reserve", self.reserve_bytes),
            ("headroom", self.headroom_bytes),
            ("xoff", self.xoff_bytes),
        )
        for key, part_bytes in parts:
            if (part_bytes or 0) > pool_bytes:
                yield Refusal((key,), "is larger than the pool", "less than `pool`")
        if pool_bytes * self.alpha >= MOST_THRESHOLD_BYTES:
            yield Refusal(("alpha",), "makes a threshold of more than 64 TB", "less `alpha`, or less `pool`")

    def resumes_at(self, largest_frame_bytes: int) -> tuple[int, int]:
        """Static XON, and how far below XOFF the other lies, in bytes."""
        offset_bytes = self.xon_offset_bytes
        if offset_bytes is None:
            offset_bytes = 2 * largest_frame_bytes if self.xon_bytes is None else MOST_THRESHOLD_BYTES
        return self.xon_bytes or 0, offset_bytes


class GroupProfile(BufferProfile):
    """A profile of some priority groups, complete: what it leaves out has the default. SONiC: BUFFER_PG."""

    priorities: Annotated[tuple[Priority, ...], Field(min_length=1, max_length=8)]
    """Which groups."""


class AdmissionSection(PolicySection):
    """What every admission policy shares."""

    kind: str
    """Which policy."""


ADMISSIONS: Final = OneOfOrPlugin(
    {
        "thresholds": section_of(
            AdmissionSection, "thresholds", Admission, "Dynamic and static thresholds, by priority group."
        )
    },
    default="thresholds",
    base=AdmissionSection,
    parent=Admission,
    methods=("threshold_bytes",),
)


class BufferSection(BufferProfile):
    """One shared pool, and what each priority group gets of it."""

    pool_bytes: PositiveSizeBytes = parse_size("64MB")
    """The whole buffer: reserves, headroom and what is shared. SONiC: the `size` of BUFFER_POOL."""
    headroom_pool_bytes: AutoPositiveSizeBytes = None
    """Headroom that all priority groups of a switch share, each up to its own `headroom`; less than their sum
    is oversubscribed. SONiC: the `xoff` of BUFFER_POOL. `auto`: every group has its own. Not for modular
    switches."""
    admission: Annotated[AdmissionSection, ADMISSIONS] = ADMISSIONS.section()
    """How much of the shared pool a priority group may hold."""
    profiles: Annotated[tuple[GroupProfile, ...], Field(max_length=1024)] = ()
    """Groups with other thresholds, reserve and headroom; the first that names a group counts."""
    egress_limit_bytes: SizeBytes = 0
    """What a lossy egress queue may hold, with preamble and gap; 0: no such limit. SONiC: `static_th` of a
    profile in BUFFER_QUEUE."""
    egress_alpha: Share = Fraction(0)
    """A lossy egress queue may hold egress_alpha x (shared pool - used); 0: no such limit. SONiC:
    `dynamic_th` of a profile in BUFFER_QUEUE."""

    def check(self) -> Iterator[Refusal]:
        """Refuse parts larger than the whole."""
        yield from super().check()
        yield from self.misfits(self.pool_bytes)
        if (self.headroom_pool_bytes or 0) > self.pool_bytes:
            yield Refusal(("headroom_pool",), "is larger than the pool", "less than `pool`")
        for at, profile in enumerate(self.profiles):
            for refusal in profile.misfits(self.pool_bytes):
                yield refusal._replace(location=("profiles", at, *refusal.location))
            if len(dict.fromkeys(profile.priorities)) != len(profile.priorities):
                where = ("profiles", at, "priorities")
                yield Refusal(where, "a priority is listed twice", "each priority once")
        if self.pool_bytes * self.egress_alpha >= MOST_THRESHOLD_BYTES:
            reason = "makes a limit of more than 64 TB"
            yield Refusal(("egress_alpha",), reason, "less `egress_alpha`, or less `pool`")

    @property
    def limited(self) -> bool:
        """Whether lossy egress queues have limits."""
        return self.egress_limit_bytes > 0 or self.egress_alpha > 0

    def key_of(self, part: BufferProfile) -> str:
        """Where a profile of `profiles_of` stands in the scenario."""
        places = [f".profiles[{at}]" for at, one in enumerate(self.profiles) if one is part]
        return "".join(["switch.buffer", *places])

    def profiles_of(self) -> list[BufferProfile]:
        """The profile of each priority."""
        found: list[BufferProfile] = [self] * 8
        for profile in reversed(self.profiles):
            for priority in profile.priorities:
                found[priority] = profile
        return found
