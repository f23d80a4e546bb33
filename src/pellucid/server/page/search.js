// @ts-check
/** An index: hits with highlighted reasons; sliders weigh its parts, and the words or dimensions of the reasons, anew. */

import { ask, el, markedText, signed, soon } from "./dom.js";

const FOUND = 50; // hits that are fetched: those that sliders put in a new order
const SHOWN = 10;
const HANDLES = 12; // words or dimensions with a slider

/** @type {import("./explorer.js").View} */
export async function search(main, page) {
  const info = await ask("index");
  let query = page.state.q ?? "";
  /** @type {Record<string, number>} */
  let weights = page.state.w ? JSON.parse(page.state.w) : info.weights;
  /** @type {Record<string, number>} */
  let factors = page.state.f ? JSON.parse(page.state.f) : {};
  /** @type {any} */
  let found = null;

  const hits = el("div", { "aria-live": "polite" });
  const handles = el("div", { class: "sliders" });
  const settings = el("pre", { tabindex: "0" });
  const run = soon(
    async () => (query ? ask("search", { query, top_k: FOUND, weights, rows: 400 }) : null),
    (answer) => { found = answer; page.result(answer); drawHandles(); drawHits(); },
    (error) => hits.replaceChildren(el("p", { class: "error" }, error.message)),
  );
  const keep = () => page.set({ q: query, w: same(weights, info.weights) ? "" : JSON.stringify(weights), f: Object.keys(factors).length ? JSON.stringify(factors) : "" });

  function drawHandles() {
    /** @type {Map<string, number>} */
    const sizes = new Map();
    for (const hit of found?.hits.slice(0, SHOWN) ?? []) {
      for (const row of hit.rows) sizes.set(row.handle, (sizes.get(row.handle) ?? 0) + Math.abs(row.contribution));
    }
    const largest = [...sizes].sort((a, b) => b[1] - a[1]).slice(0, HANDLES).map(([name]) => name);
    const names = [...new Set([...Object.keys(factors), ...largest])];
    handles.replaceChildren(...names.map((name) => slider(name, factors[name] ?? 1, 2, (value) => {
      if (value === 1) delete factors[name];
      else factors[name] = value;
      keep();
      drawHits();
    })));
  }

  function drawHits() {
    const scored = (found?.hits ?? []).map((/** @type {any} */ hit, /** @type {number} */ rank) => ({ hit, rank, score: weighed(hit, factors) }));
    scored.sort((/** @type {any} */ a, /** @type {any} */ b) => b.score - a.score || a.rank - b.rank);
    const shown = scored.slice(0, SHOWN);
    hits.replaceChildren(
      el("p", { class: "note" }, found ? `the best ${shown.length} of ${found.documents.toLocaleString("en")} documents` : "Ask the index something."),
      ...shown.map((/** @type {any} */ one, /** @type {number} */ place) => drawnHit(one.hit, one.score, place, one.rank)));
    const words = new Set((found?.hits ?? []).flatMap((/** @type {any} */ hit) => hit.rows.filter((/** @type {any} */ row) => row.kind.startsWith("word")).map((/** @type {any} */ row) => row.handle)));
    settings.textContent = asCode(words, weights, factors);
  }

  const box = /** @type {HTMLInputElement} */ (el("input", { type: "search", "aria-label": "Question", placeholder: "Ask the index" }));
  box.value = query;
  box.addEventListener("input", () => { query = box.value; factors = {}; keep(); run(); });
  const reset = el("button", { type: "button", click: () => { weights = { ...info.weights }; factors = {}; keep(); run(0); drawParts(); } }, "Reset the sliders");
  const parts = el("div", { class: "sliders" });
  function drawParts() {
    parts.replaceChildren(...Object.keys(info.weights).map((name) => slider(name, weights[name] ?? 0, 1, (value) => {
      weights = { ...weights, [name]: value };
      keep();
      run(80);
    })));
  }
  drawParts();
  main.append(
    el("p", { class: "note" }, `${info.documents.toLocaleString("en")} documents`),
    el("form", { class: "line", role: "search", submit: (event) => { event.preventDefault(); run(0); } }, box, el("button", {}, "Search"), reset),
    el("details", { open: true }, el("summary", {}, "Weigh the parts of the score, and its words or dimensions"),
      el("h2", {}, "Parts"), parts, el("h2", {}, "Words and dimensions"), handles),
    hits,
    el("details", {}, el("summary", {}, "These settings in Python"), settings));
  run(0);
}

