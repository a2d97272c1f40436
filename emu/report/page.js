"use strict";
// Draws what the page's data say. Nothing is fetched, and nothing is stored.
const data = JSON.parse(document.getElementById("data").textContent);
const by = (id) => document.getElementById(id);
const ports = data.ports, nodes = data.nodes, edges = data.edges, count = edges.length - 1;
const MEASURES = ["utilisation", "paused", "queue", "drops"];
const SHARE = 250;
let series = [], at = 0, measure = 0, chosen = { port: -1, node: -1 }, playing = 0;
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
const cell = (which, port, when) => (count ? series[which][port * count + when] : 0);
function greatest(which, list, when) {
  let found = 0;
  for (const port of list) found = Math.max(found, cell(which, port, when));
  return found;
}

// ---- colours: one ramp, light to dark on a light page and dark to light on a dark one

const dark = matchMedia("(prefers-color-scheme: dark)");
const RAMPS = {
  light: [[238, 242, 247], [253, 231, 150], [244, 157, 70], [205, 60, 50], [90, 12, 60]],
  dark: [[33, 40, 50], [90, 30, 90], [200, 62, 76], [248, 150, 70], [252, 240, 170]],
};
let ramp = [];
function makeRamp() {
  const stops = dark.matches ? RAMPS.dark : RAMPS.light;
  ramp = Array.from({ length: 256 }, (_, byte) => {
    const place = (byte / 255) * (stops.length - 1), low = Math.min(Math.floor(place), stops.length - 2);
    const mixed = stops[low].map((part, i) => Math.round(part + (stops[low + 1][i] - part) * (place - low)));
    return `rgb(${mixed.join(",")})`;
  });
}
const colour = (byte) => ramp[measure < 2 ? Math.min(Math.round(byte * 255 / SHARE), 255) : byte];
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
  let y = 14;
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
  const shownCables = cables.map((list) => [greatest(measure, list, at), list]).sort((a, b) => a[0] - b[0]);
  for (const [byte, list] of shownCables) {
    const [a, b] = ends(list[0]);
    pen.strokeStyle = byte ? colour(byte) : line;
    pen.lineWidth = list.includes(chosen.port) ? 4 : byte ? 2 : 1;
    pen.beginPath();
    pen.moveTo(...a);
    pen.lineTo(...b);
    pen.stroke();
  }
  pen.setLineDash([5, 4]);
  pen.strokeStyle = styled("--bad");
  pen.lineWidth = 2.5;
  for (const [a, b] of downNow()) {
    const [from, to] = between(a, b);
    pen.beginPath();
    pen.moveTo(...from);
    pen.lineTo(...to);
    pen.stroke();
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
        pen.lineWidth = 4;
        pen.strokeText(nodes[node].name, x + w / 2, y - 3);
        pen.fillText(nodes[node].name, x + w / 2, y - 3);
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
const downNow = () => data.down.filter(([a, b, from, to]) => cells[a] && cells[b] && from < edges[at + 1] && to > edges[at]);
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
      const port = list.reduce((a, b) => (cell(measure, b, at) > cell(measure, a, at) ? b : a));
      found = { node: ports[port][0], port };
    }
  }
  return found;
}
const busiest = (node) => portsOf[node].reduce((a, b) => (a < 0 || cell(measure, b, at) > cell(measure, a, at) ? b : a), -1);

// ---- every port over time

