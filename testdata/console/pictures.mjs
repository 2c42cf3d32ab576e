// Compares pictures of pages with approved ones. PROCAAS_TEST_APPROVE=1 approves the present ones: look at them first.
//
// All machines must make the same pictures, whatever fonts they have and however long a run took. So letters are boxes of one
// width, numbers and times are left out, and pictures have a third of their size and few colours.
import {existsSync, mkdirSync, readFileSync, writeFileSync} from "node:fs";

// tolerated is the share of pixels that may differ: more of those at edges, which browsers draw differently, than within areas
// of one colour, which they do not.
const tolerated = {edges: 0.01, areas: 0.0015};

// boxes is a font (TrueType) whose letters are all the same box.
const boxes = () => {
  const letters = [];
  for (let c = 0x20; c < 0x250; c++) letters.push(c);
  for (const c of "–—…→←↓·≤≥▶▼▾▸×✓") if (c.codePointAt(0) >= 0x250) letters.push(c.codePointAt(0));
  letters.sort((a, b) => a - b);
  const i16 = (...n) => n.flatMap((x) => [x >> 8 & 255, x & 255]);
  const i32 = (...n) => n.flatMap((x) => [x >>> 24, x >> 16 & 255, x >> 8 & 255, x & 255]);
  const zeros = (n) => Array(n).fill(0);
  const glyph = [...i16(1, 50, 0, 500, 550, 3, 0), 1, 1, 1, 1, ...i16(50, 0, 450, 0), ...i16(0, 550, 0, -550)];
  const tables = {
    "OS/2": [...i16(4, 550, 400, 5, 0), ...zeros(20), ...i16(0), ...zeros(10), ...zeros(16), ...zeros(4), ...i16(64, 0x20, 0xffff, 800, -200, 0, 800, 200), ...zeros(8), ...i16(550, 550, 0, 0x20, 1)],
    cmap: [...i16(0, 1, 3, 10), ...i32(12), ...i16(12, 0), ...i32(16 + 12 * letters.length, 0, letters.length), ...letters.flatMap((c) => i32(c, c, c === 0x20 || c === 0xa0 ? 1 : 2))],
    glyf: glyph,
    head: [...i32(0x10000, 0x10000, 0, 0x5f0f3cf5), ...i16(0, 1000), ...zeros(16), ...i16(50, 0, 500, 550, 0, 8, 2, 0, 0)],
    hhea: [...i32(0x10000), ...i16(800, -200, 0, 550, 50, 50, 500, 1, 0, 0, 0, 0, 0, 0, 0, 3)],
    hmtx: i16(550, 0, 550, 0, 550, 50),
    loca: i16(0, 0, 0, glyph.length / 2),
    maxp: [...i32(0x10000), ...i16(3, 4, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0)],
    name: i16(0, 0, 6),
    post: [...i32(0x30000, 0), ...i16(-100, 50), ...i32(1, 0, 0, 0, 0)],
  };
  const names = Object.keys(tables);
  const directory = [...i32(0x10000), ...i16(names.length, 128, 3, 32)], body = [];
  for (const n of names) {
    directory.push(...[...n].map((c) => c.charCodeAt(0)), ...i32(0, 12 + 16 * names.length + body.length, tables[n].length));
    body.push(...tables[n], ...zeros((4 - tables[n].length % 4) % 4));
  }
  return [...directory, ...body];
};

// plain is what pictures look like.
const plain = `
  * { font-family: boxes !important; letter-spacing: 0 !important; transition: none !important; animation: none !important; caret-color: transparent !important; scrollbar-width: none !important; }
  table { table-layout: fixed; }
  .wrong, .notice.lost, h1 .chip { display: none; } main > .tiles li { background: var(--card) !important; }
  time, td.number, .count, .tiles b, .tiles small, .periods dd, .tiles li > span + b ~ span, .spark, .ticks, .bars .muted, .bars rect, .history .muted { visibility: hidden; }
  time { display: inline-block; width: 6rem; height: 1em; overflow: hidden; }
  .tiles b { display: block; overflow: hidden; height: 1.4em; } .tiles b ~ span { display: block; height: 1.2em; overflow: hidden; }
  .chart { visibility: hidden; overflow: hidden; height: 16rem; padding: 0 !important; margin: 0 0 12px !important; }
  .box span { visibility: hidden; } .side .foot { visibility: hidden; } .pace, .lost { visibility: hidden; } .id, td code { visibility: hidden; }
`;

