"""The report of one run: its data for the script, and what stands there without it.

Behind every picture stands a table or the text that the terminal had. Figures by port and interval are packed
(deflate, base64): a pod of 3,072 GPUs with 200 samples stays below 8 MB.

The script's own time axis carries zoom, pan and crosshair for bars, curves and heat maps alike;
docs/design.md says why it is no library.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from actors.fabric.model import FABRIC, Role, Topology
from actors.wire.fault import DELAY, ERRORS, RATE
from emu.base.units import about_size, about_time, counted, percent, shown_time
from emu.results.summary import GroupLoad, Link, OperatorResult, Plane, Summary
from emu.results.training_result import TrainingResult
from emu.scenario.faults.events import Fault, spans_of
from emu.scenario.resolve import resolve
from emu.scenario.schema import Scenario
from emu.summary.jobs import DISABLED
from emu.summary.step_bar import step_bar
from emu.summary.summary_report import (
    closing_lines,
    diagnosis_lines,
    expectation_line,
    fabric_line,
    fault_lines,
    plane_table,
    verdict_line,
)
from emu.topology.outline import describe, summary_line
from emu.views.reports.html_file import MOST_ROWS, chart_places, document, folded, packed, table
from emu.views.reports.recording import DROPS, MEASURES, PAUSED, UTILISATION, Port, Recording

MOST_BARS: Final = 2000
"""Bars of one row of the time axis, at most."""
MOST_NAMES: Final = 5000
"""Names that the search field offers, at most; it finds all."""
FOUND: Final = frozenset({Role.SWITCH, Role.NIC, Role.GPU, Role.HOST})
_WORDS: Final = {
    "utilisation": "Utilisation",
    "paused": "Paused share",
    "queue": "Queue",
    "drops": "Drops",
}


def page(recording: Recording) -> str:
    """The report of one run."""
    data = _data(recording)
    return document(recording.summary.scenario.name, _body(recording, data), data)


# ---- what the script draws


def _data(recording: Recording) -> dict[str, Any]:
    measure, start, first = opens_at(recording)
    run = recording
    return fabric_data(run.topology, run.ports, run.edges_ps, run.measures) | {
        "jobs": jobs_data(run.scenario, run.topology),
        "accused": run.summary.diagnosis[0].place if run.summary.diagnosis else "",
        "span": max(recording.edges_ps[-1], recording.summary.virtual_ps, 1),
        "rows": time_rows(recording),
        "charts": curves(recording.summary),
        "steps": _steps(recording),
        "uplinks": uplink_bars(recording.summary.fabric.uplinks),
        "down": links_down(run.topology, run.events, run.summary.virtual_ps),
        "weak": links_weak(run.topology, run.faults, run.summary.virtual_ps),
        "measure": measure,
        "start": start,
        "first": first,
    }


def fabric_data(
    topology: Topology, ports: Sequence[Port], edges_ps: Sequence[int], measures: Sequence[bytes]
) -> dict[str, Any]:
    """Devices, ports and figures; and which GPU has which NICs in which host."""
    nodes, hosts = topology.nodes, topology.hosts
    return {
        "hosts": [nodes[host].name for host in hosts],
        "gpus": [
            [nodes[gpu].name, nodes[hosts[nodes[gpu].host]].name, topology.nics_of_gpu(gpu)]
            for gpu in topology.gpus
        ],
        "nodes": [{"name": node.name} for node in topology.nodes],
        "ports": [list(port) for port in ports],
        "edges": list(edges_ps),
        "series": [[packed(one) for one in measures]],
        "tiers": _tiers(topology),
    }


def jobs_data(scenario: Scenario, topology: Topology) -> list[dict[str, Any]]:
    """Jobs by name, with the place of each rank's GPU in `gpus`."""
    place = {gpu: at for at, gpu in enumerate(topology.gpus)}
    return [
        {"name": job.name, "gpus": [place[gpu] for gpu in job.gpus if gpu in place]}
        for job in resolve(scenario, topology).jobs
    ]


