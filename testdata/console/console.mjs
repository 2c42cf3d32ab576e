// Drives the console as people do. It is started by TestConsole, which serves what is
// looked at, answers the lines that begin with @, and reads the exit code.
//
// Nothing here waits for a time: all waits are for conditions, and have a minute.
import {readFileSync, mkdirSync} from "node:fs";
import {createInterface} from "node:readline";
import {createRequire} from "node:module";
import {chromium} from "playwright-core";
import {gallery} from "./pictures.mjs";

const {shop, demo, dev, shots, whole, name, chromium: executablePath} = JSON.parse(process.argv[2]);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const patience = 60_000;

const answers = createInterface({input: process.stdin})[Symbol.asyncIterator]();
const ask = async (what) => {
  process.stdout.write(`@${what}\n`);
  const {value, done} = await answers.next();
  if (done) throw new Error(`no answer to @${what}`);
  return value;
};

const check = (is, text) => { if (!is) throw new Error(text); };

const until = async (what, fn) => {
  for (const end = Date.now() + patience; ;) {
    const is = await fn();
    if (is) return is;
    if (Date.now() > end) throw new Error(`waited a minute for: ${what}`);
    await new Promise((next) => setTimeout(next, 100));
  }
};

const began = Date.now();
const say = (line) => console.log(`${name}, ${((Date.now() - began) / 1000).toFixed(1)} s: ${line}`);

const browser = await chromium.launch({
  executablePath, headless: true, timeout: patience,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--js-flags=--max-lazy --no-opt"], // scripts of pages end before optimized code of them pays
});

// visitor opens a browser of its own. What it asks of other hosts, what its scripts
// throw and what its policy blocks is remembered.
const wrong = [];
const visitor = async (me, options = {}) => {
  const context = await browser.newContext({colorScheme: "light", reducedMotion: "reduce", viewport: {width: 1280, height: 900}, ...options});
  context.setDefaultTimeout(patience);
  const page = await context.newPage();
  page.on("request", (r) => { if (![shop, demo, dev].some((host) => r.url().startsWith(host + "/")) && !r.url().startsWith("data:")) wrong.push(`request to ${r.url()}`); });
  page.on("pageerror", (e) => wrong.push(`${page.url()}: ${e.message}`));
  page.on("console", (m) => { if (/Content Security Policy|Refused to/.test(m.text())) wrong.push(`${page.url()}: ${m.text()}`); });
  me.page = page;
  return page;
};

const text = (page) => page.locator("main").innerText({timeout: patience});
const has = async (page, ...words) => {
  for (const w of words) await until(`"${w}" on ${page.url()}`, async () => (await text(page)).includes(w));
};

// accessible lets axe-core look at a page, on a large screen in light colours and on a small one in dark colours: it finds nothing. The
// large one is also looked at in dark colours, for text that no small one has. Nothing is wider than the small screen, and no table has to be scrolled there.
// A page that has a name looks as in its two approved pictures. It has to on one store only: the pages are the same. Whether text can be read depends on where it
// stands and not on what it says, so each kind of text is looked at once for each screen and colour.
const accessible = async (page, what, looks = everyLook) => {
  if (!whole) return;
  await page.waitForLoadState("load"); // with its styles: the text may be there before them
  await page.evaluate(axe);
  const before = page.viewportSize();
  for (const [width, colorScheme, rules] of looks) {
    await page.setViewportSize({width, height: 900});
    await page.emulateMedia({colorScheme});
    await page.evaluate(() => new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)))); // the page has seen its new size
    const kinds = readable[width + colorScheme] ??= new Set();
    // A part of the page may be replaced while axe-core looks at it: it looks again.
    let why = null;
    const found = await until("what axe-core finds", () => page.evaluate(looked, {rules, known: [...kinds]}).catch((e) => { why = e; return null; }))
      .catch((e) => { throw why ?? e; });
    check(found.violations.length === 0, `axe-core on ${page.url()} (${width}, ${colorScheme}):\n` + found.violations.map((v) => `  ${v.impact} ${v.id}: ${v.help}\n    ${v.nodes.map((n) => n.html + "\n      " + n.failureSummary).join("\n    ")}`).join("\n"));
    for (const kind of found.kinds) kinds.add(kind);
    if (width === 390) await fits(page);
    if (what && rules) await asApproved(page, `${what}-${width}-${colorScheme}`);
  }
  await page.emulateMedia({colorScheme: "light"});
  await page.setViewportSize(before);
};
const everyLook = [[1440, "light", true], [390, "dark", true], [1440, "dark"]];
const small = everyLook.slice(1, 2); // of pages that another act looks at, with other data
const readable = {}; // kinds of text that were looked at, by screen and colours

