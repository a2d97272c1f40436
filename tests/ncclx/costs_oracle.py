"""Emulated times of forced algorithms and protocols beside those that NCCL's own table expects.

    python -m tests.ncclx.costs_oracle [GPU ...]

2 to 64 GPUs on one to eight servers, 8 B to 16 MiB. Nothing is fitted: no base or hop of the table is a key,
and rows of Simple depend on `gpu.copy_latency`, which is theirs by construction.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from statistics import median
from typing import Final, NamedTuple

from actors.ncclx.settings import nvlink_channels
from actors.ncclx.tuner import Rates, Shape
from emu.base.units import parse_rate
from emu.scenario.profiles import GPUS
from emu.workload.nccl_tuning import Processors, _nccl_us
from tests.ncclx.costs_rows import Row, emulated

KIB, MIB = 1 << 10, 1 << 20
SERVERS: Final = ((1, 2), (1, 4), (1, 8), (2, 1), (4, 1), (8, 1), (2, 8), (4, 8), (8, 8))
ALGORITHMS: Final = ("ring", "double_binary_tree")
PROTOCOLS: Final = ("ll", "ll128", "simple")
SIZES: Final = (8, KIB, 64 * KIB, 512 * KIB, 2 * MIB, 16 * MIB)
NIC_BPS: Final = 400 * 10**9


class Compared(NamedTuple):
    """A time, and the table's."""

    servers: int
    gpus: int
    algorithm: str
    protocol: str
    size: int
    found_us: float
    table_us: float

    @property
    def error(self) -> float:
        """By how much the time is more, of the table's."""
        return self.found_us / self.table_us - 1


def expected_us(gpu: str, servers: int, gpus: int, algorithm: str, protocol: str, size: int) -> float:
    """What the table expects of an all_reduce."""
    nvlink_bps = parse_rate(GPUS[gpu].nvlink)
    channels = nvlink_channels(nvlink_bps) if servers == 1 else 16 if gpus == 8 else 4 * gpus
    shape = Shape(servers * gpus, gpus, servers if servers > 1 else 0, channels)
    rates, place = Rates(NIC_BPS, nvlink_bps), PROTOCOLS.index(protocol)
    cpus = Processors(GPUS[gpu].tuner)
    found = _nccl_us(algorithm, place, "all_reduce", shape, size, rates, nvls=True, processors=cpus)
    assert found is not None, (algorithm, protocol)
    return found


def compared(gpu: str) -> Iterator[Compared]:
    """All of them on one GPU."""
    for servers, gpus in SERVERS:
        for algorithm in ALGORITHMS:
            for protocol in PROTOCOLS:
                setup = (
                    "",
                    gpu,
                    servers,
                    gpus,
                    "400G",
                    "all_reduce",
                    algorithm,
                    f"ncclx.protocol={protocol}",
                )
                for row, found_us in emulated([Row(*setup, size, 0.0) for size in SIZES]):
                    expects_us = expected_us(gpu, servers, gpus, algorithm, protocol, row.size)
                    yield Compared(servers, gpus, algorithm, protocol, row.size, found_us, expects_us)


def main() -> None:
    """Print every row with its error, and what of each protocol is within a fifth."""
    for gpu in sys.argv[1:] or ("h100",):
        errors: dict[tuple[str, str], list[float]] = defaultdict(list)
        for one in compared(gpu):
            where = "one server" if one.servers == 1 else "several"
            errors[where, one.protocol].append(abs(one.error))
            sys.stdout.write(
                f"{gpu} {one.servers}x{one.gpus} {one.algorithm:18} {one.protocol:6} {one.size:>9}"
                f" {one.table_us:>8.1f} {one.found_us:>8.1f} {one.error:+5.0%}\n"
            )
            sys.stdout.flush()
        for (where, protocol), found in errors.items():
            within = sum(error <= 0.2 for error in found)
            share = f"{within} of {len(found)} within a fifth"
            sys.stdout.write(f"{gpu} {where:10} {protocol:6} median {median(found):.0%}, {share}\n")


if __name__ == "__main__":
    main()
