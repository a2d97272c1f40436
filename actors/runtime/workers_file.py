"""Which worker hosts what, and where? `workers.json` says so as soon as the workers are up."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from actors.runtime.outcome import WorkerRecord

NAME: Final = "workers.json"


def write_workers(directory: Path, workers: Sequence[WorkerRecord]) -> None:
    """Write the file whole, or leave the old one."""
    text = json.dumps({"workers": [asdict(worker) for worker in workers]}, indent=1) + "\n"
    unfinished = directory / f".{NAME}.{os.getpid()}"
    unfinished.touch(mode=0o600)
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(directory / NAME)
