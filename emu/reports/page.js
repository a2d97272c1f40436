"use strict";
// Draws what the page's data say. Nothing is fetched, and nothing is stored.
const data = { charts: [], steps: [], uplinks: [], tiers: [], ...JSON.parse(document.getElementById("data").textContent) };
const by = (id) => document.getElementById(id);
const ports = data.ports || [], nodes = data.nodes || [], edges = data.edges || [0];
let count = edges.length - 1;
const MEASURES = ["utilisation", "paused", "queue", "drops"];
const SHARE = 250, DIFFERENCE = 2;
// Of each run and measure, a row of one byte for each port, by interval; and the greatest byte of each measure.
let frames = [], greatestOf = [1, 1, 1, 1], apartOf = [1, 1, 1, 1];
let at = 0, measure = 0, view = 0, chosen = { port: -1, node: -1 }, playing = 0;
const portsOf = nodes.map(() => []);
ports.forEach((port, index) => portsOf[port[0]].push(index));

// ---- words

function time(ps) {
  for (const [unit, factor] of [["s", 1e12], ["ms", 1e9], ["us", 1e6], ["ns", 1e3]])
    if (ps >= factor) return Number((ps / factor).toPrecision(4)) + " " + unit;
  return ps ? ps + " ps" : "0";
}
function size(bytes) {
  for (const [unit, factor] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]])
    if (bytes >= factor) return Number((bytes / factor).toPrecision(3)) + " " + unit;
  return Math.round(bytes) + " B";
}
function value(which, byte) {
  if (which < 2) return byte * 100 / SHARE;
  if (which === 2) return byte ? 256 * (2 ** (byte / 14) - 1) : 0;
  return byte ? Math.round(2 ** (byte / 16) - 1) : 0;
}
function shown(which, byte) {
  const found = value(which, byte);
  return which < 2 ? found.toFixed(found < 10 && found ? 1 : 0) + " %" : which === 2 ? size(found) : String(found);
}
const portName = (index) => `${nodes[ports[index][0]].name} → ${nodes[ports[index][2]].name}`;
const cellOf = (run, which, port, when) => (count ? frames[run][which][when][port] : 0);
// What is drawn: a run's figure, or that of the second less that of the first.
function cell(which, port, when) {
  if (view < DIFFERENCE) return cellOf(view, which, port, when);
  return cellOf(1, which, port, when) - cellOf(0, which, port, when);
}
function greatest(which, list, when) {
  let found = 0;
  for (const port of list) {
    const one = cell(which, port, when);
    if (Math.abs(one) > Math.abs(found)) found = one;
  }
  return found;
}

// ---- colours: one ramp, light to dark on a light page and dark to light on a dark one

const dark = matchMedia("(prefers-color-scheme: dark)");
const RAMPS = {
  light: [[238, 242, 247], [253, 231, 150], [244, 157, 70], [205, 60, 50], [90, 12, 60]],
  dark: [[33, 40, 50], [90, 30, 90], [200, 62, 76], [248, 150, 70], [252, 240, 170]],
};
const APART = {
  light: [[20, 90, 170], [120, 175, 225], [238, 242, 247], [244, 157, 70], [170, 40, 30]],
  dark: [[110, 190, 255], [50, 100, 170], [33, 40, 50], [190, 90, 50], [255, 170, 100]],
};
let ramp = [], apart = [];
function blend(stops) {
  return Array.from({ length: 256 }, (_, byte) => {
    const place = (byte / 255) * (stops.length - 1), low = Math.min(Math.floor(place), stops.length - 2);
    const mixed = stops[low].map((part, i) => Math.round(part + (stops[low + 1][i] - part) * (place - low)));
    return `rgb(${mixed.join(",")})`;
  });
}
function makeRamp() {
  const page = dark.matches ? "dark" : "light";
  ramp = blend(RAMPS[page]);
  apart = blend(APART[page]);
}
// Shares have the whole ramp; queues, drops and differences as much of it as there is of them.
const whole = () => (view === DIFFERENCE ? apartOf : measure < 2 ? [SHARE, SHARE] : greatestOf)[measure];
function colour(byte) {
  const part = Math.max(-1, Math.min(1, byte / whole()));
  return view < DIFFERENCE ? ramp[Math.round(part * 255)] : apart[Math.round((part + 1) * 127.5)];
}
const styled = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// ---- the map: a row of cells for each tier, and the cables between them where they can be told apart

