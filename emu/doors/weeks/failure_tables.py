"""What interrupts a training run, and how often: tables of published runs.

Each row is a cause: how often it was counted, how it shows, and how many hosts are taken out for repair.

    stop      the job breaks off; heartbeats miss somebody
    hang      nothing breaks off, the job waits for ever; a watchdog ends it
    slow      the job goes on, slower
    silent    the job goes on, and what it computes is wrong
    planned   somebody stops the job after a checkpoint

`llama3`: 54 days on 16,384 GPUs, 419 unexpected interruptions by cause, and 47 planned ones. The causes are
the table's; how each shows is ours: the paper says which, and not after how long.

`megascale`: 12,288 GPUs, where the job was restarted over 100 times in several weeks; we take three. Causes
are not counted in the paper. It says that about one host in two hundred was a tenth slower than the others,
found once: no rate follows from that, so there is none.

Sources: The Llama 3 Herd of Models, section 3.3.4 and table 5; MegaScale (NSDI'24), section 6.3.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final, Literal, NamedTuple

Shows = Literal["stop", "hang", "slow", "silent", "planned"]


class TableRow(NamedTuple):
    """A cause as a table has it."""

    name: str
    counted: int
    shows: Shows
    hosts: int
    """Taken out for repair."""


class Table(NamedTuple):
    """How often a fleet was interrupted."""

    gpus: int
    days: int
    rows: tuple[TableRow, ...]

    def per_hour(self, row: TableRow) -> Fraction:
        """How often that happens in an hour for each GPU."""
        return Fraction(row.counted, self.days * 24 * self.gpus)


_LLAMA3: Final = (
    TableRow("gpu", 148, "stop", 1),
    TableRow("hbm3", 72, "stop", 1),
    TableRow("software", 54, "stop", 0),
    TableRow("switch_or_cable", 35, "stop", 0),
    TableRow("host_maintenance", 32, "stop", 1),
    TableRow("gpu_sram", 19, "stop", 1),
    TableRow("gpu_system_processor", 17, "hang", 1),
    TableRow("nic", 7, "stop", 1),
    TableRow("nccl_watchdog", 7, "hang", 0),
    TableRow("silent_corruption", 6, "silent", 1),
    TableRow("gpu_thermal", 6, "slow", 1),
    TableRow("ssd", 3, "stop", 1),
    TableRow("power_supply", 3, "stop", 1),
    TableRow("chassis", 2, "stop", 1),
    TableRow("io_board", 2, "stop", 1),
    TableRow("dependency", 2, "stop", 0),
    TableRow("cpu", 2, "stop", 1),
    TableRow("memory", 2, "stop", 1),
    TableRow("planned", 47, "planned", 0),
)
TABLES: Final[dict[str, Table]] = {
    "llama3": Table(16384, 54, _LLAMA3),
    "megascale": Table(12288, 21, (TableRow("any", 100, "stop", 1),)),
}
