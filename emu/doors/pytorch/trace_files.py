"""The reader of PyTorch's profiles and flight recorder's dumps, for `emu import`: all ranks are one job."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from emu.base.doors import FileReader, Part
from emu.doors.pytorch.traces import job_of, knows


def _job(files: Sequence[Path]) -> Part:
    job = job_of(files)
    return Part(jobs=job.text, ranks=job.ranks)


READER: Final = FileReader("a trace of PyTorch's profiler or a dump of its flight recorder", knows, _job)
