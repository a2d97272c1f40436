"""How does a run go on from a snapshot under another condition?

A snapshot holds state, and the scenario holds conditions: rates, thresholds, timeouts, faults. So the state
at `at_ps` is loaded into devices that are built from a changed scenario. What may change is what a device
reads from its configuration and never copies into its state, and what changes no table's size:
`CHANGEABLE`. All else is refused by name.

Faults may change from `at_ps` on. They are events that stand in the queue from the start, so those of the
parent that lie ahead are taken out of the snapshot, and those of the fork are put in.

Where the parent has no snapshot at `at_ps`, it is run there first, from the last one before.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

import yaml

from actors.kernel.device import Plain
from actors.kernel.state import as_int, as_list, save_event
from emu.errors import UsageError
from emu.runtime.blueprint import blueprint_of, spread
from emu.runtime.recovery.snapshot import Snapshot, fingerprint
from emu.scenario.resolve import build_topology
from emu.scenario.schema import Scenario
from emu.scenario.yaml.dump import to_yaml
from emu.units import format_time

CHANGEABLE: Final = (
    "name",
    "description",
    "expect",
    "faults",
    "run.max_time",
    "run.sample_every",
    "run.stall_after",
    "host.proxy_cost",
    "gpu.copy_rate",
    "gpu.copy_latency",
    "nic.corrupt_every",
    "routing.hash",
    "routing.fields",
    "routing.polynomial",
    "routing.bit_offset",
    "routing.seed",
    "switch.buffer.alpha",
    "switch.buffer.xon_offset",
    "switch.ecn.kmin",
    "switch.ecn.kmax",
    "switch.ecn.pmax",
    "transport.retry_count",
    "transport.rnr_retry",
    "transport.rnr_timer",
    "transport.timeout",
    "transport.congestion_control.*",
)
"""The keys that may change; a pattern stands for all that match it."""
FIXED: Final = (
    "transport.congestion_control.algorithm",
    "transport.congestion_control.cnp_priority",
)
"""The keys that may not, although a pattern matches them."""


def check_changes(parent: Scenario, fork: Scenario) -> list[str]:
    """The keys in which a fork differs from its parent. Raises UsageError if one of them may not."""
    before, after = _flat(yaml.safe_load(to_yaml(parent))), _flat(yaml.safe_load(to_yaml(fork)))
    changed = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
    for key in changed:
        if key in FIXED or not any(fnmatchcase(key, pattern) for pattern in CHANGEABLE):
            accepted = ", ".join(CHANGEABLE)
            raise UsageError(
                f"{key}: cannot change in a fork, since state depends on it; accepted: {accepted}"
            )
    return changed


def forked(snapshot: Snapshot, parent: Scenario, fork: Scenario) -> Snapshot:
    """A snapshot of the parent as one of the fork. Raises UsageError if the fork changes what is past."""
    at_ps = snapshot.sync_ps
    shares = list(snapshot.shares)
    if parent.faults != fork.faults:
        before, after = _standing(parent), _standing(fork)
        past = [key for key in {*before, *after} if key[0] < at_ps and before.get(key) != after.get(key)]
        if past:
            raise UsageError(
                f"faults: what happens at {format_time(min(past)[0])} is past: "
                f"the fork begins at {format_time(at_ps)}"
            )
        gone = {key for key in before if key[0] >= at_ps}
        shares = [_without(share, gone) for share in shares]
        stop, now, devices, events = as_list(shares[0])
        ahead: list[Plain] = [after[key] for key in sorted(after) if key[0] >= at_ps]
        shares[0] = [stop, now, devices, [*as_list(events), *ahead]]
    return Snapshot(fingerprint(fork), at_ps, snapshot.machine, shares)


def _standing(scenario: Scenario) -> dict[tuple[int, int], Plain]:
    """The events that a scenario makes pending before anything begins, by time and key."""
    plan = spread(blueprint_of(scenario, build_topology(scenario)), 1)
    events: list[Plain] = [save_event(event) for event in plan.partition(0).kernel.queue.pending()]
    return {_order(event): event for event in events}


def _without(share: Plain, gone: set[tuple[int, int]]) -> Plain:
    stop, now, devices, events = as_list(share)
    return [stop, now, devices, [event for event in as_list(events) if _order(event) not in gone]]


def _order(event: Plain) -> tuple[int, int]:
    values = as_list(event)
    return as_int(values[1]), as_int(values[2])


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    """The leaves of a scenario by key; a list is a leaf."""
    found: dict[str, object] = {}
    for key, one in value.items():
        if isinstance(one, Mapping) and one:
            found |= _flat(one, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = one
    return found