/** Return the score of a hit with some reasons weighed anew: an exact sum, since rows add up to the score. */
function weighed(/** @type {any} */ hit, /** @type {Record<string, number>} */ factors) {
  return hit.rows.reduce((/** @type {number} */ sum, /** @type {any} */ row) => sum + ((factors[row.handle] ?? 1) - 1) * row.contribution, hit.score);
}

function drawnHit(/** @type {any} */ hit, /** @type {number} */ score, /** @type {number} */ place, /** @type {number} */ rank) {
  const moved = rank - place;
  const marks = hit.words.map((/** @type {any} */ word) => ({ start: word.start, end: word.end, value: word.contribution }));
  const parts = Object.entries(hit.parts).map(([name, value]) => `${name} ${signed(/** @type {number} */ (value), 3)}`).join("  ");
  const facts = Object.entries(hit.metadata).map(([name, value]) => `${name}: ${value}`).join("  ");
  return el("article", { class: "hit" },
    el("h3", {}, el("span", { class: "number" }, score.toFixed(4)), el("span", {}, hit.title || hit.id),
      el("span", { class: "moved" }, moved === 0 ? "" : moved > 0 ? `up ${moved}` : `down ${-moved}`)),
    el("p", { class: "parts" }, [`id ${hit.id}`, parts, facts].filter(Boolean).join("  ·  ")),
    markedText(hit.indexed, marks),
    el("p", { class: "note" }, hit.rows.slice(0, 4).map((/** @type {any} */ row) => `${row.name} ${signed(row.contribution, 3)}`).join(", ")));
}

/** Return a labelled slider from 0 to `most`. */
function slider(/** @type {string} */ name, /** @type {number} */ value, /** @type {number} */ most, /** @type {(value: number) => void} */ moved) {
  const shown = el("output", {}, value.toFixed(2));
  const input = /** @type {HTMLInputElement} */ (el("input", { type: "range", min: "0", max: String(most), step: "0.05", value: String(value), "aria-label": name }));
  input.addEventListener("input", () => { shown.textContent = Number(input.value).toFixed(2); moved(Number(input.value)); });
  return el("label", {}, el("bdi", {}, name), shown, input);
}

function same(/** @type {Record<string, number>} */ a, /** @type {Record<string, number>} */ b) {
  return JSON.stringify(a) === JSON.stringify(b);
}

/** Return Python that searches with these settings; `known` are the handles that are words of the query. */
function asCode(/** @type {Set<string>} */ known, /** @type {Record<string, number>} */ weights, /** @type {Record<string, number>} */ factors) {
  const words = Object.fromEntries(Object.entries(factors).filter(([name]) => known.has(name) && !/ \(as .*\)$/.test(name)));
  const others = Object.fromEntries(Object.entries(factors).filter(([name]) => !(name in words)));
  const settings = [`weights=${JSON.stringify(weights)}`];
  if (Object.keys(words).length) settings.push(`word_weights=${JSON.stringify(words)}`);
  const lines = ["index = pellucid.Index.open(\"my-index\")", `index.configure(${settings.join(", ")})  # kept; or only for one search:`,
    `hits = index.search(query, ${settings.join(", ")})`];
  if (Object.keys(others).length) lines.push(`# on this page alone: ${JSON.stringify(others)}`);
  return lines.join("\n");
}