const map = by("map");
let cells = [], cables = [];
function fitted(canvas, height) {
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth;
  canvas.style.height = height + "px";
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  return pen;
}
function layMap() {
  const width = map.clientWidth, left = Math.min(150, width * 0.24), room = width - left - 14;
  const spread = ports.length <= 1600 ? 74 : 26;
  cells = [];
  let y = 18;
  data.tiers.forEach((tier) => {
    const total = tier.nodes.length;
    const step = Math.max(6, Math.min(room / total, tier.tier ? 84 : 26));
    const line = Math.max(1, Math.floor(room / step)), high = Math.max(8, Math.min(step - 2, 22));
    const rows = Math.ceil(total / line), used = Math.min(total, line) * step;
    tier.top = y;
    tier.nodes.forEach((node, index) => {
      cells[node] = { x: left + (room - used) / 2 + (index % line) * step, y: y + Math.floor(index / line) * (high + 3),
        w: step - 2, h: high };
    });
    tier.bottom = y + Math.max(rows * (high + 3), 30);
    y = tier.bottom + spread;
  });
  const joined = new Map();
  if (ports.length <= 1600)
    ports.forEach((port, index) => {
      const key = Math.min(port[0], port[2]) + ":" + Math.max(port[0], port[2]);
      if (cells[port[0]] && cells[port[2]]) joined.set(key, [...(joined.get(key) || []), index]);
    });
  cables = [...joined.values()];
  return y - spread + 6;
}
let mapHeight = 0;
function drawMap() {
  const pen = fitted(map, mapHeight), quiet = styled("--quiet"), text = styled("--text"), line = styled("--line");
  pen.font = "12px system-ui, sans-serif";
  const shownCables = cables.map((list) => [greatest(measure, list, at), list]).sort((a, b) => Math.abs(a[0]) - Math.abs(b[0]));
  for (const [byte, list] of shownCables) {
    const [a, b] = ends(list[0]);
    pen.strokeStyle = byte ? colour(byte) : line;
    pen.lineWidth = list.includes(chosen.port) ? 4 : byte ? 2 : 1;
    pen.beginPath();
    pen.moveTo(...a);
    pen.lineTo(...b);
    pen.stroke();
  }
  for (const [broken, dash, tone] of [[data.weak, [2, 3], "--fault"], [data.down, [5, 4], "--bad"]]) {
    pen.setLineDash(dash);
    pen.strokeStyle = styled(tone);
    pen.lineWidth = 2.5;
    for (const [a, b] of now(broken)) {
      const [from, to] = between(a, b);
      pen.beginPath();
      pen.moveTo(...from);
      pen.lineTo(...to);
      pen.stroke();
    }
  }
  pen.setLineDash([]);
  for (const tier of data.tiers) {
    pen.fillStyle = quiet;
    tier.label.split("\n").forEach((words, i) => pen.fillText(words, 8, tier.top + 12 + 14 * i));
    for (const node of tier.nodes) {
      const { x, y, w, h } = cells[node];
      pen.fillStyle = colour(greatest(measure, portsOf[node], at));
      pen.fillRect(x, y, w, h);
      if (w > 7 * nodes[node].name.length) {
        pen.fillStyle = text;
        pen.textAlign = "center";
        pen.strokeStyle = styled("--panel");
        pen.lineWidth = 3;
        pen.lineJoin = "round";
        pen.strokeText(nodes[node].name, x + w / 2, y - 5);
        pen.fillText(nodes[node].name, x + w / 2, y - 5);
        pen.textAlign = "left";
      }
      if (node === chosen.node) {
        pen.strokeStyle = text;
        pen.lineWidth = 2;
        pen.strokeRect(x - 1, y - 1, w + 2, h + 2);
      }
    }
  }
}
const now = (broken) => broken.filter(([a, b, from, to]) => cells[a] && cells[b] && from < edges[at + 1] && to > edges[at]);
// What is wrong with the cable of a port now, in words; empty if nothing is.
function wrong(port) {
  const [one, , other] = ports[port];
  const here = ([a, b]) => (a === one && b === other) || (a === other && b === one);
  return [...now(data.down).filter(here).map(() => "down"), ...now(data.weak).filter(here).map((broken) => broken[4])].join(", ");
}
const ends = (port) => between(ports[port][0], ports[port][2]);
function between(a, b) {
  return [a, b].map((node, i, both) => {
    const mine = cells[node], other = cells[both[1 - i]];
    return [mine.x + mine.w / 2, other.y > mine.y ? mine.y + mine.h : mine.y];
  });
}
function hit(x, y) {
  for (const tier of data.tiers)
    for (const node of tier.nodes) {
      const box = cells[node];
      if (x >= box.x - 1 && x <= box.x + box.w + 1 && y >= box.y - 1 && y <= box.y + box.h + 1)
        return { node, port: busiest(node) };
    }
  let best = 6, found = null;
  for (const list of cables) {
    const [[x1, y1], [x2, y2]] = ends(list[0]);
    const along = Math.max(0, Math.min(1, ((x - x1) * (x2 - x1) + (y - y1) * (y2 - y1)) / ((x2 - x1) ** 2 + (y2 - y1) ** 2 || 1)));
    const away = Math.hypot(x - x1 - along * (x2 - x1), y - y1 - along * (y2 - y1));
    if (away < best) {
      best = away;
      const port = list.reduce((a, b) => (Math.abs(cell(measure, b, at)) > Math.abs(cell(measure, a, at)) ? b : a));
      found = { node: ports[port][0], port };
    }
  }
  return found;
}
const busiest = (node) => portsOf[node].reduce((a, b) => (a < 0 || Math.abs(cell(measure, b, at)) > Math.abs(cell(measure, a, at)) ? b : a), -1);