// dress runs in the page.
const dress = async ({font, plain}) => {
  if (![...document.fonts].some((f) => f.family === "boxes")) document.fonts.add(await new FontFace("boxes", new Uint8Array(font).buffer).load());
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(plain);
  document.adoptedStyleSheets = [sheet];
  window.scrollTo(0, 0);
  await new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)));
};

// compared runs in a page of its own: it makes a picture a third as large, and returns the shares of pixels in which it differs from a known
// one, and the picture if these are not tolerated. Pixels are numbers of 32 bits: pages run without optimized code.
const compared = async ({shot, known, tolerated}) => {
  const draw = async (data, scale) => {
    const image = await createImageBitmap(await (await fetch("data:image/png;base64," + data)).blob());
    const canvas = document.createElement("canvas");
    canvas.width = Math.round(image.width / scale);
    canvas.height = Math.round(image.height / scale);
    const pen = canvas.getContext("2d", {willReadFrequently: true});
    pen.imageSmoothingQuality = "high";
    pen.drawImage(image, 0, 0, canvas.width, canvas.height);
    const reduced = pen.getImageData(0, 0, canvas.width, canvas.height), pixels = new Uint32Array(reduced.data.buffer);
    for (let i = 0; i < pixels.length; i++) pixels[i] = pixels[i] & 0xf0f0f0 | 0xff000000;
    pen.putImageData(reduced, 0, 0);
    return {canvas, pixels};
  };
  const {canvas, pixels: now} = await draw(shot, 3);
  const before = known ? (await draw(known, 1)).pixels : [];
  const row = canvas.width, last = now.length - row - 1;
  const flat = (pixels, i) => pixels[i] === pixels[i + 1] && pixels[i] === pixels[i + row];
  let edges = 0, areas = 0;
  for (let i = 0; i < last && before.length === now.length; i++) {
    const a = now[i], b = before[i];
    if (a === b) continue;
    if ([0, 8, 16].some((part) => Math.abs((a >> part & 255) - (b >> part & 255)) > 40)) edges++;
    if (flat(now, i) && flat(before, i)) areas++;
  }
  const shares = before.length === now.length ? {edges: edges / last, areas: areas / last} : {edges: 1, areas: 1};
  if (shares.edges <= tolerated.edges && shares.areas <= tolerated.areas) return {};
  return {...shares, small: canvas.toDataURL("image/png").split(",")[1]};
};

// gallery returns a function that takes a picture of a page as it is shown, and throws when it is not as approved.
export const gallery = async (browser, {approved, shots}) => {
  const lab = await (await browser.newContext()).newPage();
  const font = boxes(), sessions = new WeakMap();
  const approve = Boolean(process.env.PROCAAS_TEST_APPROVE);
  mkdirSync(approved, {recursive: true});
  return async (page, what) => {
    await page.mouse.move(0, 0); // a row under the mouse has another colour
    await page.evaluate(dress, {font, plain});
    if (!sessions.has(page)) sessions.set(page, await page.context().newCDPSession(page));
    const {data: shot} = await sessions.get(page).send("Page.captureScreenshot", {format: "png", optimizeForSpeed: true}); // it is thrown away: small is not worth it
    await page.evaluate(() => { document.adoptedStyleSheets = []; });
    const file = `${approved}/${what}.png`;
    const known = existsSync(file) ? readFileSync(file, "base64") : null;
    const {small, edges, areas} = await lab.evaluate(compared, {shot, known, tolerated});
    if (!small) return;
    if (approve) {
      writeFileSync(file, Buffer.from(small, "base64"));
      return;
    }
    writeFileSync(`${shots}/${what}.png`, Buffer.from(small, "base64"));
    throw new Error(`${page.url()} ${known ? `differs from the approved picture in ${(100 * edges).toFixed(1)} % of its pixels, and in the colour of ${(100 * areas).toFixed(1)} %` : "has no approved picture"}: compare ${shots}/${what}.png with ${file}.\n` +
      "If the new one is right, run the test with PROCAAS_TEST_APPROVE=1.");
  };
};
