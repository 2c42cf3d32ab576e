"use strict";
// Pages work without this file. It writes times in the reader's time zone, keeps pages live,
// replays runs and draws charts.

const ago = (ms) => {
  const s = Math.round(Math.abs(ms) / 1000);
  const text = s < 60 ? `${s} s` : s < 3600 ? `${Math.floor(s / 60)} min` : s < 172800 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} days`;
  return ms < 0 ? `in ${text}` : `${text} ago`;
};
const times = (root) => {
  for (const t of root.querySelectorAll("time")) {
    const at = new Date(t.dateTime), now = new Date();
    if (isNaN(at)) continue;
    const day = at.toDateString() === now.toDateString() ? {} : {month: "short", day: "numeric"};
    const hour = {hour: "2-digit", minute: "2-digit", hourCycle: "h23"};
    t.title = `${t.dateTime}, ${ago(now - at)}`;
    t.textContent = t.className === "clock" ? at.toLocaleString(undefined, {...day, ...hour})
      : `${at.toLocaleString(undefined, {...day, ...hour, second: "2-digit", timeZoneName: "short"})} · ${ago(now - at)}`;
  }
};
// On a phone a row is a card: each of its cells says what it is.
const labels = (root) => {
  for (const table of root.querySelectorAll("table")) {
    const names = [...table.querySelectorAll("thead th")].map((th) => th.textContent);
    for (const row of table.tBodies[0]?.rows ?? []) [...row.cells].forEach((td, i) => { if (names[i] && td.colSpan === 1) td.dataset.label = names[i]; });
  }
};
// A tree is JSON whose parts fold; a button copies all of it.
const copies = (root) => {
  for (const tree of root.querySelectorAll(".tree")) {
    if (tree.previousElementSibling?.className === "copy") continue;
    const button = root.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    tree.before(button);
  }
};
const copy = async (button) => {
  const text = JSON.stringify(JSON.parse(button.nextElementSibling.textContent), null, 2);
  try { await navigator.clipboard.writeText(text); } catch {
    const area = document.createElement("textarea"); // without TLS there is no clipboard
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, every);
};
document.addEventListener("click", (e) => { if (e.target.className === "copy") copy(e.target); });
const dress = (root) => { times(root); labels(root); copies(root); };

// What scrolls can be reached by the keyboard, and is no stop for it where it does not.
const reachable = () => {
  for (const box of document.querySelectorAll(".wide, pre")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else if (!box.classList.contains("diff")) box.removeAttribute("tabindex");
  }
};
window.addEventListener("resize", reachable);
document.addEventListener("toggle", reachable, true);

// A live page is asked for again and again, and what has changed is changed in place: scroll,
// focus, selection and opened parts stay. What has data-own belongs to this script.
const every = 2000;
const html = document.documentElement;
const edited = new WeakSet();
const pace = document.querySelector(".pace"), lost = document.querySelector(".lost");
let paused = false, failures = 0;
document.addEventListener("input", (e) => { if (e.target.form) edited.add(e.target.form); });

const kept = {
  // A form that somebody fills in is not replaced under their hands; neither is what this script draws.
  beforeNodeMorphed: (old) => !(old.dataset && "own" in old.dataset || edited.has(old) || old.tagName === "FORM" && old.contains(document.activeElement)),
  // Readers open and close, and this file says what the keyboard can reach.
  beforeAttributeUpdated: (name, node) => !(name === "open" && node.tagName === "DETAILS" || name === "tabindex"),
};
const update = async () => {
  const reply = await fetch(location.href, {signal: AbortSignal.timeout(5000), headers: {Accept: "text/html", "Cache-Control": "max-age=1"}});
  if (reply.redirected) { location.reload(); return; } // the session has ended
  if (!reply.ok) throw new Error(reply.statusText);
  const next = new DOMParser().parseFromString(await reply.text(), "text/html");
  if (paused) return;
  dress(next);
  Idiomorph.morph(document.body, next.body, {ignoreActiveValue: true, callbacks: kept});
  document.title = next.title;
  reachable();
  html.dataset.fed = Number(html.dataset.fed || 0) + 1;
};
const turn = async () => {
  if (!paused && !document.hidden) {
    try { await update(); failures = 0; } catch { failures++; }
    lost.hidden = failures < 2;
    tell();
  }
  setTimeout(turn, every);
};
const tell = () => {
  pace.textContent = paused ? "Paused" : failures > 1 ? "Lost" : "Live";
  pace.classList.toggle("fair", paused);
  pace.classList.toggle("bad", failures > 1);
  pace.setAttribute("aria-pressed", paused);
};
const pause = (is) => { paused = is; tell(); };
if ("live" in document.body.dataset) {
  pace.hidden = false;
  pace.addEventListener("click", () => pause(!paused));
  tell();
  setTimeout(turn, every);
}

// Keys for those who look often. They are no keys while somebody types.
const pages = {o: "/", i: "/console/incidents", r: "/console/runs", q: "/console/queue", s: "/console/submit", a: "/console/audit", d: "/console/docs"};
let before = "";
document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.matches("input, select, textarea")) return;
  const search = document.querySelector("[role=search] input");
  if (before === "g" && pages[e.key]) location.assign(pages[e.key]);
  else if (e.key === "/" && search) { e.preventDefault(); search.focus(); }
  else if (e.key === "/") { e.preventDefault(); location.assign("/console/runs#search"); }
  else if (e.key === "p" && !pace.hidden) pace.click();
  else if (e.key === "?") document.querySelector("#keys").showModal();
  before = e.key;
});
if (location.hash === "#search") document.querySelector("[role=search] input")?.focus();

// Searches that the reader has named, kept in this browser.
const saved = document.querySelector("#saved");
if (saved) {
  const read = () => { try { return JSON.parse(localStorage.searches || "{}"); } catch { return {}; } };
  const write = (all) => { localStorage.searches = JSON.stringify(all); show(); };
  const button = (text, act) => { const b = document.createElement("button"); b.textContent = text; b.addEventListener("click", act); return b; };
  const here = () => { const q = new URLSearchParams(location.search); for (const [k, v] of [...q]) if (!v || k === "cursor") q.delete(k); return q.toString(); };
  const show = () => {
    const all = read(), is = here(), parts = [];
    for (const [name, query] of Object.entries(all)) {
      const link = document.createElement("a");
      link.href = "/console/runs?" + query;
      link.textContent = name;
      if (query === is) link.setAttribute("aria-current", "true");
      parts.push(link, " ");
    }
    const name = Object.keys(all).find((n) => all[n] === is);
    if (name) parts.push(button(`Forget ${name}`, () => { const left = read(); delete left[name]; write(left); }));
    else if (is) parts.push(button("Save this search", () => { const as = prompt("Name of this search, in this browser"); if (as) write({...read(), [as]: is}); }));
    saved.replaceChildren(...parts);
  };
  show();
}

// The drawing of a run is replayed from its history. Meanwhile the page is paused.
const replay = document.querySelector(".replay");
if (replay) {
  const player = replay.querySelector(".player"), slider = player.querySelector("input"), says = player.querySelector("output");
  const boxes = new Map(), events = () => [...replay.querySelectorAll(".history li")];
  for (const box of replay.querySelectorAll(".box")) boxes.set(box.dataset.path, box);
  let kept = null; // the boxes as they were, while others are shown
  const show = () => {
    const all = events(), last = all.length, at = Number(slider.value);
    const was = all[at - 1];
    kept ??= [...boxes.values()].map((box) => [box, box.className, box.innerHTML]);
    for (const [box, name, inner] of kept) { box.className = name; box.innerHTML = inner; }
    if (at === last) kept = null;
    else {
      const looks = new Map();
      for (const e of all.slice(0, at)) looks.set(e.dataset.path, e.dataset.class);
      for (const [path, box] of boxes) {
        const look = looks.get(path) ?? "absent";
        box.className = "box " + look + (was.dataset.path === path ? " here" : "");
        box.querySelector("span:not(.hide)").textContent = look === "absent" ? "not reached" : look;
      }
    }
    all.forEach((e) => e.toggleAttribute("aria-current", e === was && at < last));
    says.textContent = `${at} of ${last}: ${was.textContent.trim().replace(/\s+/g, " ")}`;
    pause(at < last);
  };
  const step = (by) => { slider.max = events().length; slider.value = Number(slider.value) + by; show(); };
  slider.min = 1;
  slider.max = events().length;
  slider.value = slider.max;
  player.addEventListener("click", (e) => { if (e.target.dataset.step) step(Number(e.target.dataset.step)); });
  slider.addEventListener("input", () => step(0));
  says.textContent = "Step back to see how it went.";
  player.hidden = false;
}

const resolved = (name) => {
  const probe = document.createElement("span");
  probe.style.color = `var(--${name === "muted" ? "quiet" : name})`;
  document.body.append(probe);
  const c = getComputedStyle(probe).color;
  probe.remove();
  return c;
};

const kinds = {
  ratio: {title: "calls that succeed", columns: [0, 2], range: [0, 100], unit: " %", series: [{label: "succeed", stroke: "accent"}]},
  latency: {title: "latency", unit: " ms", columns: [0, 3, 4], series: [{label: "p50", stroke: "muted"}, {label: "p99", stroke: "accent"}]},
  gini: {title: "Gini coefficient of the workers' load", columns: [0, 1], range: [0, 1], series: [{label: "Gini", stroke: "accent"}]},
  errors: {title: "calls that fail", unit: " %", columns: [0, 1], gaps: true, marks: true, series: [{label: "calls", stroke: "bad"}]},
  events: {title: "events per second", columns: [0, 4], gaps: true, series: [{label: "events", stroke: "accent"}]},
  ended: {title: "runs ended per second", columns: [0, 5], gaps: true, series: [{label: "runs", stroke: "accent"}]},
  failed: {title: "runs that failed", columns: [0, 3], counts: true, gaps: true, series: [{label: "runs", stroke: "bad"}]},
  p99: {title: "time of a run, p99", columns: [0, 6], unit: " ms", gaps: true, series: [{label: "p99", stroke: "accent"}]},
  counts: {title: "runs that fail, handlers out of the flow", columns: [0, 3, 2], counts: true, gaps: true, marks: true, series: [{label: "runs", stroke: "bad"}, {label: "handlers", stroke: "fair"}]},
};

// Changes are lines across the chart, in the colour of their kind: the cause beside the
// effect. Times in which a service was down are red. What they are is in the lists below.
const markColors = {fallback: "fair", control: "accent", config: "accent", definition: "muted", cluster: "muted", transfer: "muted"};
const drawMarks = (chart, marks) => {
  const {ctx, bbox} = chart;
  ctx.save();
  ctx.setLineDash([6, 4]);
  ctx.lineWidth = 2;
  for (const m of marks) {
    const x = chart.valToPos(m.at, "x", true);
    if (m.until) {
      const left = Math.max(bbox.left, x), right = Math.min(bbox.left + bbox.width, chart.valToPos(m.until, "x", true));
      ctx.fillStyle = resolved("bad");
      ctx.globalAlpha = 0.12;
      if (right > left) ctx.fillRect(left, bbox.top, Math.max(2, right - left), bbox.height);
      ctx.globalAlpha = 1;
      continue;
    }
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
  return box.clientWidth - 26; // its padding and edge
};

const draw = async (box) => {
  const kind = kinds[box.dataset.chart];
  const query = "?" + (box.dataset.query ?? ["handler", "cluster"].filter((n) => box.dataset[n]).map((n) => n + "=" + encodeURIComponent(box.dataset[n])).join(""));
  let marks = [];
  const clock = (t, seconds) => new Date(t * 1000).toLocaleTimeString(undefined, {hour: "2-digit", minute: "2-digit", second: seconds ? "2-digit" : undefined, hourCycle: "h23"});
  const axis = {stroke: resolved("muted"), grid: {stroke: resolved("line"), width: 1}, ticks: {stroke: resolved("line")}};
  const options = (width) => ({
    title: kind.title, width, height: 200, padding: [8, 30, 0, 0], cursor: {drag: {x: true, y: false}, sync: {key: kind.marks ? "incidents" : "handler"}},
    scales: {y: kind.range ? {range: kind.range} : kind.counts ? {range: (_, __, most) => [0, Math.max(5, most)]} : {}},
    axes: [{...axis, space: 90, values: (_, ticks) => ticks.map((t) => clock(t, ticks.at(-1) - ticks[0] < 300))}, {...axis, size: 64, ...kind.counts && {incrs: [1, 2, 5, 10, 50, 100, 500, 1000]}, values: (_, ticks) => ticks.map((t) => kind.unit === " ms" && t >= 1000 ? t / 1000 + " s" : t + (kind.unit || ""))}],
    hooks: {draw: [(chart) => drawMarks(chart, marks)]},
    series: [{value: (_, t) => t === null ? "" : clock(t, true)}, ...kind.series.map((s) => ({...s, stroke: resolved(s.stroke), width: 2, spanGaps: !kind.gaps, points: {show: false},
      value: (_, v) => v === null ? "–" : Math.round(v * 10) / 10 + (kind.unit || "")}))],
  });
  let chart = null;
  const refresh = async () => {
    try {
      const reply = await fetch("/console/data" + query);
      if (!reply.ok) return;
      const all = await reply.json();
      if (!all[0]) return;
      if (kind.marks) {
        const changed = await fetch("/console/marks" + query);
        if (changed.ok) marks = await changed.json();
      }
      const data = kind.columns.map((i) => all[i]);
      if (chart) chart.setData(data);
      else {
        chart = new uPlot(options(Math.max(260, room(box))), data, box);
        new ResizeObserver(() => { const width = Math.max(260, room(box)); if (width !== chart.width) chart.setSize({width, height: 200}); }).observe(box);
      }
      requestAnimationFrame(() => chart.setLegend({idx: data[0].length - 1})); // the latest values, until somebody points at others
    } catch { /* the next turn tries again; the banner tells */ }
  };
  await refresh();
  setInterval(refresh, 5000);
};

dress(document);
reachable();
const charts = document.querySelectorAll(".chart");
if (charts.length) {
  const script = document.createElement("script");
  script.src = "/console/static/uplot-1.6.32.min.js";
  script.onload = () => charts.forEach(draw);
  document.head.append(script);
}