// ---- every port over time

const waterfall = by("waterfall");
let waterRows = [];
let water = null;
function drawWaterfall() {
  if (!count) return;
  const rows = waterRows.length, high = Math.min(Math.max(2, Math.floor(420 / Math.max(rows, 1))), 12);
  const tall = Math.min(rows * high, 420), lines = Math.min(rows, tall), width = waterfall.clientWidth;
  // A line of the picture stands for several ports where there are more of them: their greatest is shown.
  const picture = new OffscreenCanvas(count, lines), inner = picture.getContext("2d");
  for (let line = 0; line < lines; line++) {
    const list = waterRows.slice(Math.floor((line * rows) / lines), Math.floor(((line + 1) * rows) / lines));
    for (let when = 0; when < count; when++) {
      const byte = greatest(measure, list, when);
      if (byte) {
        inner.fillStyle = colour(byte);
        inner.fillRect(when, line, 1, 1);
      }
    }
  }
  water = { picture, lines, tall, width };
  moveWaterfall();
}
// The picture stays; only the line of the time moves.
function moveWaterfall() {
  const { picture, lines, tall, width } = water, pen = fitted(waterfall, tall + 4), from = edges[0], reach = edges[count] - from || 1;
  pen.imageSmoothingEnabled = false;
  for (let when = 0; when < count; when++) {
    const x = ((edges[when] - from) / reach) * width, w = ((edges[when + 1] - edges[when]) / reach) * width;
    pen.drawImage(picture, when, 0, 1, lines, x, 2, w + 0.5, tall);
  }
  pen.strokeStyle = styled("--text");
  const now = ((edges[at + 1] - from) / reach) * width;
  pen.setLineDash([3, 2]);
  pen.beginPath();
  pen.moveTo(now, 0);
  pen.lineTo(now, tall + 4);
  pen.stroke();
}

// ---- pictures in SVG: the time axis, series, curves

