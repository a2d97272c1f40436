// ---- curves by size, by axis of a sweep, by number; and the load of uplinks

// Curves with a point for each x; where it has several seeds, each of them and a band around them.
function drawCharts() {
  data.charts.forEach((chart, index) => {
    if (!chart.lines.length) return;
    const holder = by("chart-" + index), height = 230, [picture, width] = canvasOf(holder, height, chart.label), left = 70, floor = height - 42, roof = 22;
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
// Of each switch, a bar for each uplink; the line is the mean.
function drawUplinks() {
  const holder = by("uplinks");
  if (!holder || !data.uplinks.length) return;
  const rows = data.uplinks, full = Math.max(holder.clientWidth, 240), each = Math.max(...rows.map((row) => row.loads.length));
  const wide = Math.max(90, Math.min(each * 12 + 16, 320, narrow() ? (full - 14) / 2 : 320)), line = Math.max(1, Math.floor((full + 14) / (wide + 14))), high = 84;
  const [picture] = canvasOf(holder, Math.ceil(rows.length / line) * high, "Load of each uplink over the mean of its switch"), top = Math.max(2, ...rows.flatMap((row) => row.loads));
  rows.forEach((row, i) => {
    const left = (i % line) * (wide + 14), floor = Math.floor(i / line) * high + 76, step = wide / row.loads.length, up = 54 / top;
    make(picture, "text", { x: left, y: floor - 61 }, `${row.name}: ${Math.max(...row.loads).toFixed(2)}`);
    row.loads.forEach((load, nth) => {
      const tall = Math.max(load * up, 1), kind = load === 0 ? "idle" : load > 1.5 ? "fault" : "job";
      const bar = make(picture, "rect", { x: left + nth * step, y: floor - tall, width: Math.max(step - 1.5, 1), height: tall, class: "bar " + kind });
      make(bar, "title", {}, `${row.name} to ${row.towards[nth]}: ${load} of the mean`);
      bar.addEventListener("click", () => count && lead(`${row.name}>${row.towards[nth]}`));
    });
    make(picture, "line", { x1: left, x2: left + wide, y1: floor - up, y2: floor - up, class: "now" });
  });
}

