// ---- the time axis: one stretch of virtual time, seen by every panel over time, with one crosshair

let begins = 0, ends_at = data.span || 1;
// Places on the axis run from 0 to 1. Knots are [time, place]; between two of them place grows evenly. Where next to nothing
// happens in most of the run, the long stretches without a sample are folded to slivers, and the rest is readable at once.
let knots = [[0, 0], [1, 1]], folded = [];
let seen = [0, 1];
const panels = [];
const SLIVER = 0.04, MOST_FOLDED = 0.25, MOSTLY_IDLE = 0.8;

function idleStretches() {
  if (count < 3 || data.live) return [];
  const long = edges.slice(1).map((edge, when) => edge - edges[when]), usual = [...long].sort((a, b) => a - b)[count >> 1];
  // What was sampled after a long stretch happened at its end: nothing is sampled while nothing happens.
  const gaps = long.flatMap((one, when) => (one > 20 * usual ? [[edges[when], edges[when + 1] - usual]] : []));
  if (ends_at - edges[count] > 20 * usual) gaps.push([edges[count], ends_at]);
  const busy = ends_at - begins - total(gaps), found = gaps.filter(([from, until]) => until - from > 0.05 * busy);
  return total(found) > MOSTLY_IDLE * (ends_at - begins) ? found : [];
}
const total = (stretches) => stretches.reduce((sum, [from, until]) => sum + until - from, 0);
function layAxis() {
  const all = idleStretches(), fold = by("fold");
  if (fold) fold.parentElement.hidden = !all.length;
  folded = fold && fold.checked ? all : [];
  const busy = ends_at - begins - total(folded) || 1, sliver = Math.min(SLIVER, MOST_FOLDED / (folded.length || 1)), room = 1 - sliver * folded.length;
  let place = 0, ps = begins;
  knots = [[begins, 0]];
  for (const [from, until] of folded) {
    place += ((from - ps) / busy) * room;
    knots.push([from, place], [until, (place += sliver)]);
    ps = until;
  }
  knots.push([ends_at, 1]);
}
function along(x, from, to) {
  let i = 1;
  while (i < knots.length - 1 && knots[i][from] < x) i++;
  const [a, b] = [knots[i - 1], knots[i]];
  return a[to] + ((x - a[from]) / (b[from] - a[from] || 1)) * (b[to] - a[to]);
}
const placeOf = (ps) => along(ps, 0, 1), timeAt = (place) => along(place, 1, 0);
const narrow = () => document.body.clientWidth < 560;
const gutter = () => (narrow() ? 52 : 150), RIGHT = 10;
const across = (ps, width) => gutter() + ((placeOf(ps) - seen[0]) / (seen[1] - seen[0])) * (width - gutter() - RIGHT);
const placeAt = (x, width) => seen[0] + ((x - gutter()) / (width - gutter() - RIGHT)) * (seen[1] - seen[0]);
function intervalAt(ps) {
  const next = edges.findIndex((edge) => edge > ps);
  return Math.max(0, Math.min((next < 0 ? count : next) - 1, count - 1));
}

// Where there is room for one: [x, words] of each tick, and [x, x, words] of each fold.
function ticks(width) {
  const marks = [], folds = [];
  const [from, until] = seen.map(timeAt);
  for (let i = 1; i < knots.length; i++) {
    const a = Math.max(knots[i - 1][0], from), b = Math.min(knots[i][0], until), left = across(a, width), wide = across(b, width) - left;
    if (b <= a || wide < 1) continue;
    if (folded.some(([begin]) => begin === knots[i - 1][0])) folds.push([left, left + wide, wide > 60 ? `${time(b - a)} idle` : "…", b - a]);
    else if (wide > 40) {
      const step = rounded(b - a, Math.max(1, wide / 95)), base = step < a / 1000 ? a : 0;
      for (let ps = base || Math.ceil(a / step) * step; ps <= b * (1 + 1e-12); ps += step)
        marks.push([across(ps, width), base && ps > base ? "+" + time(Math.round(ps - base)) : exact(ps, step)]);
    }
  }
  return [marks, folds];
}
function drawTicks(picture, width, floor) {
  const [marks, folds] = ticks(width);
  for (const [x, words] of marks) {
    make(picture, "line", { x1: x, x2: x, y1: 4, y2: floor, class: "axis" });
    make(picture, "text", { x, y: floor + 13, "text-anchor": x > width - 40 ? "end" : x < gutter() + 30 ? "start" : "middle" }, words);
  }
  for (const [from, until, words, ps] of folds) {
    const fold = make(picture, "rect", { x: from, y: 0, width: until - from, height: floor, class: "fold" });
    make(fold, "title", {}, `${time(ps)} without a sample, folded`);
    if (words !== "…") make(picture, "text", { x: (from + until) / 2, y: floor + 13, "text-anchor": "middle" }, words);
  }
}

