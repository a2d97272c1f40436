// ---- together

function scale() {
  const logarithmic = measure === 2 ? size(value(2, whole())) : value(3, whole()).toLocaleString("en") + " frames";
  const most = measure < 2 ? value(measure, whole()).toFixed(0) + " %" : logarithmic + ", logarithmic";
  by("least").textContent = view < DIFFERENCE ? "0" : "less";
  by("most").textContent = view < DIFFERENCE ? most : measure < 2 ? `more, by up to ${most}` : "more, logarithmic";
  by("ramp").style.background = gradient(view < DIFFERENCE ? ramp : apart);
}
function redraw() {
  if (count) {
    scale();
    by("when").textContent = stretchOf(at);
    drawMap();
    drawChosen();
  }
  placeLines();
}
function relay() {
  makeRamp();
  lines.of = "";
  for (const one of document.querySelectorAll(".ramp")) one.style.background = gradient(ramp);
  layAxis();
  drawCharts();
  drawUplinks();
  drawSteps();
  if (count) layMap();
  redraw();
  drawOverTime();
}
// A row of one byte for each port, by interval.
const rowsOf = (bytes) => Array.from({ length: bytes.length / (ports.length || 1) }, (_, when) => bytes.subarray(when * ports.length, (when + 1) * ports.length));
async function unpack(text) {
  const packed = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
function listen() {
  overTime(by("timeline"), "Jobs, faults and findings over time", drawTimeline, timelineWords, pickTimeline);
  overTime(by("series"), "The chosen port over time", drawSeries, seriesWords, ({ ps }) => goTo(intervalAt(ps)));
  overTime(by("waterfall"), "Every port over time", drawRows, rowWords, pickRow);
  by("zoom-in").addEventListener("click", () => zoom(0.5));
  by("zoom-out").addEventListener("click", () => zoom(2));
  by("whole").addEventListener("click", () => see(0, 1));
  by("fold").addEventListener("change", () => { seen = [0, 1]; relay(); });
  const slider = by("slider");
  if (slider) {
    slider.addEventListener("input", () => goTo(Number(slider.value)));
    by("play").addEventListener("click", () => {
      playing = playing ? (clearInterval(playing), 0) : setInterval(() => goTo((at + 1) % count), 60);
      by("play").textContent = playing ? "Pause" : "Play";
    });
    for (const choice of document.querySelectorAll("input[name=measure]"))
      choice.addEventListener("change", () => { measure = Number(choice.value); redraw(); drawOverTime(); });
    for (const choice of document.querySelectorAll("input[name=view]"))
      choice.addEventListener("change", () => { view = Number(choice.value); redraw(); drawOverTime(); });
    map.addEventListener("keydown", stepOnMap);
    hints(map, mapWords);
    map.addEventListener("click", (event) => choose(hit(event.offsetX, event.offsetY)));
    by("find").addEventListener("change", (event) => event.target.value && lead(event.target.value));
  }
  for (const one of document.querySelectorAll("a.lead"))
    one.addEventListener("click", (event) => {
      event.preventDefault();
      if (one.dataset.from !== undefined) showStretch(Number(one.dataset.from), Number(one.dataset.until));
      lead(one.dataset.place || "");
    });
  data.steps.forEach(listenToSteps);
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
  const accused = ranksOf[data.gpus.findIndex(([name]) => name === data.accused)];
  if (accused && accused.length) stepPick.rank = accused[0][1];
  if (by("timeline")) {
    listen();
    layAxis();
  }
  relay();
  if (data.first >= 0) {
    choose({ node: ports[data.first][0], port: data.first });
    drawOverTime();
  }
  if (data.live) {
    document.querySelectorAll("input[name=measure]")[0].checked = true;
    by("slider").addEventListener("input", () => { follows = at === count - 1; });
    await follow();
  }
  document.body.dataset.ready = "yes";
}
begin();
