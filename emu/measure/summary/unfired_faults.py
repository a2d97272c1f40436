"""Which faults of the scenario changed nothing that anybody could see?

A fault that begins after the end, repairs what is up, or breaks what nothing used in the run is one line:
pauses that are lost where none is sent, headroom that nothing needs, a queue pair that the NIC does not have.
The rules look at the counters of the whole run, so a fault that they do not name may still have done nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from emu.measure.collected import Counts, DeviceRecord
from emu.measure.figures import about_time
from emu.measure.run_directory.device_state import PAIR_ERROR
from emu.measure.summary.diagnosis import Unfired
from emu.measure.summary.summary import Fabric, FaultEffect
from emu.units import format_time

_PAUSED: Final = "pfc_sent_frames"
_UNMOVED: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "pause_loss": ((_PAUSED,), "no pause was sent that could be lost"),
    "headroom_drift": (("headroom_peak_bytes", "headroom_overrun"), "no frame needed headroom"),
    "alpha_drift": ((_PAUSED, "no_shared_room"), "no buffer filled up to its threshold"),
    "pfc_drift": ((_PAUSED, "no_shared_room"), "nothing was to be paused, and nothing dropped"),
    "credit_drift": (("credit_grants",), "no packet crossed a modular switch"),
    "gpu_slow": (("gpu_copies",), "no GPU had anything to do"),
    "gpu_hung": (("gpu_copies",), "no GPU had anything to do"),
}
"""By kind: counters, or reasons of drops, all of which are 0 where it did nothing, and how to say so."""
_HASHES: Final = ("hash_seed_drift", "hash_fields_drift")


def idle_faults(
    effects: Sequence[FaultEffect],
    fabric: Fabric,
    counts: Counts,
    records: Sequence[DeviceRecord],
    names: Sequence[str],
    virtual_ps: int,
    *,
    flipped: bool,
) -> Iterator[Unfired]:
    """The faults, by place. `names` are those of the devices, by number; `flipped`: a bit turned over."""
    for at, effect in enumerate(effects):
        reason = ""
        if effect.kind == "random" and not effect.target:
            reason = "none was drawn: raise acceleration or within"
        elif not effect.happened:
            reason = f"the run ended at {about_time(virtual_ps)}, before {format_time(effect.at_ps)}"
        elif effect.kind == "link_up" and not any(
            other.kind != "link_up" and other.at_ps <= effect.at_ps and other.target == effect.target
            for other in effects
        ):
            reason = f"{effect.target} was up already"
        elif effect.kind == "bit_flip" and not flipped:
            reason = "no collective of that GPU was under way"
        elif effect.kind == "qp_error" and not _in_error(effect, records, names):
            reason = f"{effect.target} has no such queue pair, or it was in error already"
        elif effect.kind in _HASHES and not any(row.data_bytes for row in fabric.uplinks):
            reason = "no packet had a choice between equal paths"
        elif effect.kind in _UNMOVED:
            seen, told = _UNMOVED[effect.kind]
            if not any(counts.total(one) or fabric.drops.by_reason.get(one) for one in seen):
                reason = told
        if reason:
            yield Unfired(feature=f"faults[{at}]", reason=reason)


def _in_error(effect: FaultEffect, records: Sequence[DeviceRecord], names: Sequence[str]) -> bool:
    """Whether a NIC that is hit logged a queue pair in error at that time or later."""
    aimed = [one for one in records if names[one.number] == effect.target]
    return not aimed or any(
        at_ps >= effect.at_ps and item == PAIR_ERROR
        for one in aimed
        for at_ps, item, *_ in one.shown.get("log", ())
    )
