"use strict";
// What the page's data are, and how figures are written. Nothing is fetched, and nothing is stored.
const data = { charts: [], steps: [], uplinks: [], tiers: [], rows: [], gpus: [], hosts: [], jobs: [], down: [], weak: [],
  ...JSON.parse(document.getElementById("data").textContent) };
const by = (id) => document.getElementById(id);
const ports = data.ports || [], nodes = data.nodes || [], edges = data.edges || [0];
let count = edges.length - 1;
const MEASURES = ["utilisation", "paused", "queue", "drops"];
const UNITS = ["% of the rate in force", "% of the time", "bytes waiting", "frames dropped"];
const SHARE = 250, DIFFERENCE = 2;
// Of each run and measure, a row of one byte for each port, by interval; and the greatest byte of each measure.
let frames = [], greatestOf = [1, 1, 1, 1], apartOf = [1, 1, 1, 1];
let at = 0, measure = 0, view = 0, chosen = { port: -1, node: -1 }, playing = 0;
const portsOf = nodes.map(() => []);
ports.forEach((port, index) => portsOf[port[0]].push(index));

const SCALES = [["s", 1e12], ["ms", 1e9], ["us", 1e6], ["ns", 1e3], ["ps", 1]];
function time(ps) {
  for (const [unit, factor] of SCALES) if (ps >= factor) return Number((ps / factor).toPrecision(4)) + " " + unit;
  return "0";
}
// A time with as many digits as tell it from one that is a step later.
function exact(ps, step) {
  const [unit, factor] = SCALES.find((one) => ps >= one[1]) || ["ps", 1];
  return ps ? (ps / factor).toFixed(Math.max(0, Math.ceil(Math.log10(factor / step) - 1e-9))) + " " + unit : "0";
}
function size(bytes) {
  for (const [unit, factor] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]])
    if (bytes >= factor) return Number((bytes / factor).toPrecision(3)) + " " + unit;
  return Math.round(bytes) + " B";
}
function amount(y, unit) {
  if (unit.endsWith("_ps")) return time(Math.round(y));
  if (unit.endsWith("_bytes")) return size(y);
  return y >= 1e5 || (y && y < 1e-2) ? y.toExponential(2) : String(Number(y.toPrecision(4)));
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
// Round numbers, at least so many parts of a whole.
function rounded(whole, parts) {
  const least = whole / parts, power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least * 0.999);
}

// ---- figures of ports

const cellOf = (run, which, port, when) => (count ? frames[run][which][when][port] : 0);
// What is drawn: a run's figure, or that of the second less that of the first.
function cell(which, port, when) {
  if (view < DIFFERENCE) return cellOf(view, which, port, when);
  return cellOf(1, which, port, when) - cellOf(0, which, port, when);
}
const further = (a, b) => (Math.abs(b) > Math.abs(a) ? b : a);
const greatest = (which, list, when) => list.reduce((found, port) => further(found, cell(which, port, when)), 0);
const busiest = (list) => list.reduce((a, b) => (a < 0 || Math.abs(cell(measure, b, at)) > Math.abs(cell(measure, a, at)) ? b : a), -1);

// ---- colours: one ramp, light to dark on a light page and dark to light on a dark one, so that lightness alone orders it

const dark = matchMedia("(prefers-color-scheme: dark)");
const RAMPS = {
  light: [[238, 242, 247], [253, 231, 150], [244, 157, 70], [205, 60, 50], [90, 12, 60]],
  dark: [[33, 40, 50], [90, 30, 90], [200, 62, 76], [248, 150, 70], [252, 240, 170]],
};
const APART = {
  light: [[20, 90, 170], [120, 175, 225], [238, 242, 247], [244, 157, 70], [170, 40, 30]],
  dark: [[110, 190, 255], [50, 100, 170], [33, 40, 50], [190, 90, 50], [255, 170, 100]],
};
// Red and green judge; what is only told apart has colours that a colour-blind reader tells apart, too.
const HUES = ["--one", "--two", "--three", "--four", "--five", "--quiet"];
let ramp = [], apart = [];
function blend(stops) {
  return Array.from({ length: 256 }, (_, byte) => {
    const place = (byte / 255) * (stops.length - 1), low = Math.min(Math.floor(place), stops.length - 2);
    return stops[low].map((part, i) => Math.round(part + (stops[low + 1][i] - part) * (place - low)));
  });
}
function makeRamp() {
  const page = dark.matches ? "dark" : "light";
  ramp = blend(RAMPS[page]);
  apart = blend(APART[page]);
}
// Shares have the whole ramp; queues, drops and differences as much of it as there is of them.
const whole = () => (view === DIFFERENCE ? apartOf : measure < 2 ? [SHARE, SHARE] : greatestOf)[measure];
const LEAST_TONE = 0.3; // A single drop is told from none.
function tone(byte) {
  const part = Math.max(-1, Math.min(1, byte / whole()));
  if (view === DIFFERENCE) return apart[Math.round((part + 1) * 127.5)];
  return ramp[Math.round((measure === 3 && byte ? LEAST_TONE + (1 - LEAST_TONE) * part : part) * 255)];
}
const css = (parts) => `rgb(${parts.join(",")})`;
const colour = (byte) => css(tone(byte));
const styled = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const gradient = (colours) => `linear-gradient(90deg, ${[0, 64, 128, 192, 255].map((i) => css(colours[i])).join(",")})`;

// ---- pieces of the page

function element(parent, name, className, text = "") {
  return parent.appendChild(Object.assign(document.createElement(name), { className, textContent: text }));
}
const SVG = "http://www.w3.org/2000/svg";
function make(parent, name, attributes, text) {
  const one = document.createElementNS(SVG, name);
  for (const [key, given] of Object.entries(attributes)) one.setAttribute(key, given);
  if (text !== undefined) one.textContent = text;
  return parent.appendChild(one);
}
function canvasOf(holder, height, label) {
  const width = Math.max(holder.clientWidth, 240);
  holder.replaceChildren();
  return [make(holder, "svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }), width];
}
function fitted(canvas, height) {
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth;
  canvas.style.height = height + "px";
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.font = "11px system-ui, sans-serif";
  return pen;
}
function legend(lines) {
  const words = document.createElement("p");
  words.append(...lines.flatMap(([hue, name]) => {
    const key = Object.assign(document.createElement("span"), { className: "key" });
    key.style.background = styled(hue);
    return [key, ` ${name}\u2003`];
  }));
  return words;
}
function fill(table, head, rows, onPick) {
  table.replaceChildren();
  const top = element(table, "tr", "");
  head.forEach((words) => element(top, "th", "", words));
  rows.forEach(({ cells: parts, key, marked }) => {
    const row = element(table, "tr", (marked ? "chosen" : "") + (onPick ? " pick" : ""));
    parts.forEach((words) => element(row, "td", "", words));
    if (onPick) {
      row.tabIndex = 0;
      row.addEventListener("click", () => onPick(key));
      row.addEventListener("keydown", (event) => event.key === "Enter" && onPick(key));
    }
  });
}
// The words beside the pointer; nothing without any.
function hint(words, event) {
  const tip = by("tip");
  tip.hidden = !words;
  if (!words) return;
  tip.textContent = words;
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, document.documentElement.clientWidth - tip.offsetWidth - 6)) + "px";
  tip.style.top = (event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 16) + "px";
}
function hints(holder, words) {
  holder.addEventListener("pointermove", (event) => hint(words(event), event));
  holder.addEventListener("pointerleave", () => hint(""));
}