// ---- zoom and pan

function see(from, until) {
  const wide = Math.max(Math.min(until - from, 1), leastSeen());
  const low = Math.max(0, Math.min((from + until - wide) / 2, 1 - wide)), changed = low !== seen[0] || low + wide !== seen[1];
  seen = [low, low + wide];
  if (changed) soon();
  return changed;
}
// Three intervals, the shortest of a run, are as near as it goes.
function leastSeen() {
  let least = ends_at - begins;
  for (let when = 0; when < count; when++) least = Math.min(least, edges[when + 1] - edges[when]);
  return Math.min(1, Math.max((3 * least) / (ends_at - begins || 1) / busyShare(), 1e-9));
}
const busyShare = () => 1 - total(folded) / (ends_at - begins);
function zoom(factor, place = placeOf(count ? edges[at] : begins)) {
  const held = Math.max(seen[0], Math.min(place, seen[1]));
  return see(held - (held - seen[0]) * factor, held + (seen[1] - held) * factor);
}
const pan = (part) => see(seen[0] + part * (seen[1] - seen[0]), seen[1] + part * (seen[1] - seen[0]));
function goTo(when) {
  at = Math.max(0, Math.min(when, count - 1));
  if (by("slider")) by("slider").value = at;
  const [from, until] = [placeOf(edges[at]), placeOf(edges[at + 1])], wide = seen[1] - seen[0];
  if (from < seen[0] || until > seen[1]) see((from + until - wide) / 2, (from + until + wide) / 2);
  redraw();
}
// Show a stretch: the interval where it begins, and so much of the axis that the stretch can be seen.
function showStretch(from, until) {
  const [a, b] = [placeOf(from), placeOf(until)], wide = seen[1] - seen[0];
  if (b - a < 0.03 * wide || b - a > wide) see(a - 1.5 * Math.max(b - a, leastSeen()), b + 1.5 * Math.max(b - a, leastSeen()));
  else if (a < seen[0] || b > seen[1]) see((a + b - wide) / 2, (a + b + wide) / 2);
  if (count) goTo(intervalAt(from));
}
let waiting = 0;
function soon() {
  waiting = waiting || requestAnimationFrame(() => { waiting = 0; drawOverTime(); });
}
function drawOverTime() {
  panels.forEach((panel) => panel.draw());
  placeLines();
}
// The line of the interval that is shown, and the crosshair of the pointer, in every panel.
let pointed = null;
function placeLines() {
  const [from, until] = seen.map(timeAt);
  for (const { holder, now, cross } of panels) {
    const width = holder.clientWidth, here = count ? edges[at + 1] : begins;
    now.hidden = !count || here < from || here > until;
    now.style.left = across(here, width) + "px";
    cross.hidden = pointed === null;
    cross.style.left = across(pointed === null ? 0 : pointed, width) + "px";
  }
  if (by("stretch")) by("stretch").textContent = seen[1] - seen[0] < 1 ? `${exact(from, (until - from) / 100)} to ${exact(until, (until - from) / 100)}` : "";
}
// A panel over time: `words` says what is at a place, `pick` leads there.
function overTime(holder, label, draw, words, pick) {
  if (!holder) return;
  const drawn = element(holder, "div", "drawn"), brush = element(holder, "div", "brush");
  const now = element(holder, "div", "now-line"), cross = element(holder, "div", "cross");
  let start = null;
  const place = (event) => {
    const box = holder.getBoundingClientRect(), x = event.clientX - box.left;
    return { x, y: event.clientY - box.top, width: holder.clientWidth, ps: timeAt(Math.max(seen[0], Math.min(placeAt(x, holder.clientWidth), seen[1]))) };
  };
  brush.hidden = true;
  holder.tabIndex = 0;
  holder.setAttribute("aria-label", label + ": drag, wheel, + and - zoom, arrows move the time, 0 shows the whole run");
  holder.addEventListener("wheel", (event) => {
    const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY), { x, width } = place(event);
    const turn = event.deltaX || event.deltaY;
    if (sideways ? pan(Math.sign(turn) * 0.1) : zoom(event.deltaY > 0 ? 1.25 : 0.8, placeAt(x, width))) event.preventDefault();
  }, { passive: false });
  holder.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    start = { ...place(event), seen: [...seen], pans: event.shiftKey || event.pointerType === "touch", moved: false };
    holder.setPointerCapture(event.pointerId);
  });
  holder.addEventListener("pointermove", (event) => {
    const here = place(event);
    pointed = here.x < gutter() ? null : here.ps;
    placeLines();
    hint(start && start.moved ? "" : words(here), event);
    if (!start) return;
    start.moved = start.moved || Math.abs(here.x - start.x) > 4;
    if (!start.moved) return;
    if (start.pans) {
      const part = ((start.x - here.x) / (here.width - gutter() - RIGHT)) * (start.seen[1] - start.seen[0]);
      see(start.seen[0] + part, start.seen[1] + part);
    } else {
      brush.hidden = false;
      brush.style.left = Math.max(gutter(), Math.min(start.x, here.x)) + "px";
      brush.style.width = Math.abs(here.x - Math.max(start.x, gutter())) + "px";
    }
  });
  holder.addEventListener("pointerup", (event) => {
    const here = place(event), begun = start;
    start = null;
    brush.hidden = true;
    if (!begun) return;
    if (begun.moved && !begun.pans) see(placeOf(Math.min(begun.ps, here.ps)), placeOf(Math.max(begun.ps, here.ps)));
    else if (!begun.moved) pick(here);
  });
  holder.addEventListener("pointercancel", () => { start = null; brush.hidden = true; });
  holder.addEventListener("pointerleave", () => { pointed = null; placeLines(); hint(""); });
  holder.addEventListener("dblclick", () => see(0, 1));
  holder.addEventListener("keydown", (event) => {
    const turn = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "+" || event.key === "=") zoom(0.5);
    else if (event.key === "-") zoom(2);
    else if (event.key === "0") see(0, 1);
    else if (turn && event.shiftKey) pan(turn * 0.2);
    else if (turn && count) goTo(at + turn);
    else return;
    event.preventDefault();
  });
  panels.push({ holder, now, cross, draw: () => draw(drawn) });
}

