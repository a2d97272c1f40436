"""What lost its signal: a link, a NIC, a switch, a server.

Both ends log when a port goes down and comes up. Links that went down at the same instant belong together:
all of a switch's, all of a NIC's, all of a server's. A server that is lost answers nobody, or says that it
booted once it is back; a NIC that was reset has every queue pair in error since that instant. A NIC with one
port, its port and its link look alike: the link is named.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from actors.fabric.model import Role
from actors.kernel.counters import NIC_PATHS_FAILED
from actors.wire.message import STATUS_RETRY_EXCEEDED
from emu.base.units import shown_time
from emu.counts.device_state import BOOTED, PAIR_ERROR
from emu.topology.fabric_blocks import planes
from emu.views.diagnosis.finding import Finding
from emu.views.diagnosis.view import View

MOST_SPANS = 3
MOST_NICS = 4
_UNTIL_BACK = ("link_down", "link_flap", "switch_down", "nic_down")
"""What is over once its links have their signal again."""


class Dark(NamedTuple):
    """A link that lost its signal."""

    name: str
    ends: tuple[tuple[int, int], ...]
    """Device and port; one where the other end does not answer."""
    times: int
    spans: tuple[tuple[int, int], ...]
    """From, until (-1: it is down still); the last ones."""

    @property
    def since_ps(self) -> int:
        """The first time that is known of."""
        return self.spans[0][0]

    @property
    def until_ps(self) -> int:
        """When it had its signal again; -1 if it never had."""
        return -1 if any(end_ps < 0 for _, end_ps in self.spans) else max(end_ps for _, end_ps in self.spans)

    def covers(self, at_ps: int) -> bool:
        """Whether it had no signal then."""
        return any(start_ps <= at_ps and (end_ps < 0 or at_ps < end_ps) for start_ps, end_ps in self.spans)


def found(view: View) -> Iterator[Finding]:
    """Everything that went dark, the largest thing that explains it first."""
    dark = _dark(view)
    reported: dict[str, bool] = {}
    for claims in (_hosts, _switches, _nics):
        for finding, links in claims(view, dark):
            if any(link not in reported for link in links) or not links:
                reported.update(dict.fromkeys(links, True))
                yield _with_paths(view, finding, [dark[link] for link in links])
    for one in dark.values():
        if one.name not in reported:
            yield _with_paths(view, _link(view, one), [one])


def _with_paths(view: View, finding: Finding, links: Sequence[Dark]) -> Finding:
    """A finding with the planes of its links, and whose paths were given up, where NICs own the paths."""
    ends = [one.until_ps for one in links]
    if ends and min(ends) >= 0 and finding.cause in _UNTIL_BACK:
        finding = finding._replace(until_ps=max(ends))
    transport = view.scenario.transport
    of_switch = planes(view.topology)
    of_links = sorted({of_switch[end] for one in links for end, _ in one.ends if end in of_switch})
    if transport.is_rc or not of_links:
        return finding
    given_up = [
        f"{view.name(nic)} {paths}"
        for nic in view.numbers(Role.NIC)
        if (paths := view.total(NIC_PATHS_FAILED, nic))
    ]
    line = f"plane {', '.join(map(str, of_links))}: "
    if not given_up:
        line += "no path was given up"
    else:
        more = f" and {len(given_up) - MOST_NICS} more NICs" if len(given_up) > MOST_NICS else ""
        each = getattr(transport.paths, "paths", 0)
        line += f"paths given up by {', '.join(given_up[:MOST_NICS])}{more}"
        line += f"; a queue pair that sends has {each} at a port" if each else ""
    return finding._replace(evidence=(line, *finding.evidence))


def _dark(view: View) -> dict[str, Dark]:
    """Links that were down, by name."""
    links: dict[str, Dark] = {}
    for number in view.striking("downs"):
        by_port: dict[int, list[Sequence[int]]] = {}
        for row in view.rows(number, "downs"):
            by_port.setdefault(row[0], []).append(row)
        for port, rows in by_port.items():
            name = view.link_name(number, port)
            ends = (*(links[name].ends if name in links else ()), (number, port))
            spans = tuple((row[2], row[3]) for row in rows)
            links[name] = Dark(name, ends, rows[-1][1], spans)
    return links


def _together(view: View, dark: dict[str, Dark], nodes: Sequence[int]) -> tuple[list[Dark], int] | None:
    """The most links of some devices that went down at one instant, where all others were down already, and
    when that first was.
    """
    links = [dark[link] for link in _links(view, nodes) if link in dark]
    if not links or len(links) < len(_links(view, nodes)):
        return None
    found: tuple[list[Dark], int] | None = None
    for at_ps in sorted({start_ps for one in links for start_ps, _ in one.spans}):
        gone = [one for one in links if any(at_ps == start_ps for start_ps, _ in one.spans)]
        if (found is None or len(gone) > len(found[0])) and all(one.covers(at_ps) for one in links):
            found = gone, at_ps
    return found


def _links(view: View, nodes: Sequence[int]) -> list[str]:
    return [view.link_name(node, port) for node in nodes for port, _ in view.fabric_ports(node)]


def _hosts(view: View, dark: dict[str, Dark]) -> Iterator[tuple[Finding, list[str]]]:
    """Servers that do not answer, or that say they booted."""
    topology = view.topology
    for host in topology.hosts:
        silent = bool(view.rows(host, "silent"))
        booted = [row[0] for row in view.rows(host, "log") if row[1] == BOOTED]
        if not silent and not booted:
            continue
        members = topology.server(topology.nodes[host].host)
        nics = [node for node in members if view.role(node) is Role.NIC]
        gone = _together(view, dark, nics)
        since_ps = gone[1] if gone else 0
        links = [one.name for one in gone[0]] if gone else []
        what = "does not answer" if silent else f"booted at {shown_time(booted[-1])}"
        sentence = (
            f"{view.name(host)} went dark at {shown_time(since_ps)}: it {what}, and the links of all its "
            "NICs lost their signal at once"
        )
        evidence = [
            f"{view.name(host)}: {what}",
            *(_down_line(view, one) for one in (gone[0] if gone else [])),
        ]
        yield (
            Finding("host_lost", view.name(host), 980, sentence, tuple(evidence), since_ps, alarms=True),
            links,
        )


def _switches(view: View, dark: dict[str, Dark]) -> Iterator[tuple[Finding, list[str]]]:
    for switch in view.numbers(Role.SWITCH) if dark else ():
        gone = _together(view, dark, [switch])
        ports = len(_links(view, [switch]))
        if gone is None or len(gone[0]) < 2 or len(gone[0]) * 2 <= ports:
            continue
        links, since_ps = gone
        which = (
            f"all its {ports} links"
            if len(links) == ports
            else f"the {len(links)} of its {ports} links that were up"
        )
        lost = sum(_lost(view, one) for one in links)
        sentence = (
            f"{view.name(switch)} went down at {shown_time(since_ps)}: {which} lost "
            f"their signal at once, and {lost} frames were lost on them"
        )
        evidence = tuple(_down_line(view, one) for one in links[:MOST_SPANS])
        yield (
            Finding("switch_down", view.name(switch), 960, sentence, evidence, since_ps, alarms=True),
            [one.name for one in links],
        )


def _nics(view: View, dark: dict[str, Dark]) -> Iterator[tuple[Finding, list[str]]]:
    for nic in view.numbers(Role.NIC) if dark else ():
        gone = _together(view, dark, [nic])
        if gone is None:
            continue
        links, since_ps = gone
        errors = [row for row in view.rows(nic, "log") if row[1] == PAIR_ERROR]
        starts = {start_ps for one in links for start_ps, _ in one.spans}
        at_once = [row for row in errors if row[0] in starts and row[4] != STATUS_RETRY_EXCEEDED]
        names = [one.name for one in links]
        lines = tuple(_down_line(view, one) for one in links)
        if at_once:
            sentence = (
                f"{view.name(nic)} was reset at {shown_time(at_once[0][0])}: {len(at_once)} queue pairs "
                "went into error and its links lost their signal at the same instant"
            )
            evidence = (f"{view.name(nic)} log: {len(at_once)} queue pairs in error", *lines)
            yield (
                Finding("nic_reset", view.name(nic), 950, sentence, evidence, at_once[0][0], alarms=True),
                names,
            )
        elif 1 < len(links) == len(_links(view, [nic])):
            sentence = (
                f"{view.name(nic)} went down at {shown_time(since_ps)}: all its {len(links)} links lost "
                "their signal at once"
            )
            yield (
                Finding("nic_down", view.name(nic), 940, sentence, lines, since_ps, alarms=True),
                names,
            )


def _lost(view: View, one: Dark) -> int:
    return sum(view.dropped(number, port, "link_down") for number, port in one.ends)


def _span(span: tuple[int, int]) -> str:
    until = "on" if span[1] < 0 else f"to {shown_time(span[1])}"
    return f"from {shown_time(span[0])} {until}"


def _down_line(view: View, one: Dark) -> str:
    spans = ", ".join(_span(span) for span in one.spans[:MOST_SPANS])
    more = f" and {one.times - MOST_SPANS} times more" if one.times > MOST_SPANS else ""
    return f"{one.name}: down {spans}{more}; {_lost(view, one)} frames lost"


def _link(view: View, one: Dark) -> Finding:
    lost = _lost(view, one)
    score = 900 + min(lost, 20)
    if one.times > 1:
        sentence = f"link {one.name} lost its signal {one.times} times, first at {shown_time(one.since_ps)}"
        return Finding(
            "link_flap",
            one.name,
            score + 5,
            f"{sentence}; {lost} frames were lost on it",
            (_down_line(view, one),),
            one.since_ps,
            alarms=True,
        )
    sentence = f"link {one.name} was down {_span(one.spans[0])}; {lost} frames were lost on it"
    return Finding(
        "link_down", one.name, score, sentence, (_down_line(view, one),), one.since_ps, alarms=True
    )
