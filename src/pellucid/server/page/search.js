// @ts-check
/** An index: hits with highlighted reasons; sliders weigh its parts, and the words or dimensions of the reasons, anew. */

import { ask, el, keeping, markedText, said, signed, slider, soon } from "./dom.js";

const FOUND = 50; // hits that are fetched: those that sliders put in a new order
const SHOWN = 10;
const HANDLES = 12; // words or dimensions with a slider

/**
 * What weighs a score: its parts, and the words and dimensions of its reasons.
 * @typedef {{weights: Record<string, number>, words: Record<string, number>, others: Record<string, number>}} Settings
 */

/** @type {import("./explorer.js").View} */
export async function search(main, page) {
  if (!page.server.has_index) {
    main.append(el("p", {}, "There is no index to search here. Make one of your texts, and start the server with it:"),
      el("pre", { tabindex: "0" }, "pellucid index build my-index articles.jsonl\npellucid serve --index my-index"));
    return;
  }
  const info = await ask("index");
  let query = page.state.q ?? "";
  /** @type {Record<string, number>} */
  let weights = page.state.w ? JSON.parse(page.state.w) : info.weights;
  /** @type {Record<string, number>} */
  let factors = page.state.f ? JSON.parse(page.state.f) : { ...info["word weights"] };
  /** @type {any} */
  let found = null;

  const hits = el("div", { "aria-live": "polite" });
  const handles = el("div", { class: "sliders" });
  const code = el("pre", { tabindex: "0" });
  const elsewhere = el("p", { class: "note" });
  const run = soon(
    async () => (query ? ask("search", { query, top_k: FOUND, weights, word_weights: {}, rows: 400 }) : null),
    (answer) => { found = answer; page.result(answer); drawHandles(); drawHits(); },
    (error) => hits.replaceChildren(el("p", { class: "error" }, error.message)),
  );
  const keep = () => page.set({ q: query, w: same(weights, info.weights) ? "" : JSON.stringify(weights), f: same(factors, info["word weights"]) ? "" : JSON.stringify(factors) });
  const ask_for = (/** @type {string} */ text) => { query = box.value = text; factors = { ...info["word weights"] }; keep(); };

  /** Return the weights as they are now; words are those that stand in a question, the rest are dimensions. */
  function settings() {
    const known = new Set(Object.keys(info["word weights"]));
    for (const hit of found?.hits ?? []) for (const row of hit.rows) if (row.kind.startsWith("word")) known.add(row.handle);
    const some = (/** @type {boolean} */ isWord) => Object.fromEntries(Object.entries(factors).filter(([name]) => known.has(name) === isWord));
    return { weights, words: some(true), others: some(false) };
  }

  async function save() {
    const { words } = settings();
    const kept = await ask("index", { weights, word_weights: words });
    Object.assign(info, kept);
    weights = { ...kept.weights };
    keep();
    drawParts();
    said("saved: every search of this index that gives no weights has these now");
  }

  function drawHandles() {
    /** @type {Map<string, number>} */
    const sizes = new Map();
    for (const hit of found?.hits.slice(0, SHOWN) ?? []) {
      for (const row of hit.rows.filter(isWeighable)) sizes.set(row.handle, (sizes.get(row.handle) ?? 0) + Math.abs(row.contribution));
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
    const example = el("button", { type: "button", click: () => { ask_for(info.example); run(0); } }, info.example);
    const scale = Math.max(0, ...shown.flatMap((/** @type {any} */ one) => one.hit.words.map((/** @type {any} */ word) => Math.abs(word.contribution))));
    hits.replaceChildren(
      found ? el("h2", {}, `The best ${shown.length} of ${found.documents.toLocaleString("en")} documents`) : el("p", {}, "Ask the index something, such as ", example),
      ...(found?.unknown.length ? [el("p", { class: "note" }, `in no document: ${found.unknown.join(", ")}`)] : []),
      ...shown.map((/** @type {any} */ one, /** @type {number} */ place) => drawnHit(one, place, scale)));
    weighing.hidden = keeper.hidden = !found;
    const now = settings();
    code.textContent = asCode(query, now);
    elsewhere.replaceChildren(...ofModels(now.others, info.models, page.models));
  }

  const box = /** @type {HTMLInputElement} */ (el("input", { type: "search", "aria-label": "Question", placeholder: "Ask the index" }));
  box.value = query;
  box.addEventListener("input", () => { ask_for(box.value); run(); });
  const reset = el("button", { type: "button", click: () => { weights = { ...info.weights }; factors = { ...info["word weights"] }; keep(); run(0); drawParts(); } }, "Reset the sliders");
  const parts = el("div", { class: "sliders" });
  function drawParts() {
    parts.replaceChildren(...Object.keys(info.weights).map((name) => slider(name, weights[name] ?? 0, 1, (value) => {
      weights = { ...weights, [name]: value };
      keep();
      run(80);
    })));
  }
  drawParts();
  const weighing = el("details", { open: innerWidth > 640 }, el("summary", {}, "Weigh the parts of the score, and its words or dimensions"),
    el("h2", {}, "Parts"), parts, el("h2", {}, "Words and dimensions"), handles, reset);
  const keeper = keeping({ summary: "Keep these weights, or use them in Python", code, saves: page.server.saves, button: "Save as settings of the index", save });
  keeper.append(elsewhere);
  main.append(
    el("form", { class: "line", role: "search", submit: (event) => { event.preventDefault(); run(0); } }, box, el("button", {}, "Search")),
    el("p", { class: "note" }, `${info.documents.toLocaleString("en")} documents`),
    weighing, hits, keeper);
  drawHits();
  run(0);
}

/** Whether a row stands for something of the texts; what all texts have in common and what is left can be weighed by nobody. */
function isWeighable(/** @type {any} */ row) {
  return row.kind !== "shared part" && row.kind !== "remainder";
}

/** Return the score of a hit with some reasons weighed anew: an exact sum, since rows add up to the score. */
function weighed(/** @type {any} */ hit, /** @type {Record<string, number>} */ factors) {
  return hit.rows.reduce((/** @type {number} */ sum, /** @type {any} */ row) => sum + ((factors[row.handle] ?? 1) - 1) * row.contribution, hit.score);
}

/** Return a hit at its place; `scale` is the contribution of the strongest word of all hits. */
function drawnHit(/** @type {any} */ { hit, rank, score }, /** @type {number} */ place, /** @type {number} */ scale) {
  const moved = rank - place;
  const marks = hit.words.map((/** @type {any} */ word) => ({ start: word.start, end: word.end, value: word.contribution }));
  const parts = Object.entries(hit.parts).map(([name, value]) => `${name} ${signed(/** @type {number} */ (value), 3)}`).join("  ");
  const facts = Object.entries(hit.metadata).map(([name, value]) => `${name}: ${value}`).join("  ");
  return el("article", { class: "hit" },
    el("h3", {}, el("span", { class: "number" }, score.toFixed(4)), el("span", {}, hit.title || hit.id),
      el("span", { class: "moved" }, moved === 0 ? "" : moved > 0 ? `up ${moved}` : `down ${-moved}`)),
    el("p", { class: "parts" }, [`id ${hit.id}`, parts, facts].filter(Boolean).join("  ·  ")),
    markedText(hit.indexed, marks, { scale }),
    el("p", { class: "note" }, hit.rows.slice(0, 4).map((/** @type {any} */ row) => `${row.name} ${signed(row.contribution, 3)}`).join(", ")));
}

function same(/** @type {Record<string, number>} */ a, /** @type {Record<string, number>} */ b) {
  return JSON.stringify(a) === JSON.stringify(b);
}

/** Return Python that searches with these settings. */
function asCode(/** @type {string} */ query, /** @type {Settings} */ { weights, words, others }) {
  const settings = `weights=${JSON.stringify(weights)}, word_weights=${JSON.stringify(words)}`;
  const lines = ["import pellucid", "", 'index = pellucid.Index.open("my-index")', `hits = index.search(${JSON.stringify(query)}, ${settings})`,
    "", "# keeps them for every search:", `index.configure(${settings})`];
  if (Object.keys(others).length) lines.push("", `# dimensions, on this page alone: ${JSON.stringify(others)}`);
  return lines.join("\n");
}

/** Return where dimensions can be weighed for good: in the models of the index, by way of a new model. */
function ofModels(/** @type {Record<string, number>} */ factors, /** @type {Record<string, string>} */ sources, /** @type {import("./explorer.js").Model[]} */ served) {
  return Object.entries(sources).flatMap(([part, source]) => {
    const own = Object.entries(factors).filter(([name]) => name.startsWith(`${part}: `));
    if (!own.length) return [];
    if (!served.some((model) => model.name === source)) return [`To weigh dimensions of ${part} for good, serve its model ${source} too. `];
    const scale = Object.fromEntries(own.map(([name, factor]) => [name.slice(part.length + 2), Number(Math.sqrt(factor).toFixed(2))]));
    return [el("a", { href: `#read?${new URLSearchParams({ model: source, s: JSON.stringify(scale) })}` }, `Weigh the dimensions in a new model of ${source}`), " "];
  });
}
