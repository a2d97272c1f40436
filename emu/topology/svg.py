"""A fabric drawn as SVG: the place of each part, and how it is written.

Tiers are rows, the highest on top, servers at the bottom; blocks (racks, pods) are frames around what hangs
together. A large fabric is drawn by its first and last parts: what is left out is said between them ("+188"),
and the margin on the left has the true counts of every row. What is drawn is drawn truly: a line stands for
the links between these two devices, and is wider where they are several.

A `Scene` is plain shapes in whole pixels. The layout goes twice
over the blocks: once to choose what is shown and how wide that is, once to give it its place.

The SVG is one file without scripts, fonts or links to anything else, which every browser and editor shows.
Planes have a colour each; what belongs to none is grey.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final, NamedTuple

from actors.fabric.model import FABRIC, Role, Topology
from emu.base.units import counted, format_time
from emu.topology.fabric_blocks import Block, blocks, plane_word, planes, word
from emu.topology.outline import Tier, about_rate, describe, ratio_text, summary_line

MARGIN: Final = 24
HEAD: Final = 72
"""Height of the title and the line below it."""
SIDE: Final = 244
"""Width of the margin with the counts of each row."""
ROW: Final = 130
BOX: Final = 28
GAP: Final = 12
PAD: Final = 12
LABEL: Final = 22
"""Height of a frame's own name."""
STUB: Final = 12
LETTER: Final = 7
LONGEST: Final = 20
SKIP: Final = 44
"""Width of what is said of devices left out."""
ROOMS: Final = (12, 10, 8, 6, 5, 4)
"""About how many servers, and how many switches in a row, a drawing has room for: the first that fits."""
WIDTH: Final = 760
"""A drawing is at least so wide, for its title."""
MOST_WIDTH: Final = 1240
"""A wider drawing shows fewer devices, as far as that helps: it stands beside text."""


class Box(NamedTuple):
    """A device; `plane` is -1 for a server."""

    x: int
    y: int
    width: int
    name: str
    plane: int


class Frame(NamedTuple):
    """The outline of a block."""

    x: int
    y: int
    width: int
    height: int
    name: str
    tier: int


class Line(NamedTuple):
    """The links between two devices."""

    x1: int
    y1: int
    x2: int
    y2: int
    links: int
    plane: int


class Note(NamedTuple):
    """Words, in one of the styles `title`, `lead`, `row` (what a row is), `side` (more of it), `skip`."""

    x: int
    y: int
    text: str
    style: str


class Scene(NamedTuple):
    """A drawing."""

    width: int
    height: int
    frames: tuple[Frame, ...]
    lines: tuple[Line, ...]
    boxes: tuple[Box, ...]
    notes: tuple[Note, ...]


class _Row(NamedTuple):
    """Devices side by side: node numbers, and below zero how many are left out there."""

    tier: int
    items: tuple[int, ...]
    box: int

    @property
    def width(self) -> int:
        """With the gaps between them."""
        return sum(self.box if item >= 0 else SKIP for item in self.items) + GAP * max(len(self.items) - 1, 0)


class _Part(NamedTuple):
    """What is shown of a block, and how wide that is."""

    block: Block
    name: str
    """Name of its frame; empty where it has none."""
    row: _Row
    inner: tuple[_Part | int, ...]
    """Blocks below, and below zero how many of them are left out there."""
    servers: _Row
    width: int


def draw(topology: Topology) -> Scene:
    """The drawing of a fabric."""
    scene = _drawn(topology, ROOMS[0])
    for room in ROOMS[1:]:
        if scene.width <= MOST_WIDTH:
            break
        scene = min(scene, _drawn(topology, room), key=lambda one: one.width)
    return scene


