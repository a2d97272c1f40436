"""Which worker hosts what, and where? `workers.json` says so as soon as the workers are up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from actors.runtime.outcome import WorkerRecord
from emu.measure.run_directory import write_whole

NAME: Final = "workers.json"


def write_workers(directory: Path, workers: Sequence[WorkerRecord]) -> None:
    """Write the file whole, or leave the old one. Raises RuntimeFailure."""
    text = json.dumps({"workers": [asdict(worker) for worker in workers]}, indent=1) + "\n"
    write_whole(directory / NAME, text)