def opens_at(recording: Recording) -> tuple[int, int, int]:
    """What is shown first, as measure, interval and port: most drops, else the longest pause, else the
    busiest; of the ports at the first cause that the diagnosis names, else of all."""
    for ports in (_accused(recording), range(len(recording.ports))):
        for measure in (DROPS, PAUSED, UTILISATION):
            rows = {port: recording.row(measure, port) for port in ports}
            most = max((max(row, default=0) for row in rows.values()), default=0)
            if most:
                return measure, *min((row.index(most), port) for port, row in rows.items() if most in row)
    return 0, 0, -1


def _accused(recording: Recording) -> list[int]:
    """The ports at the first cause that the diagnosis names: both of a link `a:b`, one of `a>b`, all from and
    to a device, or to the NICs of a GPU or a host."""
    for finding in recording.summary.diagnosis[:1]:
        names = [node.name for node in recording.topology.nodes]
        between = [(names[port.device], names[port.peer]) for port in recording.ports]
        sender, arrow, receiver = finding.place.partition(">")
        one, _, other = finding.place.partition(":")
        pairs = {(sender, receiver)} if arrow else {(one, other), (other, one)}
        devices = _networked(recording.topology, finding.place)
        return [
            at
            for at, (port, ends) in enumerate(zip(recording.ports, between, strict=True))
            if ends in pairs or port.device in devices or port.peer in devices
        ]
    return []


def _networked(topology: Topology, name: str) -> set[int]:
    """What stands on the network of a device, a GPU or a host of that name; nothing of another name."""
    found = {node.number for node in topology.nodes if node.name == name}
    for number in list(found):
        if topology.nodes[number].role is Role.GPU:
            found |= set(topology.nics_of_gpu(number))
        elif topology.nodes[number].role is Role.HOST:
            found |= {nic for nic in topology.nics if topology.nodes[nic].host == topology.nodes[number].host}
    return found


def links_weak(topology: Topology, faults: Iterable[Fault], end_ps: int) -> list[list[Any]]:
    """Links that a fault made slow, lossy or late, or that were drained, while their signal is there: the
    devices at both ends, from when, until when, and which fault it is."""
    found: list[list[Any]] = []
    listed = list(faults)
    lasting = [fault for fault in listed if not fault.repairs]
    for fault, (begin_ps, until_ps) in zip(lasting, spans_of(listed), strict=True):
        ends = {(one.device, one.place) for one in fault.changes if one.op in (RATE, ERRORS, DELAY)}
        for link in topology.links:
            is_changed = (link.a, link.a_port) in ends or (link.b, link.b_port) in ends
            if link.kind != FABRIC or link.number in fault.down:
                continue
            if is_changed or link.number in fault.avoided:
                words = f"{fault.kind} {fault.target}"
                found.append([link.a, link.b, begin_ps, min(until_ps, end_ps), words])
    return found


def links_down(topology: Topology, events: Iterable[Mapping[str, Any]], end_ps: int) -> list[list[int]]:
    """Links that were down by the journal: the devices at both ends, from when, until when."""
    found: list[list[int]] = []
    open_since: dict[str, list[int]] = {}
    names = {link.name: (link.a, link.b) for link in topology.links}
    for event in events:
        if event.get("kind") != "link" or event["link"] not in names:
            continue
        name, at_ps = event["link"], event["virtual_ps"]
        if event["up"]:
            if name in open_since:
                open_since.pop(name)[3] = at_ps
        elif name not in open_since:
            open_since[name] = [*names[name], at_ps, end_ps]
            found.append(open_since[name])
    return found


def _tiers(topology: Topology) -> list[dict[str, Any]]:
    """Rows of devices, the highest tier on top, NICs at the bottom."""
    found: list[dict[str, Any]] = []
    for tier in reversed(describe(topology).tiers):
        mine = [one for one in topology.switches if topology.nodes[one].tier == tier.tier]
        found.append(
            {"label": f"{tier.switches:,} {tier.model}\ntier {tier.tier}", "tier": tier.tier, "nodes": mine}
        )
    hosts = counted(len(topology.hosts), "host")
    nics = [nic for nic in topology.nics if topology.nodes[nic].role is Role.NIC]
    found.append({"label": f"{counted(len(nics), 'NIC')}\n{hosts}", "tier": 0, "nodes": nics})
    return found


