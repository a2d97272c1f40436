"""Readers of counters of real NICs: PFC, ECN and what recovery counts, as tools for mlx5 print them.

Any text with a name and a number behind it is read: `ethtool -S` (`rx_prio3_pause: 12`), `rdma statistic`
(`np_cnp_sent 12`), files of hw_counters (`.../hw_counters/np_cnp_sent:12`). A name that stands several times,
for several NICs, is added up. Of two texts the first is from before the tests, the second from after.

Source: mlx5 counters, docs.kernel.org/networking/device_drivers/ethernet/mellanox/mlx5/counters.html, and
rdma-core's hw_counters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from actors.kernel.counters import (
    NIC_LOCAL_ACK_TIMEOUT_ERR,
    NIC_NP_CNP_SENT,
    NIC_NP_ECN_MARKED_ROCE_PACKETS,
    NIC_OUT_OF_SEQUENCE,
    NIC_PACKET_SEQ_ERR,
    NIC_RP_CNP_HANDLED,
    PFC_RECEIVE_XOFF_FRAMES,
    PFC_TRANSMIT_XOFF_FRAMES,
    Metric,
)
from emu.base.errors import UsageError
from emu.base.outside import file_text
from emu.counts.collected import DeviceRecord
from emu.scenario.yaml.document import MAX_FILE_BYTES

KNOWN: Final[dict[str, Metric]] = {
    "np_ecn_marked_roce_packets": NIC_NP_ECN_MARKED_ROCE_PACKETS,
    "np_cnp_sent": NIC_NP_CNP_SENT,
    "rp_cnp_handled": NIC_RP_CNP_HANDLED,
    "rx_prio_pause": PFC_RECEIVE_XOFF_FRAMES,
    "tx_prio_pause": PFC_TRANSMIT_XOFF_FRAMES,
    "packet_seq_err": NIC_PACKET_SEQ_ERR,
    "out_of_sequence": NIC_OUT_OF_SEQUENCE,
    "local_ack_timeout_err": NIC_LOCAL_ACK_TIMEOUT_ERR,
}
"""Name on a NIC, all priorities under one, and what it is here."""
_LINE: Final = re.compile(
    r"\b(np_ecn_marked_roce_packets|np_cnp_sent|rp_cnp_handled|packet_seq_err|out_of_sequence"
    r"|local_ack_timeout_err|[rt]x_prio\d_pause)\b\"?\s*[:=]?\s*(\d+)\b"
)
_PRIORITY: Final = re.compile(r"_prio\d_")


class Counted(NamedTuple):
    """One counter: what was counted on the cluster, and by the emulated NICs with the fitted knobs."""

    name: str
    measured: int
    emulated: int


def read_counters(paths: Sequence[Path]) -> dict[str, int]:
    """What NICs counted during the tests, by name. Raises UsageError."""
    if len(paths) > 2:
        raise UsageError("--counters takes one text, or one from before and one from after the tests")
    texts = [_read(path) for path in paths]
    if len(texts) < 2:
        return texts[0] if texts else {}
    before, after = texts
    grown = {name: after[name] - before.get(name, 0) for name in after}
    if any(value < 0 for value in grown.values()):
        name = next(name for name, value in grown.items() if value < 0)
        raise UsageError(
            f"{paths[1]}: has fewer {name} than {paths[0]}; accepted: first the text from before the tests"
        )
    return grown


def _read(path: Path) -> dict[str, int]:
    text = file_text(path, "a text of counters", MAX_FILE_BYTES)
    found: dict[str, int] = {}
    for name, value in _LINE.findall(text):
        of_all = _PRIORITY.sub("_prio_", name)
        found[of_all] = found.get(of_all, 0) + int(value)
    if not found:
        raise UsageError(
            f"{path}: has none of the counters that are compared; accepted: {', '.join(KNOWN)}, as"
            " `ethtool -S` or `rdma statistic` prints them"
        )
    return found


def counted_by(records: Iterable[DeviceRecord], nics: Iterable[int]) -> dict[str, int]:
    """The same of emulated NICs."""
    wanted = {str(metric): name for name, metric in KNOWN.items()}
    own = set(nics)
    found = dict.fromkeys(KNOWN, 0)
    for record in records:
        if record.number in own:
            for series, value in record.counted():
                if series.metric in wanted:
                    found[wanted[series.metric]] += value
    return found


def compared(measured: Mapping[str, int], emulated: Mapping[str, int]) -> list[Counted]:
    """Both side by side, of what was given."""
    return [Counted(name, measured[name], emulated.get(name, 0)) for name in KNOWN if name in measured]