def _drawn(topology: Topology, room: int) -> Scene:
    layout = _Layout(topology, room)
    x = MARGIN + SIDE
    roots = blocks(topology)
    for root in roots:
        part = layout.measure(root, room // len(roots), framed=len(roots) > 1)
        layout.place(part, x, part.width)
        x += part.width + GAP
    return layout.scene(max(x - GAP + MARGIN, WIDTH))


class _Layout:
    """A drawing in the making."""

    def __init__(self, topology: Topology, most: int) -> None:
        self._topology = topology
        self._most = most
        """Switches in a row, at most, whatever room there is."""
        self._planes = planes(topology)
        self._rows: dict[int, int] = {}
        """Width of the boxes of a tier; servers are tier 0."""
        for node in topology.nodes:
            if node.role is Role.SWITCH or node.role is Role.HOST:
                tier = max(node.tier, 0)
                self._rows[tier] = max(self._rows.get(tier, 0), len(_short(node.name)))
        self._highest = max(self._rows)
        self._numbered: dict[int, int] = {}
        self._frames: list[Frame] = []
        self._boxes: dict[int, Box] = {}
        self._skips: list[Note] = []
        self._server_of = {
            device: host for host in topology.hosts for device in topology.server(topology.nodes[host].host)
        }

    def measure(self, block: Block, room: int, *, framed: bool) -> _Part:
        """Choose what is shown of a block in about so much room, in servers."""
        number = self._numbered.get(block.tier, 0)
        self._numbered[block.tier] = number + 1
        name = f"{word(self._topology, block.tier)} {number}" if framed and block.tier else ""
        fits = max(2, room // 3)
        shown = len(block.below) if len(block.below) <= fits else max(2, fits - 1)
        inner: list[_Part | int] = []
        for place in _chosen(len(block.below), shown):
            if place < 0:
                first = len(inner)
                self._pass_over(block.below[first : first - place])
                inner.append(place)
            else:
                inner.append(self.measure(block.below[place], max(room // shown, 1), framed=True))
        servers = self._row(0, block.hosts, max(room, 2))
        below = sum(SKIP if isinstance(part, int) else part.width for part in inner)
        below += GAP * max(len(inner) - 1, 0)
        below += servers.width + (GAP if inner and servers.items else 0)
        fitting = (below + GAP) // (self._box(block.tier) + GAP)
        fitting = max(fitting, min(4 if framed else 8, self._most // 2))
        row = self._row(block.tier, block.switches, min(fitting, self._most))
        width = max(below, row.width, len(name) * LETTER) + (2 * PAD if name else 0)
        return _Part(block, name, row, tuple(inner), servers, width)

    def place(self, part: _Part, x: int, width: int) -> None:
        """Draw a block between x and x + width."""
        tier = part.block.tier
        if part.name:
            top = self._y(tier) - PAD
            bottom = self._y(0) + BOX + PAD // 2 + LABEL * tier
            self._frames.append(Frame(x, top, width, bottom - top, part.name, tier))
        self._place_row(part.row, x, width)
        widths = [SKIP if isinstance(inner, int) else inner.width for inner in part.inner]
        whole = sum(widths) + GAP * max(len(widths) - 1, 0)
        whole += part.servers.width + (GAP if widths and part.servers.items else 0)
        here = x + (width - whole) // 2
        for inner, wide in zip(part.inner, widths, strict=True):
            if isinstance(inner, int):
                self._skip(here, inner, self._y(max(tier - 1, 1)))
            else:
                self.place(inner, here, wide)
            here += wide + GAP
        self._place_row(part.servers, here, part.servers.width)

    def scene(self, width: int) -> Scene:
        """What was placed, with its lines and the margin."""
        topology = self._topology
        height = self._y(0) + BOX + LABEL * self._highest + MARGIN
        boxes = tuple(self._boxes.values())
        notes = (*self._margin(), *self._skips)
        title = Note(MARGIN, MARGIN + 18, topology.kind, "title")
        lead = Note(MARGIN, MARGIN + 40, summary_line(describe(topology)), "lead")
        width = max(width, MARGIN * 2 + len(lead.text) * LETTER)
        return Scene(width, height, tuple(self._frames), tuple(self._lines()), boxes, (title, lead, *notes))

    def _y(self, tier: int) -> int:
        """The top of a row's boxes."""
        return HEAD + MARGIN + PAD + (self._highest - tier) * ROW

    def _box(self, tier: int) -> int:
        return max(56, self._rows.get(tier, 0) * LETTER + 16)

    def _pass_over(self, left_out: Sequence[Block]) -> None:
        """Count blocks that are not shown, so that those after them have their number."""
        for block in left_out:
            self._numbered[block.tier] = self._numbered.get(block.tier, 0) + 1
            self._pass_over(block.below)

    def _row(self, tier: int, nodes: Sequence[int], most: int) -> _Row:
        """The devices of a row that are shown, each plane with its first and last."""
        runs: list[list[int]] = []
        for node in nodes:
            plane = self._planes.get(node, -1)
            if not runs or self._planes.get(runs[-1][0], -1) != plane:
                runs.append([])
            runs[-1].append(node)
        if len(runs) > most // 2:
            runs = [list(nodes)] if nodes else []
        items: list[int] = []
        for run in runs:
            few = max(most // len(runs), 2)
            if len(run) > few:
                mixed = any(self._planes.get(node) != self._planes.get(run[0]) for node in run)
                few = max(few - 2, 4 if mixed else 2)
            chosen = _chosen(len(run), few)
            items += [run[place] if place >= 0 else place for place in chosen]
        return _Row(tier, tuple(items), self._box(tier))

    def _place_row(self, row: _Row, x: int, width: int) -> None:
        here = x + (width - row.width) // 2
        for item in row.items:
            if item < 0:
                self._skip(here, item, self._y(row.tier))
                here += SKIP + GAP
                continue
            name = _short(self._topology.nodes[item].name)
            self._boxes[item] = Box(here, self._y(row.tier), row.box, name, self._planes.get(item, -1))
            here += row.box + GAP

    def _skip(self, x: int, left_out: int, y: int) -> None:
        self._skips.append(Note(x + SKIP // 2, y + BOX // 2 + 4, f"+{-left_out:,}", "skip"))

    def _lines(self) -> list[Line]:
        """A line for each two devices that are shown and joined."""
        joined: dict[tuple[int, int], int] = {}
        for link in self._topology.links:
            if link.kind == FABRIC:
                ends = self._server_of.get(link.a, link.a), self._server_of.get(link.b, link.b)
                if ends[0] in self._boxes and ends[1] in self._boxes:
                    joined[ends] = joined.get(ends, 0) + 1
        lines: list[Line] = []
        for (a, b), count in joined.items():
            lower, upper = self._boxes[a], self._boxes[b]
            if lower.y < upper.y:
                lower, upper = upper, lower
            x1, x2 = lower.x + lower.width // 2, upper.x + upper.width // 2
            y1, y2 = lower.y, upper.y + (BOX if upper.y < lower.y else 0)
            lines.append(Line(x1, y1, x2, y2, count, max(lower.plane, upper.plane)))
        return lines + self._stubs(joined)

    def _stubs(self, joined: dict[tuple[int, int], int]) -> list[Line]:
        """A stump where all that a device is joined to, above or below it, is left out."""
        nodes = self._topology.nodes
        shown: dict[tuple[int, bool], None] = {}
        for a, b in joined:
            up = max(nodes[a].tier, 0) < max(nodes[b].tier, 0)
            shown[a, up] = shown[b, not up] = None
        stubs: list[Line] = []
        for node, box in self._boxes.items():
            tier = max(nodes[node].tier, 0)
            ends = self._topology.server(nodes[node].host) if tier == 0 else (node,)
            peers = [
                max(nodes[port.peer].tier, 0)
                for end in ends
                for port in self._topology.ports(end)
                if port.kind == FABRIC
            ]
            x = box.x + box.width // 2
            if any(peer > tier for peer in peers) and (node, True) not in shown:
                stubs.append(Line(x, box.y, x, box.y - STUB, 1, box.plane))
            if any(peer < tier for peer in peers) and (node, False) not in shown:
                stubs.append(Line(x, box.y + BOX, x, box.y + BOX + STUB, 1, box.plane))
        return stubs

    def _named(self, tier: Tier) -> str:
        """`240 agg in 2 planes`."""
        nodes = self._topology.nodes
        mine = [plane for switch, plane in self._planes.items() if nodes[switch].tier == tier.tier]
        apart = len(dict.fromkeys(mine))
        text = f"{tier.switches:,} {tier.model}"
        return text if apart < 2 else f"{text} in {counted(apart, plane_word(self._topology))}"

    def _margin(self) -> list[Note]:
        """What each row is, and the cables between rows."""
        found = describe(self._topology)
        notes: list[Note] = []
        for tier in found.tiers:
            y = self._y(tier.tier)
            notes.append(Note(MARGIN, y + 12, self._named(tier), "row"))
            if tier.down_to_up is not None:
                notes.append(Note(MARGIN, y + 28, f"below:above {ratio_text(tier.down_to_up)}", "side"))
        y = self._y(0)
        notes.append(Note(MARGIN, y + 12, counted(found.hosts, "host"), "row"))
        inside = f"{counted(found.gpus, 'GPU')}, {counted(found.nics, 'NIC')}"
        notes.append(Note(MARGIN, y + 28, inside, "side"))
        between: dict[int, int] = {}
        lowest = {tier.model: tier.tier for tier in reversed(found.tiers)}
        for cable in found.cables:
            if cable.lower == "host":
                continue
            upper = max(lowest.get(cable.lower, 0), lowest.get(cable.upper, 0))
            place = between[upper] = between.get(upper, 0) + 1
            inside = "NVLink " if cable.upper == "nvswitch" or cable.lower == "gpu" else ""
            text = f"{inside}{cable.links:,} x {about_rate(cable.rate_bps)}, {format_time(cable.delay_ps)}"
            notes.append(Note(MARGIN, self._y(upper) + 46 + 16 * place, text, "side"))
        return notes


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def _chosen(count: int, most: int) -> list[int]:
    """Which of so many are shown, by place; below zero, how many are left out there."""
    if count <= most:
        return list(range(count))
    first, last = most - most // 2, most // 2
    return [*range(first), most - count, *range(count - last, count)]


PLANES: Final = ("#0072b2", "#d55e00", "#009e73", "#9467bd", "#56b4e9", "#b8860b", "#cc79a7", "#7b8794")
"""A colour-blind reader tells them apart, on a light page and on a dark one."""
STYLE: Final = """\
svg{color-scheme:light dark;--page:#fff;--text:#0f172a;--quiet:#475569}
svg{--odd:#f8fafc;--even:#eef2f7;--edge:#cbd5e1}
@media(prefers-color-scheme:dark){
svg{--page:#0d1117;--text:#e6edf3;--quiet:#9198a1;--odd:#161b22;--even:#1c232c;--edge:#3d444d}}
text{font-family:ui-sans-serif,system-ui,"DejaVu Sans",Helvetica,Arial,sans-serif;fill:var(--text)}
.page,.device{fill:var(--page)}
.server{stroke:var(--quiet)}
.odd{fill:var(--odd);stroke:var(--edge)}
.even{fill:var(--even);stroke:var(--edge)}
.title{font-size:20px;font-weight:600}
.lead{font-size:13px;fill:var(--quiet)}
.row{font-size:14px;font-weight:600}
.side{font-size:12px;fill:var(--quiet)}
.skip{font-size:12px;fill:var(--quiet);text-anchor:middle}
.box{font-size:12px;text-anchor:middle}
.frame{font-size:12px;fill:var(--quiet)}
"""


def to_svg(scene: Scene) -> str:
    """The drawing as the text of an SVG file."""
    return "\n".join(_written(scene)) + "\n"


def _written(scene: Scene) -> Iterator[str]:
    seen = f"0 0 {scene.width} {scene.height}"
    size = (
        f'width="{scene.width}" height="{scene.height}" style="max-width:100%;height:auto" viewBox="{seen}"'
    )
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    yield f"<style>\n{STYLE}</style>"
    yield f'<rect width="{scene.width}" height="{scene.height}" class="page"/>'
    for frame in sorted(scene.frames, key=lambda frame: -frame.tier):
        yield _frame(frame)
    for line in scene.lines:
        yield _line(line)
    for box in scene.boxes:
        stroke = "" if box.plane < 0 else f' stroke="{PLANES[box.plane % len(PLANES)]}"'
        kind = "device server" if box.plane < 0 else "device"
        place = f'x="{box.x}" y="{box.y}" width="{box.width}" height="{BOX}" rx="5"'
        yield f'<rect {place} class="{kind}"{stroke} stroke-width="1.5"/>'
        yield _text(box.x + box.width // 2, box.y + BOX // 2 + 4, box.name, "box")
    for note in scene.notes:
        yield _text(note.x, note.y, note.text, note.style)
    yield "</svg>"


def _frame(frame: Frame) -> str:
    kind = "odd" if frame.tier % 2 else "even"
    place = f'x="{frame.x}" y="{frame.y}" width="{frame.width}" height="{frame.height}" rx="8"'
    name = _text(frame.x + 8, frame.y + frame.height - 8, frame.name, "frame")
    return f'<rect {place} class="{kind}"/>{name}'


def _line(line: Line) -> str:
    colour = PLANES[line.plane % len(PLANES)] if line.plane >= 0 else "#94a3b8"
    wide = min(1 + line.links // 4, 3)
    stroke = f'fill="none" stroke="{colour}" stroke-width="{wide}" stroke-opacity="0.45"'
    if line.y1 != line.y2:
        return f'<path d="M{line.x1} {line.y1}L{line.x2} {line.y2}" {stroke}/>'
    bend = line.y1 - BOX
    return f'<path d="M{line.x1} {line.y1}Q{(line.x1 + line.x2) // 2} {bend} {line.x2} {line.y2}" {stroke}/>'


def _text(x: int, y: int, text: str, style: str) -> str:
    return f'<text x="{x}" y="{y}" class="{style}">{escape(text)}</text>'