const waterfall = by("waterfall");
let waterRows = [];
function drawWaterfall() {
  if (!count) return;
  const rows = waterRows, high = Math.min(Math.max(2, Math.floor(420 / Math.max(rows.length, 1))), 12);
  const tall = Math.min(rows.length * high, 420), pen = fitted(waterfall, tall + 4), width = waterfall.clientWidth;
  const per = rows.length * high / tall;
  const picture = new OffscreenCanvas(count, rows.length), inner = picture.getContext("2d");
  rows.forEach((port, row) => {
    for (let when = 0; when < count; when++) {
      const byte = cell(measure, port, when);
      if (byte) {
        inner.fillStyle = colour(byte);
        inner.fillRect(when, row, 1, 1);
      }
    }
  });
  pen.imageSmoothingEnabled = per > 1;
  for (let when = 0; when < count; when++) {
    const x = (edges[when] / edges[count]) * width, w = ((edges[when + 1] - edges[when]) / edges[count]) * width;
    pen.drawImage(picture, when, 0, 1, rows.length, x, 2, w + 0.5, tall);
  }
  pen.strokeStyle = styled("--text");
  const now = (edges[at + 1] / edges[count]) * width;
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
const span = data.span;
function ticks(picture, left, width, y) {
  const steps = width < 500 ? 3 : 6;
  for (let i = 0; i <= steps; i++) {
    const x = left + (i / steps) * (width - left - 8);
    make(picture, "line", { x1: x, x2: x, y1: 4, y2: y, class: "axis" });
    make(picture, "text", { x, y: y + 13, "text-anchor": i === steps ? "end" : i ? "middle" : "start" }, time((span * i) / steps));
  }
}
function drawTimeline() {
  const holder = by("timeline"), rows = data.rows, height = rows.length * 20 + 26;
  const [picture, width] = canvasOf(holder, height), left = Math.min(170, width * 0.28);
  picture.setAttribute("aria-label", "Jobs, faults and findings over time");
  ticks(picture, left, width, height - 20);
  rows.forEach((row, i) => {
    const y = 6 + i * 20;
    make(picture, "text", { x: 0, y: y + 11 }, row.label.length > left / 6 ? row.label.slice(0, left / 6 - 1) + "…" : row.label);
    for (const [from, to, words, kind] of row.bars) {
      const x = left + (from / span) * (width - left - 8);
      const wide = Math.max(2, ((to - from) / span) * (width - left - 8) - 1);
      const bar = make(picture, "rect", { x, y, width: wide, height: 14, rx: 2, class: "bar " + kind });
      make(bar, "title", {}, `${words}: ${time(from)} to ${time(to)}`);
    }
  });
  const x = left + ((count ? edges[at + 1] : 0) / span) * (width - left - 8);
  make(picture, "line", { x1: x, x2: x, y1: 0, y2: height - 16, class: "now", id: "now" });
  picture.dataset.left = left;
  picture.dataset.width = width;
}
function moveNow() {
  const picture = by("timeline").firstChild, line = by("now");
  if (!line) return;
  const left = Number(picture.dataset.left), x = left + (edges[at + 1] / span) * (picture.dataset.width - left - 8);
  line.setAttribute("x1", x);
  line.setAttribute("x2", x);
}
function drawSeries() {
  const holder = by("series");
  if (chosen.port < 0 || !count) return;
  const height = 190, [picture, width] = canvasOf(holder, height), left = 58, floor = height - 24;
  picture.setAttribute("aria-label", `${MEASURES[measure]} of ${portName(chosen.port)}`);
  let top = 0;
  for (let when = 0; when < count; when++) top = Math.max(top, value(measure, cell(measure, chosen.port, when)));
  const whole = measure < 2 ? 100 : top || 1;
  ticks(picture, left, width, floor);
  for (const part of [0, 0.5, 1]) {
    const y = floor - part * (floor - 10), words = measure < 2 ? part * 100 + " %" : measure === 2 ? size(part * whole) : Math.round(part * whole);
    make(picture, "line", { x1: left, x2: width - 8, y1: y, y2: y, class: "axis" });
    make(picture, "text", { x: left - 6, y: y + 4, "text-anchor": "end" }, words);
  }
  const now = left + (edges[at + 1] / span) * (width - left - 8);
  make(picture, "line", { x1: now, x2: now, y1: 4, y2: floor, class: "now" });
  let path = "";
  for (let when = 0; when < count; when++) {
    const y = floor - (value(measure, cell(measure, chosen.port, when)) / whole) * (floor - 10);
    const x1 = left + (edges[when] / span) * (width - left - 8), x2 = left + (edges[when + 1] / span) * (width - left - 8);
    path += `${when ? "L" : "M"}${x1.toFixed(1)} ${y.toFixed(1)}L${x2.toFixed(1)} ${y.toFixed(1)}`;
  }
  make(picture, "path", { d: path, fill: "none", stroke: styled("--accent"), "stroke-width": 1.5 });
}
function drawCurves() {
  data.curves.forEach((curve, index) => {
    const holder = by("curve-" + index), height = 200, [picture, width] = canvasOf(holder, height), left = 58, floor = height - 24;
    picture.setAttribute("aria-label", curve.label);
    const xs = curve.points.map((p) => Math.log2(p[0])), low = Math.min(...xs), high = Math.max(...xs), top = Math.max(...curve.points.map((p) => p[1])) || 1;
    const place = (p) => [left + ((Math.log2(p[0]) - low) / (high - low || 1)) * (width - left - 40), floor - (p[1] / top) * (floor - 14)];
    for (const part of [0, 0.5, 1]) {
      const y = floor - part * (floor - 14);
      make(picture, "line", { x1: left, x2: width - 8, y1: y, y2: y, class: "axis" });
      make(picture, "text", { x: left - 6, y: y + 4, "text-anchor": "end" }, Number((part * top).toPrecision(3)));
    }
    make(picture, "path", { d: "M" + curve.points.map((p) => place(p).join(" ")).join("L"), fill: "none", stroke: styled("--accent"), "stroke-width": 2 });
    const every = Math.ceil(curve.points.length / (width / 90));
    curve.points.forEach((p, i) => {
      const [x, y] = place(p), dot = make(picture, "circle", { cx: x, cy: y, r: 3, fill: styled("--accent") });
      make(dot, "title", {}, `${size(p[0])}: ${p[1]} GB/s`);
      if (i % every === 0) make(picture, "text", { x, y: floor + 14, "text-anchor": "middle" }, size(p[0]));
    });
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
function choose(found) {
  if (!found || found.port < 0) return;
  chosen = found;
  redraw();
}
function drawChosen() {
  const panel = by("chosen");
  panel.hidden = chosen.port < 0;
  if (panel.hidden) return;
  by("chosen-name").textContent = portName(chosen.port);
  const list = [...portsOf[chosen.node]].sort((a, b) => cell(measure, b, at) - cell(measure, a, at)).slice(0, 12);
  if (!list.includes(chosen.port)) list.push(chosen.port);
  fill(by("chosen-ports"), ["port", "rate", ...MEASURES],
    list.map((port) => ({ key: port, marked: port === chosen.port,
      cells: [portName(port), ports[port][3] / 1e9 + " Gb/s", ...MEASURES.map((_, which) => shown(which, cell(which, port, at)))] })),
    (port) => choose({ node: chosen.node, port }));
  drawSeries();
}

// ---- training steps: ranks by steps

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
    drawRank(job, index, part);
  });
}
function drawRank(job, index, part) {
  const mine = job.rows.find((row) => row[0] === stepPick.rank && row[1] === stepPick.step);
  if (!mine) return;
  by("rank-name-" + index).textContent = `rank ${mine[0]}, step ${mine[1]}`;
  const rows = [];
  const add = (label, rank) => {
    const row = job.rows.find((one) => one[0] === rank && one[1] === stepPick.step);
    if (row) rows.push([label, row]);
  };
  add("itself", mine[0]);
  for (const [name, members] of Object.entries(job.groups[mine[0]] || {})) members.forEach((rank) => rank !== mine[0] && add(name, rank));
  const slowest = Math.max(...rows.map(([, row]) => row[4]));
  fill(by("rank-" + index), ["group", "rank", ...STEP_PARTS(job)],
    rows.map(([label, row]) => ({ key: row[0], marked: row[4] === slowest && rows.some(([, other]) => other[4] < slowest * 0.98),
      cells: [label, row[0], ...STEP_PARTS(job).map((_, which) => time(stepFigure(job, row, which)))] })),
    (rank) => { stepPick = { ...stepPick, rank }; drawSteps(); });
}

// ---- together

const MOST = ["100 %", "100 %", size(value(2, 255)) + ", logarithmic", "65,000 frames, logarithmic"];
function redraw() {
  if (count) {
    by("most").textContent = MOST[measure];
    by("when").textContent = `${time(edges[at])} to ${time(edges[at + 1])}`;
    moveNow();
    drawMap();
    drawChosen();
  }
}
function relay() {
  makeRamp();
  for (const one of document.querySelectorAll(".ramp")) one.style.background = `linear-gradient(90deg, ${[0, 64, 128, 192, 255].map((i) => ramp[i]).join(",")})`;
  drawTimeline();
  drawCurves();
  drawSteps();
  if (count) {
    mapHeight = layMap();
    drawWaterfall();
  }
  redraw();
}
async function unpack(text) {
  const packed = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
function listen() {
  const slider = by("slider");
  if (slider) {
    slider.addEventListener("input", () => { at = Number(slider.value); redraw(); });
    slider.addEventListener("change", drawWaterfall);
    by("play").addEventListener("click", () => {
      playing = playing ? (clearInterval(playing), 0) : setInterval(() => { at = (at + 1) % count; slider.value = at; redraw(); }, 60);
      by("play").textContent = playing ? "Pause" : "Play";
    });
    for (const choice of document.querySelectorAll("input[name=measure]"))
      choice.addEventListener("change", () => { measure = Number(choice.value); redraw(); drawWaterfall(); });
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
    map.addEventListener("click", (event) => choose(hit(event.offsetX, event.offsetY)));
    waterfall.addEventListener("click", (event) => {
      const row = Math.min(Math.floor(((event.offsetY - 2) / (waterfall.clientHeight - 4)) * waterRows.length), waterRows.length - 1);
      const ps = (event.offsetX / waterfall.clientWidth) * edges[count];
      at = Math.max(0, Math.min(edges.findIndex((edge) => edge > ps) - 1, count - 1));
      slider.value = at;
      const port = waterRows[Math.max(row, 0)];
      choose({ node: ports[port][0], port });
      drawWaterfall();
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
async function begin() {
  series = await Promise.all(data.series.map(unpack));
  waterRows = data.tiers.flatMap((tier) => tier.nodes.flatMap((node) => portsOf[node]));
  if (count) {
    at = data.start;
    measure = data.measure;
    document.querySelectorAll("input[name=measure]")[measure].checked = true;
  }
  if (by("slider")) by("slider").value = at;
  listen();
  relay();
  if (data.first >= 0) choose({ node: ports[data.first][0], port: data.first });
  document.body.dataset.ready = "yes";
}
begin();