// looked runs in the page: all rules but that of colours, if they are asked for, and that of colours for kinds of text that are not known.
const looked = async ({rules, known}) => {
  const violations = [], kinds = new Set(), before = new Set(known);
  const run = async (where, how) => violations.push(...(await window.axe.run(where, {...how, preload: false, resultTypes: ["violations"]})).violations);
  if (rules) {
    await run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"], rules: {"color-contrast": {enabled: false}}});
  }
  const fresh = [...document.querySelectorAll("body *")].filter((e) => {
    if (!e.matches("input, select, textarea") && ![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !e.checkVisibility()) return false;
    let kind = e.matches(":disabled") ? "disabled" : "";
    for (let x = e; x !== document.body; x = x.parentElement) kind += ` ${x.tagName}.${x.getAttribute("class") ?? ""}${x.ariaCurrent ? "*" : ""}${x.ariaInvalid ? "!" : ""}`;
    return !before.has(kind) && !kinds.has(kind) && kinds.add(kind);
  });
  if (fresh.length > 0) await run(fresh, {runOnly: {type: "rule", values: ["color-contrast"]}});
  return {violations, kinds: [...kinds]};
};

// fits checks that nothing has to be scrolled from side to side, apart from text that is laid out as it is.
const fits = async (page) => {
  const wide = await page.evaluate(() => [document.scrollingElement, ...document.querySelectorAll(".wide:has(table), .side, .tiles")]
    .filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => `${e.tagName}.${e.className} is ${e.scrollWidth} wide in ${e.clientWidth}`));
  check(wide.length === 0, `${page.url()} at ${page.viewportSize().width}: ${wide.join(", ")}`);
};

const look = async (page, address, ...words) => seen(page, "", address, ...words);

// seen looks at a page, and compares it with its approved pictures when it has a name.
const seen = async (page, what, address, ...words) => {
  const reply = await page.goto(address);
  await has(page, ...words);
  await accessible(page, what);
  return reply;
};

// shot makes a screenshot for people: of what failed, or of all that they shall approve.
const shot = async (page, what) => {
  if (what === "failure" || process.env.PROCAAS_TEST_APPROVE) await page.screenshot({path: `${shots}/${name}-${what}.png`, fullPage: true});
};

let sold = 0;
const sell = async () => {
  const id = `${name}/${++sold}`;
  const reply = await fetch(`${shop}/v1/events`, {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({type: "sold", id, source: "test", payload: {id}})});
  check(reply.status === 202, `event ${id}: status ${reply.status}`);
  return {id, run: (await reply.json()).run};
};
const runOf = async (id) => (await fetch(`${shop}/v1/runs/${id}`)).json();
const ended = (id, status) => until(`run ${id} is ${status}`, async () => (await runOf(id)).status === status);

// within plays a part of a drill, and checks with how many clicks it was done.
const within = async (most, what, play) => {
  let clicks = 0;
  await play(async (locator) => { clicks++; await locator.click(); });
  check(clicks <= most, `${what} took ${clicks} clicks, want at most ${most}`);
};

// exported is the page for the post-mortem, from wherever one is.
const exported = async (page) => {
  let report = "";
  await within(2, "the post-mortem", async (click) => {
    await click(page.getByRole("navigation").getByRole("link", {name: "Incidents"}));
    const [file] = await Promise.all([page.waitForEvent("download"), click(page.getByRole("link", {name: "Export as Markdown"}))]);
    report = readFileSync(await file.path(), "utf8");
  });
  return report;
};

