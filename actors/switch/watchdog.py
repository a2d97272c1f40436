"""The PFC watchdog: it ends a storm of pauses, queue by queue.

A storm of pauses, from a broken NIC or a deadlock, holds a queue for ever and spreads upstream. The watchdog
looks at each egress queue by itself: one that its peer has stopped without interruption for the *detection*
time, with frames waiting, is in a storm. Then, by the scenario's action,

* `drop`: what waits there is dropped, and so is what comes for it (reason `watchdog`); with `both_ways`, as
  on Broadcom's chips, also what enters the switch by that port in that class;
* `forward`: pauses of that class are ignored, and the queue sends.

When no pause has held for the *restoration* time the queue is as before.

Timers are the queue's own: one is pending while the queue is stopped or in a storm, and none otherwise.

Source: SONiC's PFC watchdog (detection, restoration, action; both ways: sonic-net/sonic-mgmt#7919); Meta
(SIGCOMM 2024) alarms on pauses of 200 ms.

Not modelled: polling intervals, storms of several queues handled together.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, u8

from actors.kernel.device import Plain
from actors.kernel.event import WATCHDOG
from actors.kernel.state import load_fields, save_fields
from actors.kernel.vectors import vec
from actors.port.pfc import Pfc
from actors.switch.egress import SwitchPort

_FIELDS: Final = ("_watching", "stormy", "storms")


class PauseWatch:
    """The watchdog of one port."""

    def __init__(
        self,
        port: SwitchPort,
        pfc: Pfc,
        detection_ps: int,
        restoration_ps: int,
        forward: bool,
        both_ways: bool = False,
    ) -> None:
        self.port: SwitchPort = port
        self.pfc: Pfc = pfc
        self.detection_ps: i64 = detection_ps
        self.restoration_ps: i64 = restoration_ps
        self.forward: bool = forward
        self.both_ways: bool = both_ways
        """Whether it drops what enters, too."""
        self.stormy: i64 = 0
        """The classes that are in a storm."""
        self.storms: vec[i64] = vec[i64]([0] * 8)
        self._watching: i64 = 0

    def paused(self, stopped: i64, now: i64) -> None:
        """Some classes (a mask) of the port are stopped: watch those that are not watched yet."""
        fresh: i64 = stopped & ~self._watching
        priority: i64 = 0
        while fresh != 0:
            if fresh & 1:
                self._look_again(priority, now + self.detection_ps)
            fresh >>= 1
            priority += 1

    def expire(self, priority: i64, now: i64) -> bool:
        """Time to look at a class; whether a storm began or ended."""
        bit: i64 = 1 << priority
        self._watching &= ~bit
        if (self.stormy & bit) != 0:
            quiet_ps: i64 = self.pfc.until_ps[priority] + self.restoration_ps
            if quiet_ps > now:
                self._look_again(priority, quiet_ps)
            else:
                self._restore(priority, now)
                return True
        elif (self.port.blocked & ~self.pfc.held & bit) != 0:
            due_ps: i64 = self.pfc.since_ps[priority] + self.detection_ps
            if due_ps > now:
                self._look_again(priority, due_ps)
            elif (self.port.waiting & bit) != 0 or self.port.voq_bytes[priority] > 0:
                self._storm(priority, now)
                return True
            else:
                self._look_again(priority, now + self.detection_ps)
        return False

    def _storm(self, priority: i64, now: i64) -> None:
        bit: i64 = 1 << priority
        self.stormy |= bit
        self.storms[priority] += 1
        port = self.port
        if self.forward:
            self.pfc.ignore(priority, now)
            port.kick(now)
        else:
            port.discarding |= u8(bit)
            port.discard(priority, now)
            if self.both_ways:
                port.shunned |= bit
                port.suspect = True
        self._look_again(priority, now + self.restoration_ps)

    def _restore(self, priority: i64, now: i64) -> None:
        bit: i64 = 1 << priority
        self.stormy &= ~bit
        self.port.discarding &= u8(0xFF & ~bit)
        self.port.shunned &= ~bit
        self.pfc.ignored &= ~bit
        self.port.kick(now)

    def _look_again(self, priority: i64, at_ps: i64) -> None:
        self._watching |= 1 << priority
        self.port.owner.push_timer(at_ps, WATCHDOG, self.port.number, priority)

    def save(self) -> list[Plain]:
        """What is watched, and the storms so far."""
        return save_fields(self, _FIELDS)

    def load(self, state: Plain) -> None:
        """Take the state that `save` returned."""
        load_fields(self, _FIELDS, state)
