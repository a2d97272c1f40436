// ---- the map: a row of cells for each tier, folded where it is wider than the page, and the cables between them

const map = by("map");
const MOST_CABLES = 1600; // Ports; beyond, cables cannot be told apart.
let cells = [], cables = [], mapHeight = 0;
function layMap() {
  const width = map.clientWidth, left = narrow() ? 74 : 150, room = width - left - 14, spread = ports.length <= MOST_CABLES ? 74 : 26;
  cells = [];
  let y = 18;
  data.tiers.forEach((tier) => {
    const total = tier.nodes.length;
    const step = Math.max(6, Math.min(room / total, tier.tier ? 84 : 26));
    const line = Math.max(1, Math.floor(room / step)), high = Math.max(8, Math.min(step - 2, 22));
    const rows = Math.ceil(total / line), used = Math.min(total, line) * step;
    tier.top = y;
    tier.nodes.forEach((node, index) => {
      cells[node] = { x: left + (room - used) / 2 + (index % line) * step, y: y + Math.floor(index / line) * (high + 3), w: step - 2, h: high };
    });
    tier.bottom = y + Math.max(rows * (high + 3), 30);
    y = tier.bottom + spread;
  });
  const joined = new Map();
  if (ports.length <= MOST_CABLES)
    ports.forEach((port, index) => {
      const key = Math.min(port[0], port[2]) + ":" + Math.max(port[0], port[2]);
      if (cells[port[0]] && cells[port[2]]) joined.set(key, [...(joined.get(key) || []), index]);
    });
  cables = [...joined.values()];
  mapHeight = y - spread + 6;
}
function cable(pen, [from, to]) {
  pen.beginPath();
  pen.moveTo(...from);
  pen.lineTo(...to);
  pen.stroke();
}
function drawMap() {
  const pen = fitted(map, mapHeight), quiet = styled("--quiet"), text = styled("--text"), line = styled("--line");
  const drawn = cables.map((list) => [greatest(measure, list, at), list]).sort((a, b) => Math.abs(a[0]) - Math.abs(b[0]));
  for (const [byte, list] of drawn) {
    pen.strokeStyle = byte ? colour(byte) : line;
    pen.lineWidth = list.includes(chosen.port) ? 4 : byte ? 2 : 1;
    cable(pen, ends(list[0]));
  }
  for (const [broken, dash, hue] of [[data.weak, [2, 3], "--fault"], [data.down, [5, 4], "--bad"]]) {
    pen.setLineDash(dash);
    pen.strokeStyle = styled(hue);
    pen.lineWidth = 2.5;
    for (const [a, b] of now(broken)) cable(pen, between(a, b));
  }
  pen.setLineDash([]);
  for (const tier of data.tiers) {
    pen.fillStyle = quiet;
    tier.label.split("\n").forEach((words, i) => pen.fillText(words, 6, tier.top + 12 + 14 * i));
    for (const node of tier.nodes) {
      const { x, y, w, h } = cells[node];
      const parts = tone(greatest(measure, portsOf[node], at));
      pen.fillStyle = css(parts);
      pen.fillRect(x, y, w, h);
      if (w > 6.4 * nodes[node].name.length && h > 14) { // Inside, where no cable crosses it.
        pen.textAlign = "center";
        pen.fillStyle = 0.3 * parts[0] + 0.59 * parts[1] + 0.11 * parts[2] > 130 ? "#1f2328" : "#ffffff";
        pen.fillText(nodes[node].name, x + w / 2, y + h / 2 + 4);
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
  const node = data.tiers.flatMap((tier) => tier.nodes).find((one) => {
    const box = cells[one];
    return x >= box.x - 1 && x <= box.x + box.w + 1 && y >= box.y - 1 && y <= box.y + box.h + 1;
  });
  if (node !== undefined) return { node, port: busiest(portsOf[node]), device: true };
  let best = 6, found = null;
  for (const list of cables) {
    const [[x1, y1], [x2, y2]] = ends(list[0]);
    const part = Math.max(0, Math.min(1, ((x - x1) * (x2 - x1) + (y - y1) * (y2 - y1)) / ((x2 - x1) ** 2 + (y2 - y1) ** 2 || 1)));
    const away = Math.hypot(x - x1 - part * (x2 - x1), y - y1 - part * (y2 - y1));
    if (away < best) {
      best = away;
      const port = busiest(list);
      found = { node: ports[port][0], port };
    }
  }
  return found;
}
function mapWords(event) {
  const found = hit(event.offsetX, event.offsetY);
  if (!found || found.port < 0) return "";
  const why = wrong(found.port), worst = `${MEASURES[measure]} ${both((run) => shown(measure, cellOf(run, measure, found.port, at)))}`;
  const who = found.device ? `${[nodes[found.node].name, whoIs(found.node)].filter(Boolean).join(": ")}\n` : "";
  return `${who}${portName(found.port)}: ${worst}${why ? `\n${why}` : ""}`;
}
// From tier to tier and device to device by arrows.
function stepOnMap(event) {
  const row = data.tiers.findIndex((tier) => tier.nodes.includes(chosen.node)), tier = data.tiers[row];
  const turn = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (!tier || !turn) return;
  event.preventDefault();
  const to = data.tiers[Math.max(0, Math.min(row + turn[0], data.tiers.length - 1))].nodes, here = tier.nodes.indexOf(chosen.node);
  const place = turn[0] ? Math.floor((here / tier.nodes.length) * to.length) : here + turn[1];
  const node = to[Math.max(0, Math.min(place, to.length - 1))];
  choose({ node, port: busiest(portsOf[node]) });
}

// ---- every port over time: a line of the picture stands for several ports where there are more of them, and a column for
// several intervals; it shows their greatest

let waterRows = [], lines = { of: "", count: 0, figures: null };
function lineFigures(tall) {
  const name = [view, measure, tall, count, begins].join();
  if (lines.of === name && !data.live) return lines;
  const found = Math.min(waterRows.length, tall), figures = new Int16Array(found * count);
  for (let row = 0; row < waterRows.length; row++) {
    const first = Math.floor((row * found) / waterRows.length) * count;
    for (let when = 0; when < count; when++) figures[first + when] = further(figures[first + when], cell(measure, waterRows[row], when));
  }
  return (lines = { of: name, count: found, figures });
}
function rowsHeight() {
  const rows = waterRows.length;
  return Math.min(rows * Math.min(Math.max(2, Math.floor(420 / Math.max(rows, 1))), 12), 420);
}
function drawRows(holder) {
  const canvas = holder.firstChild || element(holder, "canvas", ""), tall = rowsHeight(), pen = fitted(canvas, tall + 20);
  if (!count) return;
  const { count: found, figures } = lineFigures(tall), width = canvas.clientWidth, left = gutter(), wide = Math.max(1, Math.floor(width - left - RIGHT));
  const picture = new ImageData(wide, found), most = new Int16Array(wide * found), [from, until] = seen.map(timeAt);
  for (let when = intervalAt(from); when < count && edges[when] < until; when++) {
    const x1 = Math.max(0, Math.floor(across(edges[when], width) - left)), x2 = Math.min(wide, Math.max(x1 + 1, Math.ceil(across(edges[when + 1], width) - left)));
    for (let line = 0; line < found; line++) {
      const byte = figures[line * count + when];
      for (let x = x1; byte && x < x2; x++) most[line * wide + x] = further(most[line * wide + x], byte);
    }
  }
  most.forEach((byte, place) => byte && picture.data.set([...tone(byte), 255], place * 4));
  const inner = new OffscreenCanvas(wide, found);
  inner.getContext("2d").putImageData(picture, 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.fillStyle = styled("--panel");
  pen.fillRect(left, 0, wide, tall);
  pen.drawImage(inner, 0, 0, wide, found, left, 0, wide, tall);
  drawRowLabels(pen, tall, width);
}
function drawRowLabels(pen, tall, width) {
  pen.fillStyle = styled("--quiet");
  let row = 0;
  for (const tier of data.tiers) {
    const y = (row / waterRows.length) * tall, mine = tier.nodes.reduce((sum, node) => sum + portsOf[node].length, 0);
    pen.fillRect(0, y, gutter() - 6, 1);
    if ((mine / waterRows.length) * tall > 9) pen.fillText(tier.label.split("\n")[0], 0, y + 11);
    row += mine;
  }
  const [marks, folds] = ticks(width);
  for (const [x, words] of marks) {
    pen.textAlign = x > width - 40 ? "right" : x < gutter() + 30 ? "left" : "center";
    pen.fillText(words, x, tall + 14);
    pen.fillRect(x, tall, 1, 3);
  }
  pen.textAlign = "center";
  for (const [from, until, words] of folds) {
    pen.globalAlpha = 0.25;
    pen.fillRect(from, 0, until - from, tall);
    pen.globalAlpha = 1;
    if (words !== "…") pen.fillText(words, (from + until) / 2, tall + 14);
  }
  pen.textAlign = "left";
}
// The ports of a line of the picture, and of them the one with the greatest figure.
function rowAt({ y, ps }) {
  if (!count || y < 0) return null;
  const tall = rowsHeight(), found = Math.min(waterRows.length, tall), line = Math.floor((y / tall) * found);
  if (line >= found) return null;
  const list = waterRows.slice(Math.ceil((line * waterRows.length) / found), Math.ceil(((line + 1) * waterRows.length) / found));
  const when = intervalAt(ps), port = list.reduce((a, b) => (Math.abs(cell(measure, b, when)) > Math.abs(cell(measure, a, when)) ? b : a), list[0]);
  return port === undefined ? null : { port, when, ports: list.length };
}
function rowWords(here) {
  const row = rowAt(here);
  if (!row) return "";
  const figures = MEASURES.map((name, which) => `${name} ${both((run) => shown(which, cellOf(run, which, row.port, row.when)))}`);
  const more = row.ports > 1 ? ` (greatest of ${row.ports} ports in this line)` : "";
  return `${portName(row.port)}${more}\n${stretchOf(row.when)}\n${figures.join(", ")}`;
}
const stretchOf = (when) => `${exact(edges[when], edges[when + 1] - edges[when])} to ${exact(edges[when + 1], edges[when + 1] - edges[when])}`;
function pickRow(here) {
  const row = rowAt(here);
  if (!row) return;
  goTo(row.when);
  choose({ node: ports[row.port][0], port: row.port });
}

// ---- a chosen port over time

let seriesTop = 1;
const up = (amount_, floor) => floor - (amount_ / seriesTop) * (floor - 18);
function drawSeries(holder) {
  if (chosen.port < 0 || !count || by("chosen").hidden) return;
  const height = 190, [picture, width] = canvasOf(holder, height, `${MEASURES[measure]} of ${portName(chosen.port)}`), left = gutter(), floor = height - 24;
  const [from, until] = seen.map(timeAt), first = intervalAt(from), last = Math.min(intervalAt(until) + 1, count);
  let top = 0;
  for (const run of frames.keys())
    for (let when = first; when < last; when++) top = Math.max(top, value(measure, cellOf(run, measure, chosen.port, when)));
  seriesTop = measure < 2 ? 100 : top || 1;
  drawTicks(picture, width, floor);
  for (const part of [0, 0.5, 1]) {
    const y = up(part * seriesTop, floor), words = measure < 2 ? part * 100 + " %" : measure === 2 ? size(part * seriesTop) : String(Math.round(part * seriesTop));
    make(picture, "line", { x1: left, x2: width - RIGHT, y1: y, y2: y, class: "axis" });
    make(picture, "text", { x: left - 6, y: y + 4, "text-anchor": "end" }, words);
  }
  make(picture, "text", { x: left, y: 11 }, `${MEASURES[measure]}, ${UNITS[measure]}`);
  for (const run of frames.keys()) {
    let path = "";
    for (let when = first; when < last; when++) {
      const y = up(value(measure, cellOf(run, measure, chosen.port, when)), floor).toFixed(1);
      const x1 = Math.max(across(edges[when], width), left), x2 = Math.min(across(edges[when + 1], width), width - RIGHT);
      path += `${path ? "L" : "M"}${x1.toFixed(1)} ${y}L${x2.toFixed(1)} ${y}`;
    }
    make(picture, "path", { d: path, fill: "none", stroke: styled(HUES[run]), "stroke-width": 1.5, "stroke-dasharray": run ? "5 3" : "none" });
    if (frames.length > 1) make(picture, "text", { x: width - 60 + 30 * run, y: 11 }, data.names[run]).style.fill = styled(HUES[run]);
  }
}
function seriesWords({ ps }) {
  if (chosen.port < 0 || !count) return "";
  const when = intervalAt(ps);
  return `${portName(chosen.port)}\n${stretchOf(when)}\n${MEASURES[measure]} ${both((run) => shown(measure, cellOf(run, measure, chosen.port, when)))}`;
}

// ---- who is who: hosts, GPUs, NICs, and the ranks of jobs

const gpusOf = nodes.map(() => []);
data.gpus.forEach(([, , nics], gpu) => nics.forEach((nic) => gpusOf[nic] && gpusOf[nic].push(gpu)));
const ranksOf = data.gpus.map(() => []);
data.jobs.forEach((job, nth) => job.gpus.forEach((gpu, rank) => ranksOf[gpu] && ranksOf[gpu].push([nth, rank])));
const rankWords = (gpu) => ranksOf[gpu].map(([job, rank]) => `rank ${rank} of ${data.jobs[job].name}`).join(", ");
const gpuWords = (gpu) => [data.gpus[gpu][0], rankWords(gpu)].filter(Boolean).join(", ");
function whoIs(node) {
  const gpus = gpusOf[node] || [];
  return gpus.length ? `${data.gpus[gpus[0]][1]}, ${gpus.map(gpuWords).join("; ")}` : "";
}
function whoIsRank(name, rank) {
  const job = data.jobs.find((one) => one.name === name), gpu = job ? data.gpus[job.gpus[rank]] : null;
  return gpu ? `${gpu[0]} on ${gpu[1]}, ${gpu[2].map((nic) => nodes[nic].name).join(", ")}` : "";
}
const ofNode = (node) => ({ node, port: busiest(portsOf[node]) });
function ofGpu(gpu) {
  const nics = data.gpus[gpu] ? data.gpus[gpu][2] : [];
  return nics.length ? ofNode(busiestNode(nics)) : null;
}
const busiestNode = (list) => ports[busiest(list.flatMap((node) => portsOf[node]))][0];
function ofRank(nth, rank) {
  const job = data.jobs[nth], found = job && rank < job.gpus.length ? ofGpu(job.gpus[rank]) : null;
  const steps = data.steps.findIndex((one) => job && one.name === job.name);
  return found && { ...found, steps, rank };
}
// `*` in a name stands for anything, as in a scenario's targets.
const escaped = (words) => words.replace(/[.+?^${}()|[\]\\]/g, "\\$&");
const matches = (pattern, name) => pattern === name || (pattern.includes("*") && new RegExp(`^${escaped(pattern).replace(/\*/g, ".*")}$`).test(name));
// A device, a link in either direction (`a:b`, `a>b`, `a → b`), a GPU, a host, `rank 3`, `rank 3 of train`, a job.
function find(text) {
  const wanted = text.trim().replace(/^(link|port|device|host|server|GPU|NIC|job) (?=\S*$)/i, ""), named = (name) => matches(wanted, name);
  const node = nodes.findIndex((one, number) => portsOf[number].length && named(one.name));
  if (node >= 0) return ofNode(node);
  const [, a, b] = /^(\S+?)\s*(?::|>|→)\s*([^\s/]+)/.exec(wanted) || [];
  if (a) {
    const fits = (one, other) => (port) => matches(a, nodes[port[one]].name) && matches(b, nodes[port[other]].name);
    const forth = ports.flatMap((port, at_) => (fits(0, 2)(port) ? [at_] : [])), back = ports.flatMap((port, at_) => (fits(2, 0)(port) ? [at_] : []));
    const port = busiest(wanted.includes(":") ? [...forth, ...back] : forth);
    if (port >= 0) return { node: ports[port][0], port };
  }
  const gpu = data.gpus.findIndex(([name]) => named(name));
  if (gpu >= 0) return ofGpu(gpu);
  const host = data.hosts.findIndex(named);
  if (host >= 0) {
    const nics = data.gpus.flatMap(([, name, list]) => (name === data.hosts[host] ? list : []));
    return nics.length ? ofNode(busiestNode(nics)) : null;
  }
  const [, rank, of] = /^rank (\d+)(?: of (\S+))?$/i.exec(wanted) || [];
  if (rank) return ofRank(of ? data.jobs.findIndex((job) => job.name === of) : 0, Number(rank));
  const job = data.jobs.findIndex((one) => named(one.name));
  if (job < 0) return null;
  const nics = data.jobs[job].gpus.flatMap((one) => (data.gpus[one] ? data.gpus[one][2] : []));
  return nics.length ? { ...ofNode(busiestNode(nics)), job } : null;
}
// Show what a name stands for, and say so if it stands for nothing that is here.
function lead(name, looks = true) {
  const found = name ? find(name) : null;
  if (name && by("found")) by("found").textContent = found ? "" : `nothing here is called ${name}: try a device, a link a:b, a GPU, a host, rank 3 of a job, or a job`;
  if (!found) return false;
  choose(found);
  if (found.rank !== undefined && found.steps >= 0) {
    stepPick = { ...stepPick, rank: found.rank };
    drawSteps();
  }
  if (looks) map.scrollIntoView({ block: "nearest" });
  return true;
}

// ---- what was chosen

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
  const why = wrong(chosen.port), [one, , other] = ports[chosen.port];
  by("chosen-name").textContent = `${portName(chosen.port)}${why ? ` (${why})` : ""}`;
  by("chosen-who").textContent = [one, other].map(whoIs).filter(Boolean).join("; ");
  const list = [...portsOf[chosen.node]].sort((a, b) => Math.abs(cell(measure, b, at)) - Math.abs(cell(measure, a, at))).slice(0, 12);
  if (!list.includes(chosen.port)) list.push(chosen.port);
  fill(by("chosen-ports"), ["port", "rate", ...MEASURES],
    list.map((port) => ({ key: port, marked: port === chosen.port,
      cells: [portName(port), ports[port][3] / 1e9 + " Gb/s", ...MEASURES.map((_, which) => both((run) => shown(which, cellOf(run, which, port, at))))] })),
    (port) => choose({ node: chosen.node, port }));
  panels.find(({ holder }) => holder.id === "series").draw();
}