def time_rows(recording: Recording) -> list[dict[str, Any]]:
    """Rows of the time axis: operations or steps of jobs, operator, faults, findings of the diagnosis."""
    summary, end_ps = recording.summary, recording.summary.virtual_ps
    rows: list[dict[str, Any]] = []
    names = [job.name for job in recording.scenario.jobs]
    for place, name in enumerate(names):
        job = summary.jobs.get(name)
        if job is None:
            continue
        bars = [
            [one.start_ps, one.end_ps or end_ps, f"{one.op} {about_size(one.bytes)}", _kind(one.status), name]
            for one in job.collectives
            if one.start_ps is not None
        ]
        steps: dict[int, list[int]] = {}
        for row in recording.steps:
            if row[0] == place:
                begin, end = steps.setdefault(row[2], [row[3], row[4]])
                steps[row[2]] = [min(begin, row[3]), max(end, row[4])]
        bars += [[begin, end, f"step {step}", "job", name] for step, (begin, end) in sorted(steps.items())]
        if job.status == DISABLED:
            rows.append({"label": f"{name} (disabled)", "bars": []})
            continue
        bars = bars or [[job.start_ps or 0, job.end_ps or end_ps, job.status, _kind(job.status), name]]
        rows.append({"label": name, "bars": bars[:MOST_BARS]})
    rows += operator_row(summary.operator, end_ps)
    faults: dict[int, list[list[Any]]] = {}
    for event in recording.events:
        if event.get("kind") == "fault":
            until_ps = fault_end(recording.scenario, event, end_ps)
            target = event.get("target", "")
            bar = [event["virtual_ps"], until_ps, f"{event['what']} {target}", "fault", target]
            faults.setdefault(event["fault"], []).append(bar)
    rows += [{"label": bars[0][2], "bars": bars[:MOST_BARS]} for _, bars in sorted(faults.items())]
    for finding in summary.diagnosis:
        if finding.since_ps is not None:
            known = finding.since_ps > 0
            words = finding.sentence if known else f"since when is not known: {finding.sentence}"
            bar = [
                max(finding.since_ps, 0),
                end_ps,
                words,
                "found" if known else "found vague",
                finding.place,
            ]
            rows.append({"label": f"found: {finding.cause}", "bars": [bar]})
    return rows


def operator_row(operator: OperatorResult | None, end_ps: int) -> list[dict[str, Any]]:
    """The row of the time axis of an operator, if there is one: checkpoints, and the parts of each restart
    from the last moment that counted until the job goes on.
    """
    if operator is None:
        return []
    bars: list[list[Any]] = [
        [one.begun_ps, one.whole_ps or end_ps, f"checkpoint of step {one.step}", "job"]
        for one in operator.checkpoints
    ]
    for one in operator.restarts:
        why = f"{one.rule} {one.host}".strip()
        took = one.took
        parts = {
            "noticing": one.noticed_ps - one.since_ps,
            "stop": took.stop_ps,
            "self-check": took.self_check_ps,
            "launch": took.launch_ps,
            "init": took.init_ps,
            "load": took.load_ps,
        }
        at_ps = one.since_ps
        for part, part_ps in parts.items():
            if part_ps:
                bars.append([at_ps, at_ps + part_ps, f"{part} ({why})", "fault", one.host])
            at_ps += part_ps
    bars += [
        [one.at_ps, one.at_ps, f"reported {one.host}: {one.rule}", "found", one.host]
        for one in operator.reported
    ]
    return [{"label": f"operator of {operator.job}", "bars": bars[:MOST_BARS]}]


def fault_end(scenario: Scenario, event: Mapping[str, Any], end_ps: int) -> int:
    """When a fault of the journal is over: at once where its kind does not last, as `link_up`."""
    lasts = "for_ps" in type(scenario.faults[event["fault"]]).model_fields
    until_ps: int = event.get("until_ps") or (end_ps if lasts else event["virtual_ps"])
    return until_ps


def _kind(status: str) -> str:
    return "job" if status == "success" else "failed"