// What follows is played at the shop, on each store.
const atShop = {
  // From the overview: the cause with 1 click, held with 2 more, and all runs retried when it is over.
  async "the drill of a payment that fails"(me) {
    const page = await visitor(me);
    await ask("break");
    const failed = [await sell(), await sell(), await sell()];
    for (const {run} of failed) await ended(run, "failed");
    // What failed alike is one line.
    await look(page, `${shop}/`, "Recent failures");
    const alike = page.locator("section[aria-label='Failed runs'] tbody tr");
    check(await alike.count() === 1 && /sold\/pay\/charge\s+3\s.*422 from POST/.test(await alike.innerText()), `three failures are told as: ${await alike.allInnerTexts()}`);
    await within(1, "the cause", async (click) => {
      await click(page.locator("section[aria-label=Trouble] a").filter({hasText: "sold/pay/charge"}));
      await has(page, "Last error", "422");
    });
    await within(2, "the hold", async (click) => {
      await page.locator("form.control").first().getByLabel("why").fill("the till does not answer");
      await click(page.getByRole("button", {name: "Hold"}).first());
      await has(page, "Hold sold/pay/charge?");
      await click(page.getByRole("button", {name: "Hold"}));
      await has(page, "is held");
    });
    const {run} = await sell();
    await ended(run, "parked");
    await ask("mend");
    await within(1, "the end of the hold", (click) => click(page.getByRole("button", {name: "Lift"}).first()));
    await ended(run, "succeeded");
    await page.getByLabel("What is wrong now").getByText("has failed runs").waitFor();
    await within(3, "the retry of all that failed", async (click) => {
      await click(page.getByLabel("What is wrong now").getByRole("link", {name: "sold", exact: true}));
      await click(page.getByRole("button", {name: "Retry those that failed"}));
      await has(page, "3 runs would resume");
      await accessible(page);
      await click(page.getByRole("button", {name: "Retry all 3"}));
      await has(page, "3 runs resumed.");
    });
    for (const {run} of failed) await ended(run, "succeeded");
    const report = await exported(page);
    check(/\*\*sold\*\* has failed runs that block their keys/.test(report) && /the till does not answer/.test(report), `the export lacks what happened\n${report}`);
    await page.context().close();
  },

  async "a failed run is retried"(me) {
    const page = await visitor(me);
    await page.goto(`${shop}/`);
    await ask("break");
    const {run} = await sell();
    await ended(run, "failed");
    // The open page is told: it is not loaded again.
    await page.getByRole("link", {name: run}).first().click();
    await has(page, "failed", "sold/pay/charge");
    await accessible(page, "failed-run");
    await shot(page, "failed-run");
    // The drawing shows what happened in this run, and one table tells it.
    check(await page.locator(".graph .box.failed").innerText().then((t) => t.startsWith("charge")), "the drawing does not show what failed");
    check(await page.locator("table.steps").first().isVisible() && await page.locator(".graph .folded").innerText() === "not reached: notify" && await page.getByText("1 not reached: tell").isVisible(), "want one table, and a stage that was not reached");
    await ask("mend");
    await page.getByRole("textbox", {name: "why"}).fill("the shop is open again");
    await page.getByRole("button", {name: "Retry"}).click();
    // The run is shown as it goes on, and then what it changed.
    await has(page, "succeeded", "changes of the shared state in pay");
    await seen(page, "run", `${shop}/console/runs/${run}`, "succeeded", "receipt", "At most 1 at the same time");
    await page.getByText("request and response").first().click();
    await has(page, "rebuilt from the definition", `"id": "${name}/${sold}"`);
    await shot(page, "run");
    // Step by step: first nothing was reached, then charge ran, and at the end the page is as it was and live again.
    const box = (handler) => page.locator(`.graph .box[data-path="sold/${handler}"]`);
    const [slider, before] = [page.getByLabel("moment of the run"), await box("pay/charge").innerText()];
    await slider.press("Home");
    check(await page.locator(".graph .box.absent").count() === 2, "at the first moment, a handler has run");
    await page.getByRole("button", {name: "Paused"}).waitFor();
    await page.getByRole("button", {name: "Next"}).click();
    check(/running here/.test(await box("pay/charge").getAttribute("class")) && (await page.locator(".player output").innerText()).includes("charge begins"), "the second moment does not show that charge begins");
    await accessible(page);
    await slider.press("End");
    await page.getByRole("button", {name: "Live"}).waitFor();
    check(await box("pay/charge").innerText() === before && await page.locator(".graph .box.absent").count() === 0, "the last moment is not the run as it is");
    // What is copied is JSON, whichever parts are folded.
    await page.evaluate(() => { navigator.clipboard.writeText = async (text) => { window.copied = text; }; });
    await page.locator(".copy").last().click();
    await page.getByRole("button", {name: "Copied"}).waitFor();
    check(await page.evaluate(() => JSON.parse(window.copied).id) === `${name}/${sold}`, "the copy of the event is not the event");
    await seen(page, "compare", `${shop}/console/runs/${run}/compare?with=${run}`, "Both have the same payload", "charge");
    await seen(page, "why", `${shop}/console/runs/${run}/why/sold/tell/notify`, "its first attempt succeeded");
    await seen(page, "key", `${shop}/console/keys/sale/${encodeURIComponent(`${name}/${sold}`)}`, "paid", run);
    await seen(page, "audit", `${shop}/console/audit`, "the shop is open again");
    await look(page, `${shop}/console/incidents`, "the till does not answer");
    await seen(page, "handler", `${shop}/console/handlers/sold/pay/charge`, "Switch off", "Definition");
    await page.context().close();
  },

  // With the keyboard alone: the event that a run waits for, which its form explains, and what is wrong at its field.
  async "a task that somebody answers"(me) {
    const page = await visitor(me);
    const sale = `${name}/refund`;
    const reply = await fetch(`${shop}/v1/events`, {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({type: "refund-asked", payload: {sale, sum: 7}})});
    const {run} = await reply.json();
    await seen(page, "submit", `${shop}/console/submit`, sale, "refund-decided", "refund-asked");
    await shot(page, "submit");
    await page.locator(`[id="task-${run}"]`).getByRole("link", {name: "refund-decided"}).press("Enter");
    await has(page, "The sale that is taken back.", "waits at verdict");
    check(await page.getByLabel("sale").inputValue() === sale && await page.getByLabel("sum").inputValue() === "7", "the form does not know what both events have in common");
    await page.getByLabel("sum").fill("much");
    await page.getByRole("button", {name: "Add to items"}).press("Enter");
    await page.getByRole("textbox", {name: "name", exact: true}).fill("a kettle");
    await page.getByRole("button", {name: "Submit", exact: true}).press("Enter");
    await has(page, 'want a number, have "much"', "is missing");
    await accessible(page, "submit-faults");
    await shot(page, "submit-faults");
    check(await page.evaluate(() => document.activeElement.name) === "/payload/verdict", "the first field with a fault has no focus");
    await page.keyboard.type("granted");
    await page.getByLabel("sum").fill("7");
    await page.getByLabel("why").fill("it was broken");
    await page.keyboard.press("Enter");
    await page.waitForURL(`**/console/runs/${run}`);
    await has(page, "succeeded", '"verdict": "granted"');
    await look(page, `${shop}/console/audit?kind=event`, "it was broken");
    // What no schema describes is JSON, and begins with what was sent last.
    await page.goto(`${shop}/console/submit?type=refund-asked`);
    await page.getByLabel("Last events").getByRole("link", {name: sale}).click();
    await has(page, "No schema says");
    check((await page.getByLabel("payload").inputValue()).includes(`"sale": "${sale}"`), "the last event is not at hand");
    await page.getByLabel("payload").fill("{");
    await page.getByRole("button", {name: "Submit", exact: true}).click();
    await has(page, "want JSON");
    await accessible(page);
    await page.context().close();
  },

  async "a switch without scripts"(me) {
    const page = await visitor(me, {javaScriptEnabled: false});
    await page.goto(`${shop}/console/handlers/sold/tell/notify`);
    const form = page.locator("form.control").first();
    await form.getByLabel("why").fill("they complain");
    await form.getByRole("button", {name: "Switch off"}).click();
    await has(page, "Switch off sold/tell/notify?");
    await page.getByRole("button", {name: "Switch off"}).click();
    await page.waitForURL("**/console/handlers/**");
    await page.goto(`${shop}/`);
    await has(page, "they complain", "switched off");
    check((await page.getByLabel("What is wrong now").innerText()).includes("sold/tell/notify is switched off"), "the banner does not tell of the switch");
    // The switch holds within a second on every node; what is accepted then calls no more.
    const skipped = await until("a run without its call", async () => {
      const before = await ask("calls");
      const {run} = await sell();
      await ended(run, "succeeded");
      return before === await ask("calls") && run;
    });
    await page.goto(`${shop}/console/runs/${skipped}`);
    await has(page, "skipped", "switched off");
    await page.goto(`${shop}/`);
    await page.getByRole("button", {name: "Lift"}).click();
    await until("calls again", async () => {
      const before = await ask("calls");
      const {run} = await sell();
      await ended(run, "succeeded");
      return before !== await ask("calls");
    });
    await page.context().close();
  },

  // What readers have opened, focused, selected, scrolled and typed outlasts a minute of updates, and what is new is shown.
  async "live without harm"(me) {
    const page = await visitor(me, {viewport: {width: 1280, height: 300}});
    await page.clock.install();
    const {run} = await sell();
    await ended(run, "succeeded");
    await page.goto(`${shop}/console/runs/${run}`);
    await page.getByText("request and response").first().click();
    const state = () => page.evaluate(() => ({
      open: [...document.querySelectorAll("details")].map((d) => d.open).join(), focus: document.activeElement === document.body ? "" : document.activeElement.textContent,
      // Browsers scroll along when the banner above gets shorter: what counts is where the reader sees the text.
      scrolled: window.scrollY === 0 ? 0 : Math.round(document.querySelector("main h1").getBoundingClientRect().top),
      selected: getSelection().toString(), fed: Number(document.documentElement.dataset.fed || 0),
    }));
    // The browser's clock is moved on to each update, so a minute takes seconds.
    const outlasts = async () => {
      const before = await state(), clock = () => page.evaluate(() => Date.now());
      for (const end = await clock() + 60_000; await clock() < end;) {
        const {fed} = await state();
        await page.clock.runFor(2000);
        await page.waitForFunction((fed) => Number(document.documentElement.dataset.fed || 0) > fed, fed, {polling: 20});
      }
      const now = await state();
      check(JSON.stringify({...now, fed: 0}) === JSON.stringify({...before, fed: 0}), `a minute of updates changed what the reader had: ${JSON.stringify(before)} became ${JSON.stringify(now)}`);
    };
    await page.evaluate(() => {
      document.querySelector("main summary").focus();
      getSelection().selectAllChildren(document.querySelector("main h1"));
      window.scrollTo(0, 250);
    });
    check((await state()).scrolled !== 0 && (await state()).selected !== "", "the page can be neither scrolled nor selected");
    await outlasts();
    // On the list of runs: what is typed stays, rows that are new come above.
    await page.goto(`${shop}/console/runs`);
    await page.locator("summary", {hasText: "more"}).click();
    await page.getByLabel("error").fill("half a wor");
    await page.getByLabel("key", {exact: true}).focus();
    const {run: next} = await sell();
    await page.locator(`[id="run-${next}"]`).waitFor();
    await outlasts();
    check(await page.getByLabel("error").inputValue() === "half a wor", "what was typed is lost");
    // Paused, it stands still and says so.
    await page.getByRole("button", {name: "Live"}).click();
    await page.getByRole("button", {name: "Paused"}).waitFor();
    await accessible(page);
    const {run: later} = await sell();
    await ended(later, "succeeded");
    const {fed} = await state();
    check(await page.locator(`[id="run-${later}"]`).count() === 0, "a page that is paused has changed");
    await page.getByRole("button", {name: "Paused"}).click();
    await page.locator(`[id="run-${later}"]`).waitFor();
    check((await state()).fed > fed, "the page does not continue");
    await page.goto(`${shop}/console/incidents`);
    await page.locator(".chart canvas").nth(1).waitFor();
    await outlasts();
    check(await page.locator(".chart canvas").count() === 2, "an update has taken a chart");
    await page.context().close();
  },
};

