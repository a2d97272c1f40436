"""Two hosts on this machine, with addresses of their own and a slow, lossy link between them, and one run on
both: run as a program by `test_two_hosts`, as root.

A host is a network namespace and a mount namespace with its own /tmp. The link is a pair of TUN devices: what
one is given, this process gives to the other some milliseconds later, but for one packet in a hundred.
Prints a line of JSON: what was found.
"""

import ctypes
import fcntl
import heapq
import json
import os
import secrets
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from actors.kernel.mixing import Stream
from emu.base.shipped import scenario_named
from tests.scenarios_run.small import ROOT, smaller

ADDRESSES = ("10.77.0.1", "10.77.0.2")
PORT = 6379
DELAY_MS = 5
LOST_ONE_IN = 100
TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
MOST_BYTES = 65536
STARTED = "Ray runtime started"


class Host:
    """One host. The sources are where they are outside, also if that is below /tmp."""

    def __init__(self, number: int, place: Path, opened: ExitStack) -> None:
        self.address = ADDRESSES[number]
        own = place / f"host-{number}"
        own.mkdir()
        script = 'mount --rbind "$1" /tmp && echo ready && exec sleep 600'
        if ROOT.is_relative_to("/tmp"):
            below = own / ROOT.relative_to("/tmp")
            below.mkdir(parents=True)
            script = f'mount --bind "$2" {shlex.quote(str(below))} && {script}'
        self._holder = opened.enter_context(
            subprocess.Popen(
                ["unshare", "-n", "-m", "sh", "-c", script, "sh", str(own), str(ROOT)],
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        opened.callback(self._holder.kill)
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "ready\n"
        self.tun = self._open_tun()
        self.do("ip", "link", "set", "lo", "up")
        self.do("ip", "address", "add", f"{self.address}/24", "dev", "emu0")
        self.do("ip", "link", "set", "emu0", "up")

    def command(self, *words: str) -> list[str]:
        """A command to be run there."""
        return ["nsenter", "-t", str(self._holder.pid), "-n", "-m", f"--wd={ROOT}", *words]

    def do(self, *words: str) -> str:
        """What a command says that is run there."""
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    def _open_tun(self) -> int:
        libc = ctypes.CDLL(None, use_errno=True)
        here = os.open("/proc/self/ns/net", os.O_RDONLY)
        there = os.open(f"/proc/{self._holder.pid}/ns/net", os.O_RDONLY)
        try:
            assert libc.setns(there, CLONE_NEWNET) == 0, ctypes.get_errno()
            tun = os.open("/dev/net/tun", os.O_RDWR)
            fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", b"emu0", IFF_TUN | IFF_NO_PI))
            return tun
        finally:
            assert libc.setns(here, CLONE_NEWNET) == 0, ctypes.get_errno()
            os.close(here)
            os.close(there)


class Link(threading.Thread):
    """Carries packets between two hosts."""

    def __init__(self, first: Host, second: Host) -> None:
        super().__init__(daemon=True)
        self.carried = self.lost = 0
        self._to = {first.tun: second.tun, second.tun: first.tun}

    def run(self) -> None:
        """Carry until the process ends."""
        draw = Stream(1, 1, 6)
        flying: list[tuple[float, int, int, bytes]] = []
        while True:
            wait_s = max(flying[0][0] - time.monotonic(), 0) if flying else 1.0
            for tun in select.select(list(self._to), [], [], wait_s)[0]:
                packet = os.read(tun, MOST_BYTES)
                if draw.below(LOST_ONE_IN) == 0:
                    self.lost += 1
                    continue
                self.carried += 1
                heapq.heappush(flying, (time.monotonic() + DELAY_MS / 1000, self.carried, tun, packet))
            while flying and flying[0][0] <= time.monotonic():
                _, _, tun, packet = heapq.heappop(flying)
                os.write(self._to[tun], packet)


def main() -> None:
    place = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    os.environ.update(token | {"RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "RAY_USAGE_STATS_ENABLED": "0"})
    sets = [f"--set={key}={value}" for key, value in smaller("tiny_flap").items()]
    with ExitStack() as opened:
        opened.callback(shutil.rmtree, place, ignore_errors=True)
        hosts = [Host(number, place, opened) for number in range(2)]
        link = Link(*hosts)
        link.start()
        start = [f"{Path(sys.executable).parent}/ray", "start", "--block", "--num-cpus=1"]
        store = ["--object-store-memory=80000000", "--disable-usage-stats"]
        head = ["--head", f"--port={PORT}", "--include-dashboard=false"]
        joins = [head, [f"--address={ADDRESSES[0]}:{PORT}"]]
        for host, how in zip(hosts, joins, strict=True):
            words = host.command(*start, *store, *how, f"--node-ip-address={host.address}")
            said = place / f"ray-{host.address}"
            with said.open("w") as log:
                node = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
            opened.callback(_end, node)
            while STARTED not in said.read_text():
                assert node.poll() is None, said.read_text()
                time.sleep(0.1)
        scenario = scenario_named("tiny_flap")[0]
        emu = [sys.executable, "-m", "emu.cli.main", "run", scenario, *sets, "--quiet"]
        where = f"--address={ADDRESSES[0]}:{PORT}"
        hosts[0].do(*emu, where, "--workers=2", "--out", "/tmp/spread")
        hosts[0].do(*emu, "--local", "--out", "/tmp/alone")
        tmp = place / "host-0"
        digests = {
            how: json.loads((tmp / how / "summary.json").read_text())["digest"] for how in ("spread", "alone")
        }
        workers = json.loads((tmp / "spread" / "workers.json").read_text())
        found = {"digests": digests, "workers": workers, "carried": link.carried, "lost": link.lost}
    sys.stdout.write(json.dumps(found) + "\n")


def _end(node: subprocess.Popen[bytes]) -> None:
    os.killpg(node.pid, signal.SIGTERM)
    try:
        node.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(node.pid, signal.SIGKILL)
        node.wait()


if __name__ == "__main__":
    main()
