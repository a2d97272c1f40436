"""Campaigns and job mixes of a sweep: each combination and seed is one of them, without packets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from emu.base.errors import EmuError
from emu.base.side_by_side import Ended, Ready
from emu.devices.pricing.estimate import Estimate
from emu.doors.weeks.campaign_file import judged
from emu.doors.weeks.campaign_reading import course_of, read_campaign, read_mix
from emu.doors.weeks.goodput import simulated
from emu.doors.weeks.goodput import summary_of as campaign_summary
from emu.doors.weeks.job_queue import summary_of as mix_summary
from emu.run_directory.run_directory import write_whole
from emu.scenario.set_options import Override
from emu.summary.verdict import value_at
from emu.sweeps.subjects import Asked, Done, Planned, failed
from emu.sweeps.sweep_table import Row

CAMPAIGN_PATHS: Final = ("goodput", "interruptions", "mtbf_s", "mttr_s", "checkpoint.every_s")
MIX_PATHS: Final = ("utilisation", "jobs.begun", "wait.mean_s", "wait.p95_s", "stranded")
"""What is shown of campaigns and of job mixes if nothing was asked for."""


class _WeeksSubject:
    """A file that is followed for weeks: here, where its files are, since that takes milliseconds."""

    kind: ClassVar[str]
    paths: ClassVar[tuple[str, ...]]

    def __init__(self, path: Path, always: Sequence[Override]) -> None:
        self._path = path
        self._always = list(always)

    def seed(self, overrides: Sequence[Override]) -> int:
        """As of `Subject`."""
        return self._followed(overrides)[0]

    def text(self, overrides: Sequence[Override]) -> str:
        """As of `Subject`: what comes of it, since it names other files."""
        return json.dumps(self._followed(overrides)[1])

    def asked_again(self) -> dict[str, str]:
        """As of `Subject`."""
        return {"kind": self.kind, "file": str(self._path.resolve())}

    def cost(self, overrides: Sequence[Override]) -> Estimate | None:
        """As of `Subject`: nothing worth counting."""
        del overrides
        return None

    def run(self, asked: Asked, planned: Planned) -> Done:
        """As of `Subject`."""
        try:
            seed, summary, broken = self._followed(planned.overrides)
        except EmuError as error:
            return failed(planned, error)
        text = json.dumps(summary, indent=2) + "\n"
        if asked.out is not None:
            place = asked.out / f"run-{planned.number}"
            place.mkdir(mode=0o700, parents=True, exist_ok=asked.force)
            write_whole(place / "summary.json", text)
        found = {path: value_at(path, summary) for path in asked.paths or self.paths}
        shown = {path: value for path, (value, _) in found.items()}
        digest = hashlib.sha256(text.encode()).hexdigest()
        row = Row(planned.settings, seed, int(bool(broken)), digest, shown, broken)
        return Done(row, {path: reason for path, (_, reason) in found.items()}, self.paths)

    def ready(self, asked: Asked, planned: Planned) -> Ready | Ended:
        """As of `Subject`: a node would need the files that the campaign names."""
        return Ended(0, self.run(asked, planned))

    def there(self, asked: Asked) -> Any:
        """As of `Subject`."""
        return self.ready

    def kept(self, asked: Asked, planned: Planned, found: Any) -> Done:
        """As of `Subject`."""
        del asked, planned
        assert isinstance(found, Done)
        return found

    def _followed(self, overrides: Sequence[Override]) -> tuple[int, dict[str, Any], str]:
        """Its seed, summary and failed expectations."""
        raise NotImplementedError


class CampaignSubject(_WeeksSubject):
    """A campaign."""

    kind = "campaign"
    paths = CAMPAIGN_PATHS

    def _followed(self, overrides: Sequence[Override]) -> tuple[int, dict[str, Any], str]:
        weeks = read_campaign(self._path, [*self._always, *overrides])
        course, seed = weeks.course, weeks.campaign.seed
        summary = campaign_summary(weeks.campaign.name, seed, course, simulated(course, [seed]))
        verdicts = judged(weeks.campaign.expect, summary, weeks.tree)
        return seed, summary, "; ".join(f"{one.value}: {one.reason}" for one in verdicts if not one.passed)


class JobMixSubject(_WeeksSubject):
    """A job mix."""

    kind = "job mix"
    paths = MIX_PATHS

    def _followed(self, overrides: Sequence[Override]) -> tuple[int, dict[str, Any], str]:
        mix = read_mix(self._path, [*self._always, *overrides])
        summary = mix_summary(mix.mix, mix.topology, course_of(mix), mix.traced)
        verdicts = judged(mix.mix.expect, summary, mix.tree)
        broken = "; ".join(f"{one.value}: {one.reason}" for one in verdicts if not one.passed)
        return mix.mix.seed, summary, broken