const SVG = "http://www.w3.org/2000/svg";
function make(parent, name, attributes, text) {
  const one = document.createElementNS(SVG, name);
  for (const [key, given] of Object.entries(attributes)) one.setAttribute(key, given);
  if (text !== undefined) one.textContent = text;
  parent.appendChild(one);
  return one;
}
function canvasOf(holder, height) {
  const width = Math.max(holder.clientWidth, 300);
  holder.replaceChildren();
  const picture = make(holder, "svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  return [picture, width];
}
// Round numbers, at least so many parts of a whole.
function rounded(whole, parts) {
  const least = whole / parts, power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least * 0.999);
}
// Times are drawn from the first to the last; a page that follows a run forgets the earliest.
let begins = 0, ends_at = data.span || 1;
const across = (ps, left, width) => left + ((ps - begins) / (ends_at - begins || 1)) * (width - left - 8);
function ticks(picture, left, width, y) {
  const step = rounded(ends_at - begins, width < 500 ? 4 : 7);
  for (let ps = Math.ceil(begins / step) * step; ps <= ends_at; ps += step) {
    const x = across(ps, left, width);
    make(picture, "line", { x1: x, x2: x, y1: 4, y2: y, class: "axis" });
    make(picture, "text", { x, y: y + 13, "text-anchor": x > width - 30 ? "end" : "middle" }, time(ps));
  }
}
function drawTimeline() {
  const holder = by("timeline");
  if (!holder) return;
  const rows = data.rows, height = rows.length * 20 + 26;
  const [picture, width] = canvasOf(holder, height), left = Math.min(170, width * 0.28);
  picture.setAttribute("aria-label", "Jobs, faults and findings over time");
  ticks(picture, left, width, height - 20);
  rows.forEach((row, i) => {
    const y = 6 + i * 20;
    make(picture, "text", { x: 0, y: y + 11 }, row.label.length > left / 6 ? row.label.slice(0, left / 6 - 1) + "…" : row.label);
    for (const [from, to, words, kind] of row.bars) {
      if (to < begins) continue;
      const x = across(Math.max(from, begins), left, width);
      const wide = Math.max(2, across(to, left, width) - x - 1);
      const bar = make(picture, "rect", { x, y, width: wide, height: 14, rx: 2, class: "bar " + kind });
      make(bar, "title", {}, `${words}: ${time(from)} to ${time(to)}`);
    }
  });
  const x = across(count ? edges[at + 1] : begins, left, width);
  make(picture, "line", { x1: x, x2: x, y1: 0, y2: height - 16, class: "now", id: "now" });
  picture.dataset.left = left;
  picture.dataset.width = width;
}
function moveNow() {
  const picture = by("timeline").firstChild, line = by("now");
  if (!line) return;
  const x = across(edges[at + 1], Number(picture.dataset.left), Number(picture.dataset.width));
  line.setAttribute("x1", x);
  line.setAttribute("x2", x);
}
// Red and green judge; what is only told apart has colours that a colour-blind reader tells apart, too.
const HUES = ["--one", "--two", "--three", "--four", "--five", "--quiet"];
function drawSeries() {
  const holder = by("series");
  if (chosen.port < 0 || !count) return;
  const height = 190, [picture, width] = canvasOf(holder, height), left = 58, floor = height - 24;
  picture.setAttribute("aria-label", `${MEASURES[measure]} of ${portName(chosen.port)}`);
  let top = 0;
  for (const run of frames.keys())
    for (let when = 0; when < count; when++) top = Math.max(top, value(measure, cellOf(run, measure, chosen.port, when)));
  const all = measure < 2 ? 100 : top || 1;
  ticks(picture, left, width, floor);
  for (const part of [0, 0.5, 1]) {
    const y = floor - part * (floor - 10), words = measure < 2 ? part * 100 + " %" : measure === 2 ? size(part * all) : Math.round(part * all);
    make(picture, "line", { x1: left, x2: width - 8, y1: y, y2: y, class: "axis" });
    make(picture, "text", { x: left - 6, y: y + 4, "text-anchor": "end" }, words);
  }
  const now = across(edges[at + 1], left, width);
  make(picture, "line", { x1: now, x2: now, y1: 4, y2: floor, class: "now" });
  for (const run of frames.keys()) {
    let path = "";
    for (let when = 0; when < count; when++) {
      const y = floor - (value(measure, cellOf(run, measure, chosen.port, when)) / all) * (floor - 10);
      path += `${when ? "L" : "M"}${across(edges[when], left, width).toFixed(1)} ${y.toFixed(1)}L${across(edges[when + 1], left, width).toFixed(1)} ${y.toFixed(1)}`;
    }
    make(picture, "path", { d: path, fill: "none", stroke: styled(HUES[run]), "stroke-width": 1.5 });
    if (frames.length > 1) make(picture, "text", { x: left + 10 + 30 * run, y: 20 }, data.names[run]).style.fill = styled(HUES[run]);
  }
}
// Curves with a point for each x; where it has several seeds, each of them and a band around them.
function drawCharts() {
  data.charts.forEach((chart, index) => {
    if (!chart.lines.length) return;
    const holder = by("chart-" + index), height = 230, [picture, width] = canvasOf(holder, height), left = 70, floor = height - 42, roof = 22;
    picture.setAttribute("aria-label", chart.label);
    const words = [...new Set(chart.lines.flatMap((line) => line.points.map((p) => p[0])))], sizes = chart.x === "bytes";
    const plain = words.every((x) => typeof x === "number"), log = sizes && words.every((x) => x > 0);
    const place = (x) => (plain ? (log ? Math.log2(x) : x) : words.indexOf(x));
    const xs = words.map(place), low = Math.min(...xs), high = Math.max(...xs);
    const top = Math.max(...chart.lines.flatMap((line) => line.points.flatMap((p) => [p[1], ...p[2]]))) || 1;
    const right = (x) => left + 12 + ((place(x) - low) / (high - low || 1)) * (width - left - 52), up = (y) => floor - (y / top) * (floor - roof);
    const step = rounded(top, 4);
    for (let y = 0; y <= top; y += step) {
      make(picture, "line", { x1: left, x2: width - 8, y1: up(y), y2: up(y), class: "axis" });
      make(picture, "text", { x: left - 6, y: up(y) + 4, "text-anchor": "end" }, amount(y, chart.y));
    }
    let last = -1e9;
    for (const x of [...words].sort((a, b) => place(a) - place(b)))
      if (right(x) - last > 70) {
        make(picture, "text", { x: right(x), y: floor + 14, "text-anchor": "middle" }, sizes ? size(x) : String(x).slice(0, 16));
        last = right(x);
      }
    make(picture, "text", { x: left, y: 12 }, chart.y);
    make(picture, "text", { x: width - 8, y: floor + 30, "text-anchor": "end" }, sizes ? "size" : chart.x);
    chart.lines.forEach((line, nth) => {
      const colour = styled(HUES[nth % HUES.length]), points = [...line.points].sort((a, b) => place(a[0]) - place(b[0]));
      const seeds = points.some((p) => p[2].length > 1);
      if (seeds && plain) {
        const over = points.map((p) => `${right(p[0])} ${up(Math.max(p[1], ...p[2]))}`), under = points.map((p) => `${right(p[0])} ${up(Math.min(p[1], ...p[2]))}`);
        make(picture, "path", { d: "M" + [...over, ...under.reverse()].join("L") + "Z", fill: colour, "fill-opacity": 0.13 });
      }
      // Between two categories there is nothing.
      if (plain) make(picture, "path", { d: "M" + points.map((p) => `${right(p[0])} ${up(p[1])}`).join("L"), fill: "none", stroke: colour, "stroke-width": 2, "stroke-dasharray": nth < HUES.length ? "none" : "6 3" });
      for (const p of points) {
        const dot = make(picture, "circle", { cx: right(p[0]), cy: up(p[1]), r: 3.5, fill: colour });
        make(dot, "title", {}, `${line.name} ${sizes ? size(p[0]) : p[0]}: ${amount(p[1], chart.y)}`);
        if (!plain && p[2].length) make(picture, "path", { d: `M${right(p[0])} ${up(Math.min(...p[2]))}V${up(Math.max(...p[2]))}`, stroke: colour, "stroke-opacity": 0.4 });
        if (seeds) for (const y of p[2]) make(picture, "circle", { cx: right(p[0]), cy: up(y), r: 2, fill: "none", stroke: colour });
      }
    });
    if (chart.lines.length > 1) holder.prepend(legend(chart.lines.map((line, nth) => [HUES[nth % HUES.length], line.name])));
  });
}
function amount(y, unit) {
  if (unit.endsWith("_ps")) return time(Math.round(y));
  if (unit.endsWith("_bytes")) return size(y);
  return y >= 1e5 || (y && y < 1e-2) ? y.toExponential(2) : String(Number(y.toPrecision(4)));
}
function legend(lines) {
  const words = document.createElement("p");
  words.append(...lines.flatMap(([colour, name]) => {
    const key = Object.assign(document.createElement("span"), { className: "key" });
    key.style.background = styled(colour);
    return [key, ` ${name}\u2003`];
  }));
  return words;
}
// Of each switch, a bar for each uplink; the line is the mean.
function drawUplinks() {
  const holder = by("uplinks");
  if (!holder || !data.uplinks.length) return;
  const rows = data.uplinks, full = Math.max(holder.clientWidth, 300), each = Math.max(...rows.map((row) => row.loads.length));
  const wide = Math.max(90, Math.min(each * 12 + 16, 320)), line = Math.max(1, Math.floor(full / (wide + 14))), high = 84;
  const [picture] = canvasOf(holder, Math.ceil(rows.length / line) * high), top = Math.max(2, ...rows.flatMap((row) => row.loads));
  picture.setAttribute("aria-label", "Load of each uplink over the mean of its switch");
  rows.forEach((row, i) => {
    const left = (i % line) * (wide + 14), floor = Math.floor(i / line) * high + 76, step = wide / row.loads.length, up = 54 / top;
    make(picture, "text", { x: left, y: floor - 61 }, `${row.name}: ${Math.max(...row.loads).toFixed(2)}`);
    row.loads.forEach((load, nth) => {
      const tall = Math.max(load * up, 1), kind = load === 0 ? "failed" : load > 1.5 ? "fault" : "job";
      const bar = make(picture, "rect", { x: left + nth * step, y: floor - tall, width: Math.max(step - 1.5, 1), height: tall, class: "bar " + kind });
      make(bar, "title", {}, `${row.name} to ${row.towards[nth]}: ${load} of the mean`);
    });
    make(picture, "line", { x1: left, x2: left + wide, y1: floor - up, y2: floor - up, class: "now" });
  });
}