// ---- jobs, faults and findings: a row of bars for each

const ROW = () => (narrow() ? 34 : 20);
function drawTimeline(holder) {
  const rows = data.rows, high = ROW(), height = rows.length * high + 26, [picture, width] = canvasOf(holder, height, "Jobs, faults and findings over time");
  const [from, until] = seen.map(timeAt), left = gutter(), letters = narrow() ? 60 : left / 6.4;
  drawTicks(picture, width, height - 20);
  rows.forEach((row, i) => {
    const y = 6 + i * high + (high - 20);
    make(picture, "text", { x: 0, y: narrow() ? y - 3 : y + 11 }, row.label.length > letters ? row.label.slice(0, letters - 1) + "…" : row.label);
    for (const bar of row.bars) {
      const [begin, end, words, kind] = bar;
      if (end < from || begin > until) continue;
      const x = across(Math.max(begin, from), width), wide = Math.max(2, across(Math.min(end, until), width) - x - 1);
      const drawn = make(picture, "rect", { x, y, width: wide, height: 14, rx: 2, class: "bar " + kind, "aria-label": barWords(bar), role: "button" });
      if (kind !== "job" || row.bars.length <= 50) drawn.setAttribute("tabindex", 0);
      drawn.addEventListener("keydown", (event) => event.key === "Enter" && leadBar(bar));
    }
  });
}
const barWords = ([begin, end, words]) => `${words}: ${end > begin ? `${time(begin)} to ${time(end)}, ${time(end - begin)}` : `at ${time(begin)}`}`;
function leadBar([begin, end, , , place]) {
  showStretch(begin, end);
  lead(place || "");
}
function barAt({ x, y, width }) {
  const row = data.rows[Math.floor((y - 6) / ROW())];
  const near = (row ? row.bars : []).filter(([begin, end]) => across(begin, width) - 3 <= x && x <= across(end, width) + 3);
  return near.reduce((a, b) => (a && a[1] - a[0] <= b[1] - b[0] ? a : b), null);
}
function timelineWords(here) {
  const bar = barAt(here), row = data.rows[Math.floor((here.y - 6) / ROW())];
  return bar ? `${barWords(bar)}${bar[4] ? "; a click leads there" : ""}` : here.x < gutter() && row ? row.label : time(here.ps);
}
function pickTimeline(here) {
  const bar = barAt(here);
  if (bar) leadBar(bar);
  else if (count) goTo(intervalAt(here.ps));
}