def curves(summary: Summary, name_of_run: str = "") -> list[dict[str, Any]]:
    """GB/s of busbw by size, of each operation that ran with two sizes or more: the best iteration."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    for name, job in summary.jobs.items():
        for one in job.collectives:
            if one.busbw is not None and one.bytes:
                curve = found.setdefault((name, one.op), {})
                curve[one.bytes] = max(curve.get(one.bytes, 0.0), round(one.busbw / 8e9, 3))
    return [
        {
            "label": f"{name}: {op}, busbw by size",
            "x": "bytes",
            "y": "GB/s",
            "lines": [{"name": name_of_run, "points": [[at, rate, []] for at, rate in curve.items()]}],
        }
        for (name, op), curve in found.items()
        if len(curve) > 1
    ]


def uplink_bars(uplinks: Sequence[GroupLoad]) -> list[dict[str, Any]]:
    """The load of each uplink over the mean, for the switches whose uplinks are most uneven."""
    used = [one for one in uplinks if one.max_over_mean]
    used.sort(key=lambda one: -(one.max_over_mean or 0))
    return [
        {
            "name": one.switch,
            "towards": one.towards,
            "loads": [round(load * len(one.loads) / sum(one.loads), 3) for load in one.loads],
        }
        for one in used[:MOST_ROWS]
    ]


def _steps(recording: Recording) -> list[dict[str, Any]]:
    """Rows of each job of steps: rank, step, begin, end, computing, waits; and who is in whose group."""
    found: list[dict[str, Any]] = []
    for place, job in enumerate(recording.scenario.jobs):
        rows = [row[1:] for row in recording.steps if row[0] == place]
        result = recording.summary.jobs[job.name].training if job.name in recording.summary.jobs else None
        if not rows or result is None:
            continue
        ranks = recording.summary.jobs[job.name].ranks
        found.append(
            {
                "name": job.name,
                "reasons": list(result.exposed),
                "ranks": ranks,
                "steps": max(row[1] for row in rows) + 1,
                "rows": sorted(rows),
                "groups": job.workload.peers(ranks),
            }
        )
    return found


# ---- what stands there without the script


def _body(recording: Recording, data: Mapping[str, Any]) -> Iterator[str]:
    summary = recording.summary
    ended = "good" if summary.ending == "finished" else "bad"
    verdict = verdict_line(summary)
    judged = {"PASS": "good", "FAIL": "bad"}.get(verdict.partition(" ")[0], "")
    yield f"<h1>{escape(summary.scenario.name)}</h1>"
    yield f'<p class="quiet">{escape(summary_line(describe(recording.topology)))}</p>'
    yield f'<p id="judged" class="{judged}"><b>{escape(verdict)}</b></p>'
    yield (
        f'<p><span class="{ended}">{summary.ending}</span> after {about_time(summary.virtual_ps)} of virtual'
        f' time, seed {summary.scenario.seed} <span class="quiet">· emu {escape(summary.version)} · digest'
        f" {escape((summary.digest or 'none')[:16])}</span></p>"
    )
    yield from _findings(summary)
    yield from over_time()
    yield from _fabric(recording)
    yield from _jobs(summary, data["charts"])
    yield from _step_sections(data["steps"])
    yield from _planes(summary.fabric.planes)
    yield from _balance(summary.fabric.uplinks)
    yield "<h2>What the terminal said</h2>"
    yield folded("The whole text", f"<pre>{escape(chr(10).join(closing_lines(summary)))}</pre>")


def over_time() -> Iterator[str]:
    """The time axis, with what moves and stretches it in every panel over time."""
    yield '<h2>Over time</h2>\n<p class="controls"><button id="zoom-in" type="button">Zoom in</button>'
    yield ' <button id="zoom-out" type="button">Zoom out</button>'
    yield ' <button id="whole" type="button">Whole run</button>'
    yield ' <label class="choice" hidden><input id="fold" type="checkbox" checked> fold idle'
    yield " stretches</label>"
    yield ' <output id="stretch" class="quiet"></output></p>'
    yield '<div id="timeline" class="overtime"></div>'
    yield '<p class="quiet">Drag to zoom, shift and drag to pan, wheel or + and - to zoom, double-click or 0'
    yield " for the whole run. A click on a bar leads to what it is about.</p>"


def finding_lines(summary: Summary) -> Iterator[str]:
    """What the diagnosis found, as items of a list that lead to the place and the time of each cause."""
    end_ps = summary.virtual_ps
    leads = {one.sentence: (one.place, one.since_ps) for one in summary.diagnosis}
    for line in diagnosis_lines(summary.diagnosis, summary.uncompared_events):
        said = line.strip()
        place, since_ps = leads.get(said.partition(": ")[2], ("", None))
        yield f"<li>{_lead(said, place, since_ps, end_ps)}</li>"


def _lead(words: str, place: str, begin_ps: int | None, until_ps: int) -> str:
    """Words that lead to a place and a stretch of time, where they have any."""
    if not place:
        return escape(words)
    stretch = f' data-from="{begin_ps}" data-until="{until_ps}"' if begin_ps and begin_ps > 0 else ""
    return f'<a class="lead" href="#map" data-place="{escape(place)}"{stretch}>{escape(words)}</a>'


def _findings(summary: Summary) -> Iterator[str]:
    lines = list(finding_lines(summary))
    for line, fault in zip(fault_lines(summary.faults), summary.faults, strict=True):
        until_ps = summary.virtual_ps if fault.until_ps is None else fault.until_ps
        lines.append(f"<li>{_lead(line, fault.target if fault.happened else '', fault.at_ps, until_ps)}</li>")
    if lines:
        yield '<ul class="found">'
        yield from lines
        yield "</ul>"
    if summary.expectations:
        yield '<ul class="found">'
        for one in summary.expectations:
            kind = "good" if one.passed else "bad"
            yield f'<li class="{kind}">{escape(expectation_line(one))}</li>'
        yield "</ul>"


def _fabric(recording: Recording) -> Iterator[str]:
    yield "<h2>Fabric</h2>"
    if recording.summary.fidelity == "flow":
        yield f"<p>{escape(fabric_line(recording.summary.fabric))}, nor is anything over time.</p>"
    elif len(recording.edges_ps) < 2:
        yield "<p>No samples were recorded: <code>run.sample_every</code> says how often they are.</p>"
        return
    else:
        names = [job.name for job in recording.scenario.jobs]
        yield from fabric_pictures(recording.topology, len(recording.edges_ps) - 1, names)
    links = sorted(recording.summary.fabric.links, key=lambda link: (-link.utilisation, -(link.paused or 0)))
    head = ("from", "to", "data", "utilisation", "paused")
    busiest = table(head, [_link_cells(link) for link in links])
    yield folded(f"The {min(len(links), MOST_ROWS)} busiest links as a table", busiest)


def fabric_pictures(
    topology: Topology, count: int, jobs: Sequence[str], views: Sequence[str] = ()
) -> Iterator[str]:
    """Map, series of a port and every port over time; `views` are what of several runs can be shown."""
    if views:
        shown = "".join(
            f'<label class="choice"><input type="radio" name="view" value="{at}"> {escape(name)}</label>'
            for at, name in enumerate(views)
        )
        yield f'<p class="views">{shown}</p>'
    choices = "".join(
        f'<label class="choice"><input type="radio" name="measure" value="{at}"> {_WORDS[name]}</label>'
        for at, name in enumerate(MEASURES)
    )
    yield f'<div class="controls"><span>{choices}</span>'
    yield f'<input id="slider" type="range" min="0" max="{max(count - 1, 0)}" value="0" aria-label="Time">'
    yield '<output id="when"></output><button id="play" type="button">Play</button>'
    yield '<input id="find" type="search" placeholder="device, a:b, gpu-0-1, rank 3" list="devices"'
    yield ' aria-label="Find a device, a link, a GPU, a host, a rank or a job">'
    yield '<span class="quiet"><span id="least"></span> <span class="ramp" id="ramp"></span>'
    yield '<span id="most"></span></span></div>'
    named = [*jobs, *(one.name for one in topology.nodes if one.role in FOUND)]
    options = "".join(f"<option>{escape(name)}</option>" for name in named[:MOST_NAMES])
    yield f'<datalist id="devices">{options}</datalist><output id="found" class="bad"></output>'
    yield (
        '<p class="quiet">A device has the colour of its worst sending port, a cable of its worse direction;'
        " click on either.</p>"
    )
    yield '<canvas id="map" tabindex="0" role="img" aria-label="Heat map of the fabric at one time"></canvas>'
    yield '<div id="chosen" class="panel" hidden><b id="chosen-name"></b>'
    yield ' <span class="quiet" id="chosen-who"></span><div id="series" class="overtime"></div>'
    yield '<div class="wide"><table id="chosen-ports"></table></div></div>'
    yield '<p class="quiet">Every port over time, the highest tier on top, NICs at the bottom; a line that'
    yield " stands for several ports shows the greatest:</p>"
    yield '<div id="waterfall" class="overtime"></div>'


def _link_cells(link: Link) -> tuple[str, ...]:
    return (
        link.source,
        link.destination,
        about_size(link.data_bytes),
        percent(link.utilisation),
        percent(link.paused),
    )


def _jobs(summary: Summary, charts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "<h2>Jobs</h2>"
    rows = [
        (
            name,
            str(job.ranks),
            job.status,
            shown_time(job.start_ps) if job.start_ps else "0",
            shown_time(job.end_ps) if job.end_ps is not None else "-",
        )
        for name, job in summary.jobs.items()
    ]
    yield table(("job", "ranks", "status", "begin", "end"), rows)
    for name, job in summary.jobs.items():
        if job.training is not None:
            yield from step_panel(name, name, job.training)
    yield from chart_places(charts)
    operations = [
        (
            name,
            one.op,
            about_size(one.bytes),
            str(one.iteration),
            about_time(one.end_ps - one.start_ps) if one.end_ps and one.start_ps is not None else "-",
            f"{one.busbw / 8e9:.2f}" if one.busbw else "-",
            one.status,
        )
        for name, job in summary.jobs.items()
        for one in job.collectives
    ]
    if operations:
        head = ("job", "operation", "size", "iteration", "time", "busbw (GB/s)", "status")
        yield folded(f"{counted(len(operations), 'operation')} as a table", table(head, operations))


def step_panel(title: str, name: str, training: TrainingResult) -> Iterator[str]:
    """What a step of a job is made of: as a bar, and in words."""
    cut, *lines = training.lines(name)
    yield f'<div class="panel"><b>{escape(title)}</b>'
    yield step_bar(training)
    yield from (f"<p>{escape(line)}</p>" for line in lines)
    yield f'<p class="quiet">{escape(cut.partition(": ")[2])}</p></div>'


def _step_sections(jobs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for index, job in enumerate(jobs):
        parts = [
            "computing",
            *(f"waiting for {one}" for one in job["reasons"]),
            "waiting in all",
            "whole step",
        ]
        options = "".join(f'<option value="{at}">{escape(part)}</option>' for at, part in enumerate(parts))
        yield f"<h2>Steps of {escape(job['name'])}: ranks from top to bottom, steps from left to right</h2>"
        yield f'<p><select id="part-{index}" aria-label="What is shown">{options}</select>'
        yield f'<span class="ramp"></span> <span class="quiet" id="steps-scale-{index}"></span></p>'
        yield f'<canvas id="steps-{index}" tabindex="0" role="img" aria-label="Ranks by steps"></canvas>'
        yield f'<div class="panel"><b id="rank-name-{index}"></b> <ol class="chain" id="chain-{index}"></ol>'
        yield f'<div class="quiet" id="parts-{index}"></div><div id="bars-{index}"></div>'
        yield f'<div class="wide"><table id="rank-{index}"></table></div></div>'


def _planes(planes: Sequence[Plane]) -> Iterator[str]:
    if planes:
        yield "<h2>Planes</h2>"
        yield table(*plane_table(planes))


def _balance(uplinks: Sequence[GroupLoad]) -> Iterator[str]:
    if uplinks:
        yield "<h2>Uplinks</h2>"
        uneven = sorted(uplinks, key=lambda one: -(one.max_over_mean or 0))
        rows = [
            (
                one.switch,
                str(one.members),
                str(one.idle),
                about_size(one.data_bytes),
                "-" if one.max_over_mean is None else f"{one.max_over_mean:.2f}",
            )
            for one in uneven
        ]
        yield '<p class="quiet">Payload of each uplink over the mean of its switch; 1 is even, 0 is idle.</p>'
        yield '<div id="uplinks"></div>'
        yield folded("as a table", table(("switch", "uplinks", "idle", "payload", "fullest over mean"), rows))