// ---- what was chosen

function fill(table, head, rows, onPick) {
  const top = document.createElement("tr");
  head.forEach((words) => top.appendChild(Object.assign(document.createElement("th"), { textContent: words })));
  table.replaceChildren(top);
  rows.forEach(({ cells: parts, key, marked }) => {
    const row = document.createElement("tr");
    parts.forEach((words) => row.appendChild(Object.assign(document.createElement("td"), { textContent: words })));
    if (marked) row.className = "chosen";
    if (onPick) {
      row.classList.add("pick");
      row.tabIndex = 0;
      row.addEventListener("click", () => onPick(key));
      row.addEventListener("keydown", (event) => event.key === "Enter" && onPick(key));
    }
    table.appendChild(row);
  });
}
const both = (words) => [...new Set(Array.from(frames.keys(), words))].join(" → ");
function choose(found) {
  if (!found || found.port < 0) return;
  chosen = found;
  redraw();
}
function drawChosen() {
  const panel = by("chosen");
  panel.hidden = chosen.port < 0;
  if (panel.hidden) return;
  const why = wrong(chosen.port);
  by("chosen-name").textContent = `${portName(chosen.port)}${why ? ` (${why})` : ""}`;
  const list = [...portsOf[chosen.node]].sort((a, b) => Math.abs(cell(measure, b, at)) - Math.abs(cell(measure, a, at))).slice(0, 12);
  if (!list.includes(chosen.port)) list.push(chosen.port);
  fill(by("chosen-ports"), ["port", "rate", ...MEASURES],
    list.map((port) => ({ key: port, marked: port === chosen.port,
      cells: [portName(port), ports[port][3] / 1e9 + " Gb/s", ...MEASURES.map((_, which) => both((run) => shown(which, cellOf(run, which, port, at))))] })),
    (port) => choose({ node: chosen.node, port }));
  drawSeries();
}

// ---- training steps: ranks by steps