// So is this, but on one store: it has nothing to do with stores. The first page needs a
// shop where nothing has happened yet.
const before = {
  async "pages with nothing to show"(me) {
    const page = await visitor(me);
    await seen(page, "overview", `${shop}/`, "No run has failed", "sold");
    await seen(page, "runs-empty", `${shop}/console/runs`, "No run matches");
    await seen(page, "incidents-empty", `${shop}/console/incidents`, "Nothing was wrong", "definition", "None.");
    await seen(page, "queue-empty", `${shop}/console/queue`, "0 wait");
    await seen(page, "inbox-empty", `${shop}/console/inbox`, "The inbox has one database");
    await seen(page, "clusters-empty", `${shop}/console/clusters`, "There are no clusters");
    await seen(page, "shards-empty", `${shop}/console/shards`, "shard map");
    await seen(page, "docs", `${shop}/console/docs/concepts`, "Concepts");
    await seen(page, "sign-in", `${shop}/console/sign-in`, "Sign in", "token");
    await seen(page, "versions", `${shop}/console/versions`, "No canary has run", "current");
    await seen(page, "audit-empty", `${shop}/console/audit?name=nobody`, "No change matches");
    await seen(page, "pipeline", `${shop}/console/pipelines/sold`, "charge", "notify");
    await seen(page, "playground", `${shop}/console/playground`, "Playground");
    await page.context().close();
  },
};

