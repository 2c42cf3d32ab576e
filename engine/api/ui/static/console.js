"use strict";
// Pages work without this file. It shows times as the reader's clock has them, tells
// when the connection is lost, and draws the charts.

const times = (root) => {
  for (const t of root.querySelectorAll("time")) {
    const at = new Date(t.dateTime);
    if (!isNaN(at)) { t.textContent = at.toLocaleString(); t.title = t.dateTime; }
  }
};

// A live page is fed every two seconds. One that has had nothing for so long tells its
// reader, whatever the browser does meanwhile: it may try again each second, or hang on a
// connection that is dead, and neither is a sign of life.
const lostAfter = 6000;
const live = document.querySelector("[sse-connect]");
let fed = Date.now();

const feed = () => {
  fed = Date.now();
  document.documentElement.dataset.fed = Number(document.documentElement.dataset.fed || 0) + 1;
  watch();
};
const watch = () => {
  const is = live !== null && Date.now() - fed > lostAfter;
  for (const p of document.querySelectorAll(".lost")) if (p.hidden === is) p.hidden = !is;
};
setInterval(watch, 1000);

// What scrolls can be reached by the keyboard, and is no stop for it where it does not.
const reachable = () => {
  for (const box of document.querySelectorAll(".wide, pre")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else if (!box.classList.contains("diff")) box.removeAttribute("tabindex");
  }
};
window.addEventListener("resize", reachable);
document.addEventListener("toggle", reachable, true);

document.body.addEventListener("htmx:afterSwap", (e) => { times(e.target); reachable(); });
// A part that somebody is working in is not replaced under their hands.
document.body.addEventListener("htmx:sseBeforeMessage", (e) => {
  feed();
  if (e.target.contains(document.activeElement) && document.activeElement.matches("input, select, textarea, button, summary")) e.preventDefault();
});

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim() || "#888";
const resolved = (name) => {
  const probe = document.createElement("span");
  probe.className = name;
  document.body.append(probe);
  const c = getComputedStyle(probe).color;
  probe.remove();
  return c;
};

const kinds = {
  ratio: {title: "calls that succeed, %", columns: [0, 2], range: [0, 100], series: [{label: "succeed %", stroke: "good"}]},
  latency: {title: "latency, ms", columns: [0, 3, 4], series: [{label: "p50", stroke: "good"}, {label: "p99", stroke: "bad"}]},
  gini: {title: "Gini coefficient of the workers' load", columns: [0, 1], range: [0, 1], series: [{label: "Gini", stroke: "fair"}]},
  node: {title: "calls that fail, %, and handlers that are out", columns: [0, 1, 3], series: [{label: "fail %", stroke: "bad"}, {label: "out", stroke: "fair"}]},
};

// Changes are lines across the chart, in the colour of their kind: the cause beside the
// effect. What they are is in the list below it.
const markColors = {fallback: "fair", control: "off", config: "off", definition: "muted", cluster: "muted", transfer: "muted"};
const drawMarks = (chart, marks) => {
  const {ctx, bbox} = chart;
  ctx.save();
  ctx.setLineDash([6, 4]);
  ctx.lineWidth = 2;
  for (const m of marks) {
    const x = chart.valToPos(m.at, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = resolved(markColors[m.kind] || "muted");
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
};

const room = (box) => {
  const style = getComputedStyle(box.parentElement);
  return box.parentElement.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
};

const draw = async (box) => {
  const kind = kinds[box.dataset.chart];
  let marks = [];
  const options = (width) => ({
    title: kind.title, width, height: 200, cursor: {drag: {x: true, y: false}},
    scales: kind.range ? {y: {range: kind.range}} : {},
    axes: [{stroke: resolved("muted"), grid: {stroke: color("line")}}, {stroke: resolved("muted"), grid: {stroke: resolved("muted"), width: 0.2}}],
    hooks: {draw: [(chart) => drawMarks(chart, marks)]},
    series: [{}, ...kind.series.map((s) => ({...s, stroke: resolved(s.stroke), width: 2, spanGaps: true}))],
  });
  let chart = null;
  const refresh = async () => {
    try {
      const reply = await fetch("/console/data" + ["handler", "cluster"].filter((n) => box.dataset[n]).map((n) => "?" + n + "=" + encodeURIComponent(box.dataset[n])).join(""));
      if (!reply.ok) return;
      const all = await reply.json();
      if (!all[0]) return;
      if (box.dataset.chart === "node") {
        const changed = await fetch("/console/marks");
        if (changed.ok) marks = await changed.json();
      }
      const data = kind.columns.map((i) => all[i]);
      if (chart) chart.setData(data);
      else { chart = new uPlot(options(Math.max(280, Math.min(620, room(box)))), data, box); reachable(); }
    } catch { /* the next turn tries again; the banner tells */ }
  };
  await refresh();
  setInterval(refresh, 5000);
};

times(document);
reachable();
const charts = document.querySelectorAll(".chart");
if (charts.length) {
  const script = document.createElement("script");
  script.src = "/console/static/uplot-1.6.32.min.js";
  script.onload = () => charts.forEach(draw);
  document.head.append(script);
}
