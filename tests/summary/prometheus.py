"""A real Prometheus server, for tests that ask one."""

import json
import shutil
import socket
import subprocess
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

from tests.engine.patience import PATIENCE_S, fetched, until

INSTALLED = shutil.which("prometheus") is not None
STARTS = 5
ASK_S = 5


class Prometheus:
    """A server with a configuration, as soon as it is ready."""

    def __init__(self, configuration: Path, data: Path, *options: str) -> None:
        for _ in range(STARTS):  # somebody else may take the port that was free
            self.address = f"127.0.0.1:{free_port()}"
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={configuration}",
                    f"--storage.tsdb.path={data}",
                    f"--web.listen-address={self.address}",
                    *options,
                ],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            if until(self._ready_or_gone) == "ready":
                return
        raise AssertionError(f"{configuration}: Prometheus ends by itself")

    def _ready_or_gone(self) -> str:
        if self._process.poll() is not None:
            return "gone"
        try:
            with urlopen(f"http://{self.address}/-/ready", timeout=ASK_S) as answer:
                return "ready" if answer.status == 200 else ""
        except (OSError, HTTPException):
            return ""

    def get(self, path: str) -> Any:
        """What it answers; None for what it refuses."""
        try:
            return json.loads(fetched(f"http://{self.address}/api/v1/{path}"))["data"]
        except HTTPError:
            return None

    def vector(self, query: str, more: str = "") -> list[dict[str, Any]] | None:
        """The instant vector of a query."""
        found = self.get(f"query?query={quote(query)}{more}")
        return None if found is None else list(found["result"])

    def close(self) -> None:
        """End the server."""
        self._process.terminate()
        self._process.wait(PATIENCE_S)


def free_port() -> int:
    """A port on which nobody listens just now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port