const after = {
  // With the keyboard alone. Enter switches nothing off; runs that are held look like no health.
  async "a hold and its end"(me) {
    const page = await visitor(me);
    await page.goto(`${shop}/console/handlers/sold/pay/charge`);
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    let tabs = 1;
    for (; tabs < 20 && await page.evaluate(() => document.activeElement.textContent) !== "Switch off"; tabs++) await page.keyboard.press("Tab");
    check(tabs <= 6, `${tabs} tabs to the first switch`);
    const form = page.locator("form.control").first();
    await form.getByLabel("for").fill("30m");
    await form.getByLabel("why").fill("the till is changed");
    await page.keyboard.press("Enter");
    await until("an update of the page", () => page.evaluate(() => Number(document.documentElement.dataset.fed) > 1));
    check(new URL(page.url()).pathname === "/console/handlers/sold/pay/charge" && await form.getByLabel("why").inputValue() === "the till is changed", "Enter has sent the form");
    await form.getByRole("button", {name: "Hold"}).click();
    await has(page, "Hold sold/pay/charge?", "30m", "the till is changed");
    await accessible(page, "hold");
    await page.getByRole("button", {name: "Hold"}).click();
    await page.waitForURL("**/console/handlers/**");
    await has(page, "is held", "set by", "the till is changed");
    const {run} = await sell();
    const row = page.locator(`[id="run-${run}"]`);
    await page.goto(`${shop}/console/runs?status=parked`);
    await row.waitFor();
    check(/charge: .*held/.test(await row.innerText()), `the list does not say what the run waits for: ${await row.innerText()}`);
    await page.getByLabel("What is wrong now").getByText("1 run waits, the oldest for").waitFor();
    await page.getByLabel("What is wrong now").getByText("1 held").waitFor();
    await accessible(page);
    await shot(page, "held");
    await page.goto(`${shop}/console/handlers/sold/pay/charge`);
    await page.getByLabel("why lift it").fill("it is changed");
    await page.getByRole("button", {name: "Lift"}).first().click();
    await ended(run, "succeeded");
    await look(page, `${shop}/console/audit`, "it is changed");
    await page.context().close();
  },

  async "a page that is not there"(me) {
    const page = await visitor(me);
    const reply = await look(page, `${shop}/console/pipelines/sould`, "There is no pipeline", "Did you mean sold?");
    check(reply.status() === 404, `status ${reply.status()}, want 404`);
    await page.getByRole("link", {name: "Overview"}).first().click();
    await has(page, "Pipelines");
    await page.context().close();
  },

  async "the design language"(me) {
    const page = await visitor(me);
    await seen(page, "styleguide", `${dev}/console/styleguide`, "Style guide", "critical");
    await shot(page, "styleguide");
    // No more than its five sizes of type, wherever one looks.
    for (const address of [`${dev}/console/styleguide`, `${shop}/`, `${shop}/console/runs`, `${shop}/console/handlers/sold/pay/charge`]) {
      await page.goto(address);
      const sizes = await page.evaluate(() => [...new Set([...document.querySelectorAll("body :not(svg *, code, pre, pre *, textarea)")]
        .filter((e) => e.checkVisibility() && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())).map((e) => getComputedStyle(e).fontSize))].sort());
      check(sizes.every((s) => ["12px", "14px", "16px", "22px", "28px"].includes(s)), `${address} has type of ${sizes}`);
    }
    await page.context().close();
  },

  async "a dry run in the playground"(me) {
    const page = await visitor(me);
    await page.goto(`${shop}/console/playground`);
    // A node that is busy says that it takes too long; so one tries again.
    await until("the dry run", async () => {
      await page.getByRole("button", {name: "Run"}).click();
      await page.waitForLoadState();
      return (await text(page)).includes("The test passed");
    });
    await has(page, "hello: succeeded", "hello Ada", "POST http://127.0.0.1:9083/v1/push");
    await accessible(page);
    await shot(page, "playground");
    await page.getByLabel("An event").fill("tests:\n  - name: nobody answers\n    events: {type: hello, payload: {name: Ada}}\n");
    await until("what the dry run lacks", async () => {
      await page.getByRole("button", {name: "Run"}).click();
      await page.waitForLoadState();
      return (await text(page)).includes("add one to the test");
    });
    // The drawing fits both screens; each arrow carries its proof, and so does a list for who cannot point at it.
    await page.getByLabel("Pipelines, as YAML").fill(["pipelines:", "  - id: chain", "    shared-state: {a: null, b: null}", "    stages:", "      - id: one", "        handlers:",
      "          - {id: first, set: {a: 1}}", "          - {id: aside, critical: false, set: {}}", "          - {id: second, set: {b: !$ 'shared-state.a'}}"].join("\n"));
    await page.getByRole("button", {name: "Check"}).click();
    await page.getByRole("heading", {name: "chain"}).waitFor();
    const proofs = await page.locator(".wired .reach title").allTextContents();
    check(proofs.length === 1 && proofs[0].startsWith("second waits for first: second reads shared-state.a, which first writes"), `the arrows say ${proofs}`);
    await page.getByText("why handlers wait for each other").click();
    await has(page, proofs[0]);
    await accessible(page);
    await page.goto(`${shop}/console/runs?pipeline=hello`);
    await has(page, "No run matches");
    await page.context().close();
  },

  // What events say is searched for a day and three seconds, and searches have names in this browser.
  async "a search"(me) {
    const page = await visitor(me);
    const {id, run} = await sell();
    await sell();
    await page.goto(`${shop}/console/runs`);
    await page.locator("summary", {hasText: "more"}).click();
    await page.getByLabel("in the event").fill(`"id": "${id}"`);
    await page.keyboard.press("Enter");
    await has(page, "since 24h", "stops after 3 s");
    check(await page.locator("tr[id^=run-]").count() === 1 && await page.locator(`[id="run-${run}"]`).count() === 1, "want the run of that event alone");
    page.once("dialog", (d) => d.accept("that sale"));
    await page.getByRole("button", {name: "Save this search"}).click();
    await accessible(page);
    await page.goto(`${shop}/console/runs`);
    await page.getByRole("link", {name: "that sale"}).click();
    await page.locator(`[id="run-${run}"]`).waitFor();
    await page.getByRole("button", {name: "Forget that sale"}).click();
    await page.getByRole("button", {name: "Save this search"}).waitFor();
    await page.context().close();
  },

  async "the keyboard alone"(me) {
    const page = await visitor(me);
    await page.goto(`${shop}/console/runs`);
    await page.keyboard.press("Tab");
    check(await page.evaluate(() => document.activeElement.textContent) === "To the content", "the first stop is not the link to the content");
    for (let i = 0; i < 30 && await page.evaluate(() => document.activeElement.textContent) !== "Audit"; i++) await page.keyboard.press("Tab");
    check(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle) === "solid", "one does not see where one is");
    await Promise.all([page.waitForURL("**/console/audit"), page.keyboard.press("Enter")]);
    await page.keyboard.press("g");
    await Promise.all([page.waitForURL("**/console/runs"), page.keyboard.press("r")]);
    await page.keyboard.press("/");
    check(await page.evaluate(() => document.activeElement.name) === "key", "/ does not lead to the search");
    await page.keyboard.type("g?");
    check(await page.evaluate(() => document.activeElement.value) === "g?", "what is typed is taken for keys");
    await page.keyboard.press("Tab");
    await page.getByRole("heading", {name: "Runs", exact: true}).click();
    await page.keyboard.press("?");
    await page.getByRole("dialog", {name: "Keys"}).waitFor();
    await accessible(page);
    await page.keyboard.press("Escape");
    await page.context().close();
  },

  async "a phone"(me) {
    const page = await visitor(me, {viewport: {width: 360, height: 740}});
    const key = "without-a-break-".repeat(8);
    const reply = await fetch(`${shop}/v1/events`, {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({type: "sold", id: key, source: key, payload: {id: key}})});
    const {run} = await reply.json();
    const onlyHere = ["/console/costs", "/console/submit?type=refund-decided", "/console/docs?q=key"];
    const elsewhere = ["/", "/console/runs", "/console/handlers/sold/tell/notify", "/console/incidents", "/console/inbox", "/console/queue", "/console/versions", "/console/submit", "/console/docs/concepts", `/console/runs/${run}`, `/console/keys/sale/${key}`];
    for (const path of [...onlyHere, ...elsewhere]) {
      await page.goto(shop + path);
      await fits(page);
      await accessible(page, "", onlyHere.includes(path) ? everyLook : small);
    }
    // The menu is over the page, and needs no script.
    await page.getByRole("button", {name: "Menu"}).click();
    await accessible(page, "", small);
    await shot(page, "menu");
    await Promise.all([page.waitForURL("**/console/audit"), page.getByRole("link", {name: "Audit"}).click()]);
    await page.context().close();
  },

  async "a lost connection"(me) {
    const page = await visitor(me);
    await page.goto(`${shop}/`);
    const banner = page.locator(".lost");
    await until("the page is fed", () => page.evaluate(() => Number(document.documentElement.dataset.fed) > 1));
    await ask("stop");
    await banner.waitFor({state: "visible"});
    await page.getByRole("button", {name: "Lost"}).waitFor();
    await accessible(page);
    await shot(page, "lost");
    await ask("start");
    await banner.waitFor({state: "hidden"});
    await page.context().close();
  },
};