// What none of these ranks waits for is left out.
const waitedFor = (job, rows) => job.reasons.map((_, nth) => nth).filter((nth) => rows.some(([, row]) => row[5 + nth]));
const STEP_PARTS = (job) => ["computing", ...job.reasons.map((name) => "waiting for " + name), "waiting in all", "whole step"];
let stepPick = { rank: 0, step: 0 };
function stepFigure(job, row, part) {
  const waits = job.reasons.length;
  if (part <= waits) return row[4 + part];
  if (part === waits + 1) return row.slice(5, 5 + waits).reduce((a, b) => a + b, 0);
  return row[3] - row[2];
}
function drawSteps() {
  data.steps.forEach((job, index) => {
    const canvas = by("steps-" + index), part = Number(by("part-" + index).value);
    const high = Math.max(2, Math.min(16, 420 / job.ranks)), pen = fitted(canvas, Math.ceil(high * job.ranks) + 2), width = canvas.clientWidth;
    const figures = job.rows.map((row) => stepFigure(job, row, part)), top = Math.max(...figures) || 1, bottom = Math.min(...figures);
    const wide = width / job.steps;
    job.rows.forEach((row, i) => {
      const share = top === bottom ? 0.5 : (figures[i] - bottom) / (top - bottom);
      pen.fillStyle = ramp[Math.round(share * 255)];
      pen.fillRect(row[1] * wide, row[0] * high, Math.max(wide - 1, 1), Math.max(high - (high > 4 ? 1 : 0), 1));
    });
    by("steps-scale-" + index).textContent = `${time(bottom)} to ${time(top)}`;
    drawRank(job, index);
  });
}
// In a collective all wait for who comes last, and that one waits least. So from a rank on: the reason for which it
// waits longest, the one of that group who waits least for it, and on from there, until one waits for nobody longer.
const rowOf = (job, rank) => job.rows.find((one) => one[0] === rank && one[1] === stepPick.step);
function chainFrom(job, rank) {
  const found = [], seen = new Set();
  for (let row = rowOf(job, rank); row && !seen.has(row[0]); ) {
    seen.add(row[0]);
    const waits = job.reasons.map((name, nth) => [row[5 + nth], name, nth]).sort((a, b) => b[0] - a[0]);
    let next = null, link = { row, waited: 0, reason: "" };
    for (const [waited, reason, nth] of waits) {
      const members = ((job.groups[row[0]] || {})[reason] || []).map((one) => rowOf(job, one)).filter(Boolean);
      if (!members.length) continue;
      const last = members.reduce((a, b) => (b[5 + nth] < a[5 + nth] ? b : a));
      if (last[0] !== row[0] && waited - last[5 + nth] > 0.02 * (row[3] - row[2])) {
        link = { row, waited: waited - last[5 + nth], reason };
        next = last;
        break;
      }
    }
    found.push(link);
    row = next;
  }
  return found;
}
// The same work is that of the same pipeline stage and the same experts: what the ranks with it compute, in the middle.
const workOf = (job, rank) => ["pp", "ep"].map((group) => ((job.groups[rank] || {})[group] || [rank]).indexOf(rank)).join();
function middleOfPeers(job, rank) {
  const peers = job.rows.filter((row) => row[1] === stepPick.step && workOf(job, row[0]) === workOf(job, rank));
  return peers.map((row) => row[4]).sort((a, b) => a - b)[Math.floor(peers.length / 2)];
}
function drawRank(job, index) {
  const mine = rowOf(job, stepPick.rank);
  if (!mine) return;
  by("rank-name-" + index).textContent = `Rank ${mine[0]}, step ${mine[1]}: whom it waits for`;
  const chain = chainFrom(job, mine[0]);
  by("chain-" + index).replaceChildren(...chain.map((link, i) => {
    const next = chain[i + 1], middle = middleOfPeers(job, link.row[0]), slower = link.row[4] > 1.02 * middle;
    const computes = `computes ${time(link.row[4])}, ${slower ? `its peers ${time(middle)}` : "no longer than its peers"}`;
    const words = next ? `rank ${link.row[0]} waits ${time(link.waited)} longer in ${link.reason} than rank ${next.row[0]}, who comes last there`
      : `rank ${link.row[0]} waits for nobody longer than its groups do${i ? ":" : ";"} it ${computes}`;
    return Object.assign(document.createElement("li"), { textContent: words, className: !next && slower ? "slow" : "" });
  }));
  const rows = [["itself", mine]];
  for (const [name, members] of Object.entries(job.groups[mine[0]] || {}))
    for (const rank of members) if (rank !== mine[0] && rowOf(job, rank)) rows.push([name, rowOf(job, rank)]);
  const slowest = Math.max(...rows.map(([, row]) => row[4]));
  const marked = (row) => row[4] === slowest && rows.some(([, other]) => other[4] < slowest * 0.98);
  drawBars(job, index, rows);
  const told = [0, ...waitedFor(job, rows).map((nth) => nth + 1), job.reasons.length + 1, job.reasons.length + 2];
  fill(by("rank-" + index), ["group", "rank", ...told.map((which) => STEP_PARTS(job)[which])],
    rows.map(([label, row]) => ({ key: row[0], marked: marked(row), cells: [label, row[0], ...told.map((which) => time(stepFigure(job, row, which)))] })),
    (rank) => { stepPick = { ...stepPick, rank }; drawSteps(); });
}
// A bar for each rank of the groups: what of the step it computes, and what it waits by reason.
function drawBars(job, index, rows) {
  const shown = rows.slice(0, 40), [picture, width] = canvasOf(by("bars-" + index), shown.length * 18 + 4), left = 96;
  picture.setAttribute("aria-label", "Computing and waiting of the ranks of its groups");
  const longest = Math.max(...shown.map(([, row]) => row[3] - row[2])) || 1;
  const parts = [[0, "computing"], ...waitedFor(job, rows).map((nth) => [nth + 1, "waiting for " + job.reasons[nth]])];
  by("parts-" + index).replaceChildren(legend(parts.map(([part, name]) => [HUES[part % HUES.length], name])));
  shown.forEach(([label, row], i) => {
    make(picture, "text", { x: 0, y: i * 18 + 14 }, `${label} ${row[0]}`);
    let x = left;
    parts.forEach(([part, name]) => {
      const wide = (row[4 + part] / longest) * (width - left - 8);
      const bar = make(picture, "rect", { x, y: i * 18 + 3, width: Math.max(wide, 0), height: 13, fill: styled(HUES[part % HUES.length]) });
      make(bar, "title", {}, `rank ${row[0]}: ${name} ${time(row[4 + part])}`);
      x += wide;
    });
  });
}

