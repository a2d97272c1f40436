"""Which worker hosts what, and where? `workers.json` says so as soon as the workers are up.

Where they serve metrics, `targets.json` beside it lists them as the page of `emu.runtime.pages.server` does,
for `file_sd_configs`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from emu.measure.run_directory.run_directory import TARGETS, write_whole
from emu.runtime.outcome import WorkerRecord
from emu.runtime.pages.server import target_list

NAME: Final = "workers.json"


def write_workers(directory: Path, workers: Sequence[WorkerRecord], run: str) -> None:
    """Write the files whole, or leave the old ones; `run` is the scenario's name. Raises RuntimeFailure."""
    text = json.dumps({"workers": [asdict(worker) for worker in workers]}, indent=1) + "\n"
    write_whole(directory / NAME, text)
    served = [(worker.worker, worker.metrics_address) for worker in workers if worker.metrics_address]
    if served:
        write_whole(directory / TARGETS, target_list(run, served) + "\n")