// This is played at the demo, at the same time.
const atDemo = {
  async "the incident"(me) {
    const page = await visitor(me);
    await page.goto(`${demo}/`);
    // What is wrong is said in words, and counted in the sidebar, on each page.
    await page.getByLabel("What is wrong now").getByText("statistics is down since").waitFor();
    await page.goto(`${demo}/console/audit`);
    await page.getByLabel("What is wrong now").getByText("Runs continue without it.").first().waitFor();
    await page.getByTitle(/^problems: \d/).waitFor();
    await page.goto(`${demo}/`);
    const link = page.locator("section[aria-label=Trouble] a").filter({hasText: "new-order-created/miscellaneous/update-statistics"});
    await link.waitFor();
    await accessible(page);
    await shot(page, "incident-overview");
    await within(1, "the cause", async (click) => {
      await click(link);
      await page.waitForURL("**/console/handlers/new-order-created/miscellaneous/update-statistics");
      await has(page, "team-statistics", "500");
    });
    await page.locator(".chart canvas").first().waitFor();
    await accessible(page);
    await shot(page, "incident-handler");
    await within(2, "the switch", async (click) => {
      const form = page.locator("form.control").first();
      await form.getByLabel("why").fill("statistics is broken");
      await click(form.getByRole("button", {name: "Switch off"}));
      await has(page, "Switch off new-order-created/miscellaneous/update-statistics?");
      await accessible(page);
      await click(page.getByRole("button", {name: "Switch off"}));
      await page.waitForURL("**/console/handlers/**");
      await has(page, "switched off", "statistics is broken");
    });
    // Orders go on, and none of them calls it.
    const count = async () => {
      const lines = (await (await fetch(`${demo}/metrics`)).text()).split("\n");
      const sum = (...words) => lines.filter((l) => words.every((w) => l.includes(w))).reduce((n, l) => n + Number(l.split(" ").pop()), 0);
      const path = ['procaas_handler_seconds_count{', 'pipeline="new-order-created"', 'handler="update-statistics"'];
      return {calls: sum(...path), runs: sum('procaas_runs_total{', 'pipeline="new-order-created"', 'status="succeeded"')};
    };
    let earlier = await count();
    check(earlier.calls > 0, "the metrics tell of no call of update-statistics");
    await until("ten orders without a call", async () => {
      const now = await count();
      if (now.calls !== earlier.calls) earlier = now;
      return now.runs >= earlier.runs + 10;
    });
    const report = await exported(page);
    await look(page, `${demo}/console/incidents`, "statistics is broken", "fallback", "Dashed lines are changes");
    // Nobody calls statistics any more, so it may count as up again: what was done about it stays.
    for (const line of [/update-statistics\*\* is switched off \| .* so far/, /fallback .*update-statistics \| \d+ of \d+ calls/, /control .*update-statistics \| statistics is broken/]) {
      check(line.test(report), `the export lacks ${line}\n${report}`);
    }
    await page.locator(".chart canvas").first().waitFor();
    await shot(page, "incident-view");
    await look(page, `${demo}/console/pipelines/new-order-created`, "update-statistics");
    check(await page.evaluate(() => [...document.querySelectorAll(".wired svg path")].every((p) => {
      const {y, height} = p.getBBox();
      return y >= 0 && y + height < p.ownerSVGElement.height.baseVal.value;
    })), "a wire leads out of its stage");
    await shot(page, "pipeline");
    await look(page, `${demo}/console/runs?pipeline=new-order-created`, "new-order-created");
    // The names in the drawing of an automaton do not touch each other. A phone has a list in place of the drawing.
    await page.locator("tr[id^=run-] a").first().click();
    await page.locator(".automaton svg").waitFor();
    await shot(page, "key");
    const touching = await page.evaluate(() => {
      const all = [...document.querySelectorAll(".automaton text")].map((t) => [t.textContent, t.getBoundingClientRect()]);
      return all.flatMap(([a, r], i) => all.slice(i + 1).filter(([, o]) => r.left < o.right && o.left < r.right && r.top < o.bottom && o.top < r.bottom).map(([b]) => `${a} and ${b}`));
    });
    check(touching.length === 0, `in the automaton, names touch: ${touching}`);
    await accessible(page);
    await page.setViewportSize({width: 390, height: 844});
    await page.locator(".automaton ol").getByText("order-cancelled → cancelled").first().waitFor();
    check(await page.locator(".automaton svg").isHidden(), "the phone has the drawing, too");
    await page.context().close();
  },
};

const tell = async (story) => {
  const me = {at: "", page: null};
  try {
    for (const [act, play] of Object.entries(story)) {
      if (!act.includes(process.env.PROCAAS_TEST_ACT ?? "")) continue;
      me.at = act;
      say(act);
      await play(me);
    }
    say(`done with ${me.at}`);
  } catch (e) {
    process.exitCode = 1;
    console.log(`FAIL in ${me.at}: ${e.stack}`);
    if (me.page === null || me.page.isClosed()) return;
    await shot(me.page, "failure").catch(() => {});
    console.log(`the page ${me.page.url()}:\n${await text(me.page).catch(() => "has nothing to read")}`);
  }
};

mkdirSync(shots, {recursive: true});
const asApproved = await gallery(browser, {approved: "approved", shots});
await Promise.all([tell(whole ? {...before, ...atShop, ...after} : atShop), tell(atDemo)]);
if (wrong.length > 0) {
  process.exitCode = 1;
  console.log(`FAIL: browsers were not content:\n  ${wrong.join("\n  ")}`);
}
await browser.close();
process.stdin.destroy();
