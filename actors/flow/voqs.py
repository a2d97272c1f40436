"""Modular switches: what waits at the port by which it came until its egress grants it credit.

`actors.switch.deep` with units in place of frames: a queue for each port of entry, egress and class (VOQ),
which reports what has joined it, one report under way at a time, and crosses to the egress on credit. The
egress grants what was reported at the rate of its link, a quantum at a time, queues in turn, urgent ones
first, and nothing while it is paused; what is granted and has not crossed stays within a window that grows
while the queue is not empty. Reports and grants each take the credit delay.

What has crossed stands in the egress' line (`actors.flow.links`). It counts at its port of entry until it is
sent, and a port has a buffer of its own (`Pools`), so what waits for one egress holds up nobody else until
that buffer is full.

Whoever goes through events pushes those in `due`, and brings each back to `happen`.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mypy_extensions import i64

from actors.flow.links import PS_OF_BIT_AT_KBPS, Links, Unit

_REPORT: Final = 0
_GRANT: Final = 1
_PACE: Final = 2


class Credit:
    """How the modular switches of a fabric grant. Times one way over the backplane; sizes in bits."""

    def __init__(
        self, behind: list[bool], delay_ps: int, quantum: int, initial: int, growth: int, most: int
    ) -> None:
        self.behind: list[bool] = behind
        """By link, whether it is the egress of one; empty: there are none."""
        self.delay_ps: i64 = delay_ps
        self.quantum: i64 = quantum
        self.initial: i64 = initial
        """A window at first, by how much it grows each time that as much has crossed, and up to what."""
        self.growth: i64 = growth
        self.most: i64 = most


class Voq:
    """One virtual output queue. Sizes in bits."""

    def __init__(self, number: int, egress: i64, urgent: bool, window: i64) -> None:
        self.number: int = number
        self.egress: i64 = egress
        self.urgent: bool = urgent
        self.units: deque[Unit] = deque()
        self.unreported: i64 = 0
        self.reporting: i64 = 0
        self.reports: bool = False
        """Whether a report is under way."""
        self.wanted: i64 = 0
        """Reported and not granted."""
        self.unused: i64 = 0
        """Granted and not crossed, as the egress knows it; and as the port of entry does."""
        self.credit: i64 = 0
        self.window: i64 = window
        self.crossed: i64 = 0
        self.standing: bool = False
        """Whether it stands in line at its egress."""
        self.grants: deque[int] = deque()

    def grantable(self, quantum: i64) -> i64:
        """What the egress may grant now."""
        amount: i64 = min(quantum, self.window >> 1)
        if amount > self.wanted:
            amount = self.wanted
        return amount if self.window - self.unused >= amount else 0


class Egress:
    """Who stands in line for the credit of one link, and when the next may be granted."""

    def __init__(self) -> None:
        self.line: deque[Voq] = deque()
        self.urgent: deque[Voq] = deque()
        self.next_ps: i64 = 0
        self.pacing: bool = False


class Voqs:
    """All queues of the modular switches of a fabric."""

    def __init__(self, links: Links, credit: Credit) -> None:
        self.links: Links = links
        self.credit: Credit = credit
        self.due: list[tuple[int, int]] = []
        """What is to happen: when, and what."""
        self._queues: list[Voq] = []
        self._numbers: dict[int, int] = {}
        self._egresses: dict[int, Egress] = {}

    def behind(self, link: i64) -> bool:
        """Whether a link is the egress of a modular switch."""
        return len(self.credit.behind) > 0 and self.credit.behind[link]

    def join(self, before: i64, link: i64, unit: Unit, urgent: bool, now_ps: i64) -> None:
        """A unit has come by a link, bound for another."""
        place: i64 = (before * len(self.links.rates) + link) * 2 + (1 if urgent else 0)
        number: i64 = self._numbers.get(int(place), -1)
        if number < 0:
            number = len(self._queues)
            self._numbers[int(place)] = int(number)
            self._queues.append(Voq(int(number), link, urgent, self.credit.initial))
        voq = self._queues[number]
        voq.units.append(unit)
        voq.unreported += unit.bits
        if not voq.reports:
            self._report(voq, now_ps)

    def happen(self, what: i64, now_ps: i64) -> i64:
        """What was due: a report or a grant is there, or the next grant may go out; returns the link that
        may send more, or -1.
        """
        kind: i64 = what & 3
        if kind == _PACE:
            link: i64 = what >> 2
            self._egresses[int(link)].pacing = False
            self.grant(link, now_ps)
            return -1
        voq = self._queues[what >> 2]
        if kind == _GRANT:
            return self._cross(voq, now_ps)
        voq.wanted += voq.reporting
        voq.reports = False
        if voq.unreported > 0:
            self._report(voq, now_ps)
        self._line_up(voq)
        self.grant(voq.egress, now_ps)
        return -1

    def _report(self, voq: Voq, now_ps: i64) -> None:
        voq.reporting = voq.unreported
        voq.unreported = 0
        voq.reports = True
        self.due.append((int(now_ps + self.credit.delay_ps), voq.number * 4 + _REPORT))

    def _line_up(self, voq: Voq) -> None:
        if voq.standing or voq.wanted == 0 or voq.grantable(self.credit.quantum) == 0:
            return
        voq.standing = True
        egress = self._egresses.get(int(voq.egress))
        if egress is None:
            egress = self._egresses[int(voq.egress)] = Egress()
        if voq.urgent:
            egress.urgent.append(voq)
        else:
            egress.line.append(voq)

    def grant(self, link: i64, now_ps: i64) -> None:
        """The egress grants credit to those who stand in line, at the rate of its link."""
        egress = self._egresses.get(int(link))
        while egress is not None and not egress.pacing:
            line = egress.urgent
            if not line:
                if self.links.stopped[link]:
                    return
                line = egress.line
            if not line:
                return
            if egress.next_ps > now_ps:
                egress.pacing = True
                self.due.append((int(egress.next_ps), int(link) * 4 + _PACE))
                return
            voq = line.popleft()
            voq.standing = False
            amount: i64 = voq.grantable(self.credit.quantum)
            voq.wanted -= amount
            voq.unused += amount
            voq.grants.append(int(amount))
            egress.next_ps = now_ps + amount * PS_OF_BIT_AT_KBPS // self.links.rates[link]
            self.due.append((int(now_ps + self.credit.delay_ps), voq.number * 4 + _GRANT))
            self._line_up(voq)

    def _cross(self, voq: Voq, now_ps: i64) -> i64:
        """Units go over to the egress as far as credit reaches."""
        voq.credit += voq.grants.popleft()
        crossed: i64 = 0
        while voq.units and voq.units[0].bits <= voq.credit:
            unit = voq.units.popleft()
            voq.credit -= unit.bits
            crossed += unit.bits
            if voq.urgent:
                self.links.first[voq.egress].append(unit)
            else:
                self.links.lines[voq.egress].append(unit)
        if crossed == 0:
            return -1
        voq.unused -= crossed
        voq.crossed += crossed
        if not voq.units:
            voq.window = self.credit.initial
            voq.crossed = 0
        elif voq.crossed >= voq.window:
            voq.crossed = 0
            voq.window = min(voq.window * self.credit.growth, self.credit.most)
        self._line_up(voq)
        self.grant(voq.egress, now_ps)
        return voq.egress
