// ---- training steps: ranks from top to bottom, steps from left to right

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
const STEPS_LEFT = 64, STEPS_FOOT = 18, STEPS_HIGH = 420;
const rankHigh = (job) => Math.min(16, STEPS_HIGH / job.ranks);
const stepWide = (job, canvas) => (canvas.clientWidth - STEPS_LEFT) / job.steps;
function drawSteps() {
  data.steps.forEach((job, index) => {
    const canvas = by("steps-" + index), part = Number(by("part-" + index).value), high = rankHigh(job), tall = Math.ceil(high * job.ranks);
    const pen = fitted(canvas, tall + STEPS_FOOT), wide = stepWide(job, canvas), left = STEPS_LEFT;
    const cells = job.rows.map((row) => [stepFigure(job, row, part), row]).sort((a, b) => a[0] - b[0]);
    const bottom = cells[0][0], top = cells[cells.length - 1][0];
    // The greatest last: of several ranks in a line of the picture, it is seen.
    for (const [figure, row] of cells) {
      pen.fillStyle = css(ramp[Math.round((top === bottom ? 0.5 : (figure - bottom) / (top - bottom)) * 255)]);
      pen.fillRect(left + row[1] * wide, row[0] * high, Math.max(wide - 1, 1), Math.max(high - (high > 4 ? 1 : 0), 1));
    }
    pen.fillStyle = styled("--quiet");
    const step = Math.max(1, rounded(job.ranks, tall / 28)), every = Math.max(1, rounded(job.steps, (canvas.clientWidth - left) / 60));
    for (let rank = 0; rank < job.ranks; rank += step) pen.fillText(`rank ${rank}`, 0, rank * high + Math.max(high / 2 + 4, 10));
    for (let nth = 0; nth < job.steps; nth += every) pen.fillText(`step ${nth}`, left + nth * wide + 2, tall + 13);
    pen.strokeStyle = styled("--text");
    pen.lineWidth = 1.5;
    pen.strokeRect(left + stepPick.step * wide, stepPick.rank * high, Math.max(wide - 1, 1), Math.max(high - 1, 2));
    by("steps-scale-" + index).textContent = `${time(bottom)} to ${time(top)}`;
    drawRank(job, index);
  });
}
function stepAt(job, event) {
  const canvas = event.currentTarget, rank = Math.floor(event.offsetY / rankHigh(job)), step = Math.floor((event.offsetX - STEPS_LEFT) / stepWide(job, canvas));
  return job.rows.find((row) => row[0] === rank && row[1] === step);
}
function stepWords(job, index, event) {
  const row = stepAt(job, event), part = Number(by("part-" + index).value);
  return row ? `rank ${row[0]}: ${whoIsRank(job.name, row[0])}\nstep ${row[1]}: ${STEP_PARTS(job)[part]} ${time(stepFigure(job, row, part))}` : "";
}
// A rank and a step are chosen here, over time and on the map.
function pickStep(job, rank, step) {
  stepPick = { rank: Math.max(0, Math.min(rank, job.ranks - 1)), step: Math.max(0, Math.min(step, job.steps - 1)) };
  drawSteps();
  const row = rowOf(job, stepPick.rank);
  if (row) showStretch(row[2], row[3]);
  lead(`rank ${stepPick.rank} of ${job.name}`, false);
}
function listenToSteps(job, index) {
  const canvas = by("steps-" + index);
  by("part-" + index).addEventListener("change", drawSteps);
  hints(canvas, (event) => stepWords(job, index, event));
  canvas.addEventListener("click", (event) => {
    const row = stepAt(job, event);
    if (row) pickStep(job, row[0], row[1]);
  });
  canvas.addEventListener("keydown", (event) => {
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] || [0, 0];
    if (!down && !right) return;
    event.preventDefault();
    pickStep(job, stepPick.rank + down, stepPick.step + right);
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
  const who = whoIsRank(job.name, mine[0]);
  by("rank-name-" + index).textContent = `Rank ${mine[0]}${who ? ` (${who})` : ""}, step ${mine[1]}: whom it waits for`;
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
    (rank) => pickStep(job, rank, stepPick.step));
}
// A bar for each rank of the groups: what of the step it computes, and what it waits by reason.
function drawBars(job, index, rows) {
  const shown = rows.slice(0, 40), left = 96;
  const [picture, width] = canvasOf(by("bars-" + index), shown.length * 18 + 4, "Computing and waiting of the ranks of its groups");
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