// ---- together

function scale() {
  const logarithmic = measure === 2 ? size(value(2, whole())) : value(3, whole()).toLocaleString("en") + " frames";
  const most = measure < 2 ? value(measure, whole()).toFixed(0) + " %" : logarithmic + ", logarithmic";
  by("least").textContent = view < DIFFERENCE ? "0" : "less";
  by("most").textContent = view < DIFFERENCE ? most : measure < 2 ? `more, by up to ${most}` : "more, logarithmic";
  by("ramp").style.background = gradient(view < DIFFERENCE ? ramp : apart);
}
const gradient = (colours) => `linear-gradient(90deg, ${[0, 64, 128, 192, 255].map((i) => colours[i]).join(",")})`;
function redraw() {
  if (count) {
    scale();
    by("when").textContent = `${time(edges[at])} to ${time(edges[at + 1])}`;
    moveNow();
    drawMap();
    drawChosen();
  }
}
function relay() {
  makeRamp();
  for (const one of document.querySelectorAll(".ramp")) one.style.background = gradient(ramp);
  drawTimeline();
  drawCharts();
  drawUplinks();
  drawSteps();
  if (count) {
    mapHeight = layMap();
    drawWaterfall();
  }
  redraw();
}
// A row of one byte for each port, by interval.
const rowsOf = (bytes) => Array.from({ length: bytes.length / (ports.length || 1) }, (_, when) => bytes.subarray(when * ports.length, (when + 1) * ports.length));
async function unpack(text) {
  const packed = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
function listen() {
  const slider = by("slider");
  if (slider) {
    slider.addEventListener("input", () => { at = Number(slider.value); redraw(); });
    slider.addEventListener("change", moveWaterfall);
    by("play").addEventListener("click", () => {
      playing = playing ? (clearInterval(playing), 0) : setInterval(() => { at = (at + 1) % count; slider.value = at; redraw(); }, 60);
      by("play").textContent = playing ? "Pause" : "Play";
    });
    for (const choice of document.querySelectorAll("input[name=measure]"))
      choice.addEventListener("change", () => { measure = Number(choice.value); redraw(); drawWaterfall(); });
    for (const choice of document.querySelectorAll("input[name=view]"))
      choice.addEventListener("change", () => { view = Number(choice.value); redraw(); drawWaterfall(); });
    map.addEventListener("keydown", (event) => {
      const row = data.tiers.findIndex((tier) => tier.nodes.includes(chosen.node)), tier = data.tiers[row];
      const turn = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (!tier || !turn) return;
      event.preventDefault();
      const to = data.tiers[Math.max(0, Math.min(row + turn[0], data.tiers.length - 1))].nodes;
      const here = tier.nodes.indexOf(chosen.node);
      const place = turn[0] ? Math.floor((here / tier.nodes.length) * to.length) : here + turn[1];
      const node = to[Math.max(0, Math.min(place, to.length - 1))];
      choose({ node, port: busiest(node) });
    });
    map.addEventListener("mousemove", (event) => {
      const found = hit(event.offsetX, event.offsetY), why = found && found.port >= 0 ? wrong(found.port) : "";
      map.title = found && found.port >= 0 ? `${portName(found.port)}${why ? `: ${why}` : ""}` : "";
    });
    map.addEventListener("click", (event) => choose(hit(event.offsetX, event.offsetY)));
    waterfall.addEventListener("click", (event) => {
      const row = Math.min(Math.floor(((event.offsetY - 2) / (waterfall.clientHeight - 4)) * waterRows.length), waterRows.length - 1);
      const ps = edges[0] + (event.offsetX / waterfall.clientWidth) * (edges[count] - edges[0]);
      at = Math.max(0, Math.min(edges.findIndex((edge) => edge > ps) - 1, count - 1));
      slider.value = at;
      const port = waterRows[Math.max(row, 0)];
      choose({ node: ports[port][0], port });
      moveWaterfall();
    });
    by("find").addEventListener("change", (event) => {
      const wanted = event.target.value.trim(), node = nodes.findIndex((one) => one.name === wanted);
      if (node >= 0) choose({ node, port: busiest(node) });
    });
  }
  data.steps.forEach((job, index) => {
    by("part-" + index).addEventListener("change", drawSteps);
    by("steps-" + index).addEventListener("click", (event) => {
      const canvas = event.target;
      stepPick = { rank: Math.min(Math.floor((event.offsetY / canvas.clientHeight) * job.ranks), job.ranks - 1),
        step: Math.min(Math.floor((event.offsetX / canvas.clientWidth) * job.steps), job.steps - 1) };
      drawSteps();
    });
  });
  addEventListener("resize", relay);
  dark.addEventListener("change", relay);
}
// ---- a run that goes on: once a second what is new; the last interval is shown until another is chosen

let known = 0, follows = true;
async function take(news) {
  const more = (await Promise.all(news.series.map(unpack))).map(rowsOf);
  if (news.first > known) { // What was forgotten before it was asked for.
    edges.length = 0;
    frames[0].forEach((rows) => { rows.length = 0; });
  }
  edges.push(...news.edges.slice(edges.length ? 1 : 0));
  frames[0].forEach((rows, which) => rows.push(...more[which]));
  known = news.first + more[0].length;
  const beyond = frames[0][0].length - news.most;
  if (beyond > 0) {
    edges.splice(0, beyond);
    frames[0].forEach((rows) => rows.splice(0, beyond));
    at = Math.max(at - beyond, 0);
  }
  count = frames[0][0].length;
  begins = edges[0];
  ends_at = news.span;
  data.rows = news.rows;
  data.down = news.down;
  data.weak = news.weak;
  for (const [which, rows] of more.entries())
    for (const row of rows) for (const byte of row) if (byte > greatestOf[which]) greatestOf[which] = byte;
  if (follows && !playing) at = Math.max(count - 1, 0);
  by("slider").max = Math.max(count - 1, 0);
  by("slider").value = at;
  fill(by("jobs"), ["job", "done", "last", "took", "least / median / most", "algbw"], news.jobs.map((cells) => ({ cells })));
  by("state").textContent = `at ${time(news.span)} of virtual time`;
  by("verdict").replaceChildren(...news.verdict.map((words) => Object.assign(document.createElement("li"),
    { textContent: words, className: /^(no |0 )/.test(words) ? "good" : "bad" })));
  data.charts = news.charts;
  news.charts.forEach((chart, index) => {
    const last = chart.lines.flatMap((line) => line.points.map((p) => ({ cells: [p[0], line.name, time(p[1])] })));
    by("took-" + index).hidden = !last.length;
    fill(by("last-" + index), ["number", "what", "took"], last.sort((a, b) => b.cells[0] - a.cells[0]).slice(0, 40));
  });
  if (chosen.port < 0 && count) {
    const most = ports.reduce((a, _, port) => (cell(0, port, at) > cell(0, a, at) ? port : a), 0);
    chosen = { node: ports[most][0], port: most };
  }
  relay();
}
async function follow() {
  try {
    const answer = await fetch(`news?since=${known}`, { cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    await take(await answer.json());
    setTimeout(follow, 1000);
  } catch {
    by("state").textContent = `no more of the run than until ${time(ends_at)}: it is over, or was ended`;
    document.body.dataset.over = "yes";
  }
}
async function begin() {
  for (const run of data.series || []) frames.push((await Promise.all(run.map(unpack))).map(rowsOf));
  for (const which of MEASURES.keys())
    for (const run of frames) for (const row of run[which]) for (const byte of row) if (byte > greatestOf[which]) greatestOf[which] = byte;
  if (frames.length > 1)
    for (const which of MEASURES.keys())
      frames[0][which].forEach((row, when) => row.forEach((byte, port) => { apartOf[which] = Math.max(apartOf[which], Math.abs(byte - frames[1][which][when][port])); }));
  waterRows = data.tiers.flatMap((tier) => tier.nodes.flatMap((node) => portsOf[node]));
  if (count) {
    at = data.start;
    measure = data.measure;
    document.querySelectorAll("input[name=measure]")[measure].checked = true;
    if (frames.length > 1) document.querySelectorAll("input[name=view]")[(view = DIFFERENCE)].checked = true;
  }
  if (by("slider")) by("slider").value = at;
  listen();
  relay();
  if (data.first >= 0) choose({ node: ports[data.first][0], port: data.first });
  if (data.live) {
    document.querySelectorAll("input[name=measure]")[0].checked = true;
    by("slider").addEventListener("input", () => { follows = at === count - 1; });
    await follow();
  }
  document.body.dataset.ready = "yes";
}
begin();
