"""Queue pairs that went into error by themselves.

NICs log every queue pair that goes into error, with the status of what it was doing. A queue pair whose
retries ran out is a consequence: its way or its peer was lost. One that was not allowed to send any more, or
was flushed alone, is a cause. Where several are, the earliest is.
"""

from __future__ import annotations

from collections.abc import Iterator

from actors.fabric.model import Role
from actors.wire.message import STATUS_FLUSHED, STATUS_NOT_SENDING
from emu.diagnosis.finding import Finding
from emu.diagnosis.view import View
from emu.measure.device_state import PAIR_ERROR
from emu.measure.formatting import shown_time
from emu.measure.summary.jobs import status_name


def found(view: View) -> Iterator[Finding]:
    """The queue pairs in error by themselves, each NIC once."""
    for nic in view.numbers(Role.NIC):
        rows = [row for row in view.rows(nic, "log") if row[1] == PAIR_ERROR]
        own = [row for row in rows if row[4] in (STATUS_NOT_SENDING, STATUS_FLUSHED)]
        if not own:
            continue
        at_ps, _, pair, qpn, status, _ = own[0]
        name = view.name(nic)
        failed = [
            f"rank {one.rank} of {job} waited for rank {one.peer} on {one.nic}: {one.status}"
            for job, row in view.jobs.items()
            for one in row.failures[:2]
        ]
        yield Finding(
            "qp_error",
            name,
            910,
            f"queue pair {qpn} (index {pair}) of {name} went into error at {shown_time(at_ps)} by itself "
            f"({status_name(status)}), not for want of an answer",
            (f"{name} log at {shown_time(at_ps)}: queue pair {qpn} in error", *failed),
            at_ps,
        )
