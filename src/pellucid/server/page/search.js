// @ts-check
/** An index: hits with reasons, facets to narrow them; sliders weigh its parts, and words or dimensions, anew. */

import { explanation } from "./compare.js";
import { ask, byName, colours, el, field, markedText, phrasesOf, sentence, signed, slider, soon } from "./dom.js";

const FOUND = 50; // hits that are fetched: those that sliders put in a new order
const PAGE = 10; // hits shown at once
const SNIPPET = 320; // characters of a passage around what matches
const LINES = 3; // phrases of the question whose colours mark a hit
const HANDLES = 12; // words or dimensions with a slider
const NEIGHBOURS = 5;
const ASKED = 1000; // characters of a passage that its neighbours are searched by

/**
 * What weighs a score: its parts, and the words and dimensions of its reasons.
 * @typedef {{weights: Record<string, number>, words: Record<string, number>, others: Record<string, number>}} Settings
 */

/** @type {import("./explorer.js").View} */
export async function search(main, page) {
  if (page.index === null) {
    main.append(el("p", {}, "There is no index to search here. Make one of your texts, and start the server with it:"),
      el("pre", { tabindex: "0" }, "pellucid index build my-index articles.jsonl\npellucid serve --index my-index"));
    return;
  }
  const of_index = { index: page.index };
  const info = await ask(`index?${new URLSearchParams({ index: page.index })}`);
  let shown = PAGE;
  let query = page.state.q ?? "";
  /** @type {Record<string, number>} */
  let weights = byName(page.state.w ? JSON.parse(page.state.w) : info.weights);
  /** @type {Record<string, number>} */
  let factors = byName(page.state.f ? JSON.parse(page.state.f) : info["word weights"]);
  /** @type {any} */
  let found = null;
  const where = byName(page.state.m ? JSON.parse(page.state.m) : {});
  let leastProbability = Number(page.state.p ?? 0);
  const stopWords = new Set(info["stop words"]);
  const grades = info.grades && byName(info.grades); // by question and document, where the server takes judgements

  const hits = el("div", { "aria-live": "polite" });
  const handles = el("div", { class: "sliders" });
  const code = el("pre", { tabindex: "0" });
  const run = soon(
    async () => {
      hits.setAttribute("aria-busy", String(Boolean(query)));
      if (query && !found) hits.replaceChildren(el("p", { class: "note" }, "Searching"));
      return query ? ask("search", asked(0)) : null;
    },
    (answer) => { found = answer; shown = PAGE; page.result(answer); hits.removeAttribute("aria-busy"); drawHandles(); drawHits(); },
    (error) => { hits.removeAttribute("aria-busy"); hits.replaceChildren(el("p", { class: "error" }, error.message)); },
  );
  const asked = (/** @type {number} */ offset) => ({ query, offset, top_k: FOUND, weights, word_weights: {}, rows: 400, ...of_index, ...(Object.keys(where).length && { where }), ...(leastProbability && same(weights, info.weights) && { min_probability: leastProbability }) });
  /** Show more hits, of those that were fetched or of the next. */
  async function more() {
    shown += PAGE;
    if (shown > found.hits.length && found.hits.length % FOUND === 0) {
      const next = await ask("search", asked(found.hits.length));
      found.hits.push(...next.hits);
    }
    drawHits();
  }
  const keep = () => page.set({ q: query, p: leastProbability ? String(leastProbability) : "", m: Object.keys(where).length ? JSON.stringify(where) : "", w: same(weights, info.weights) ? "" : JSON.stringify(weights), f: same(factors, info["word weights"]) ? "" : JSON.stringify(factors) });
  const ask_for = (/** @type {string} */ text) => { query = box.value = text; factors = byName(info["word weights"]); keep(); };

  /** Return the weights as they are now; words are those that stand in a question, the rest are dimensions. */
  function settings() {
    const known = new Set(Object.keys(info["word weights"]));
    for (const hit of found?.hits ?? []) for (const row of hit.rows) if (row.kind.startsWith("word")) known.add(row.handle);
    const some = (/** @type {boolean} */ isWord) => Object.fromEntries(Object.entries(factors).filter(([name]) => known.has(name) === isWord));
    return { weights, words: some(true), others: some(false) };
  }

  function drawHandles() {
    /** @type {Map<string, number>} */
    const sizes = new Map();
    for (const hit of found?.hits.slice(0, PAGE) ?? []) {
      for (const row of hit.rows.filter((/** @type {any} */ row) => isWeighable(row) && !stopWords.has(row.handle.toLowerCase()))) sizes.set(row.handle, (sizes.get(row.handle) ?? 0) + Math.abs(row.contribution));
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
    const drawn = scored.slice(0, shown);
    const best = Math.max(1e-9, ...drawn.map((/** @type {any} */ one) => one.score));
    const scale = Math.max(0, ...drawn.flatMap((/** @type {any} */ one) => [...one.hit.marks.title, ...one.hit.marks.text].map((mark) => mark.contribution)));
    const colourOf = same(factors, info["word weights"]) ? colours() : null;
    hits.replaceChildren(
      ...(found ? heading(drawn.length) : examples()),
      ...drawn.map((/** @type {any} */ one, /** @type {number} */ place) => drawnHit(one, place, { scale, best, colourOf }, opened(drawn, place), grades && judging(one.hit.id))),
      ...(found && (scored.length > shown || (scored.length && scored.length % FOUND === 0)) ? [el("button", { type: "button", class: "more", click: more }, `Show ${PAGE} more`)] : []));
    weighing.hidden = keeper.hidden = missing.hidden = !found;
    code.textContent = asCode(query, settings());
  }

  function heading(/** @type {number} */ shown) {
    const filters = Object.keys(where).length + Number(leastProbability > 0);
    const clear = el("button", { type: "button", click: () => { for (const name of Object.keys(where)) delete where[name]; leastProbability = 0; keep(); drawFilters(); run(0); } }, "Clear the filters");
    const title = shown ? `Best ${shown} ${filters ? "that meet the filters, " : ""}of ${found.documents.toLocaleString("en")} documents` : "Nothing found";
    return [el("h2", {}, title),
      ...named(weights.bm25 ? "Not found in any document" : "Unknown to the model", found.unknown),
      ...found.suggestions.map((/** @type {any} */ one) => el("p", { class: "note" }, "Did you mean ",
        el("button", { type: "button", click: () => { ask_for(query.replaceAll(one.word, one.instead)); run(0); } }, one.instead), ` (${one.documents.toLocaleString("en")} documents)?`)),
      ...named("Not searched (stop words and signs)", found.ignored),
      ...(shown ? [] : [el("p", { class: "empty" }, nothing(filters > 0), ...(filters && found.has_known_words ? [clear] : []))])];
  }

  /** Return why there are no hits. */
  function nothing(/** @type {boolean} */ isFiltered) {
    if (!found.has_known_words) return found.unknown.length ? "No word of this question is known." : "This question has no words to search for.";
    return isFiltered ? "No document meets the filters. " : "No document has anything in common with this question. ";
  }

  function examples() {
    const chips = info.examples.map((/** @type {string} */ text) => el("button", { type: "button", click: () => { ask_for(text); run(0); } }, text));
    return info.documents
      ? [el("p", { class: "note" }, "Ask something, or what one of the documents is about:"), el("div", { class: "chips" }, ...chips)]
      : [el("p", { class: "empty" }, "The index is empty. Add documents with: pellucid index add")];
  }

  /** Return what a hit shows when it is opened; asked of the server then. */
  function opened(/** @type {any[]} */ shown, /** @type {number} */ place) {
    const { hit } = shown[place];
    const asked = { query, id: hit.id, weights, word_weights: settings().words, ...of_index };
    const check = async () => (await ask("why", { ...asked, check: true })).summary;
    const own = Object.keys(settings().others).length ? " Sliders of dimensions are not in these numbers." : "";
    const table = (/** @type {string} */ caption) => async (/** @type {object} */ more) => {
      const found = await ask("why", { ...asked, ...more });
      const labels = found.text3 ? ["Question", "This document", "The other document"] : ["Question", "Document"];
      return [el("p", { class: "lead" }, ...sentence(found.summary)), ...explanation(found, caption + own, labels)];
    };
    const above = shown[place + 1]?.hit;
    const openings = [
      ["Every reason", () => table("What the score is made of.")({})],
      ["Measure", () => table("Measured: the encoders of the index read question and document again without some of their words.")({ measure: true })],
      ...(above ? [[`Why ${place + 1} above ${place + 2}`, () => table(`What puts it above “${above.title || above.id}”.`)({ below: above.id })]] : []),
      ["Nearest documents", async () => {
        const near = await ask("search", { query: `${hit.title}\n\n${hit.text}`.slice(0, ASKED), top_k: NEIGHBOURS + 1, ...of_index });
        return [el("p", { class: "note" }, "What a search for the beginning of this passage finds."),
          el("ol", {}, ...near.hits.filter((/** @type {any} */ one) => one.id !== hit.id).slice(0, NEIGHBOURS).map((/** @type {any} */ one) =>
            el("li", {}, one.title || one.text.slice(0, 160), " ", el("span", { class: "note" }, one.score.toFixed(2)))))];
      }],
    ];
    return { openings, check };
  }

  /** Return buttons that say whether a document answers the question; a second click takes it back. */
  function judging(/** @type {string} */ id) {
    const judged_query = found.query; // not what is being typed
    const of_query = grades[judged_query] ??= byName({});
    const said = el("span", { class: "note", role: "status" });
    /** @type {[string, number][]} */
    const choices = [["relevant", 1], ["not relevant", 0]];
    const buttons = choices.map(([name, grade]) => el("button", { type: "button", class: "link", "aria-pressed": "false", click: async () => {
      const judged = of_query[id] === grade ? null : grade;
      try {
        await ask("judge", { query: judged_query, id, grade: judged, ...of_index });
        if (judged === null) delete of_query[id];
        else of_query[id] = judged;
        said.textContent = "";
      } catch (error) { said.textContent = /** @type {Error} */ (error).message; }
      mark();
    } }, name));
    const mark = () => buttons.forEach((button, number) => button.setAttribute("aria-pressed", String((of_query[id] >= 1 ? 1 : of_query[id]) === choices[number][1])));
    mark();
    return el("span", { class: "judging", role: "group", "aria-label": "Does this document answer the question?" }, ...buttons, said);
  }

  const filters = el("div", { class: "filters" });
  function drawFilters() {
    const least = slider("probability, from", leastProbability, 0.95, (value) => { leastProbability = value; keep(); run(80); });
    filters.replaceChildren(...(info.calibrated ? [el("div", { class: "sliders" }, least)] : []),
      ...Object.entries(info.fields).map(([name, kind]) => filterOf(name, String(kind), info, where, () => { keep(); run(); })));
    filtering.hidden = !info.calibrated && !Object.keys(info.fields).length;
    layout.classList.toggle("has-side", !filtering.hidden);
  }

  const box = /** @type {HTMLInputElement} */ (el("input", { type: "search", "aria-label": "Question", placeholder: `Search ${page.index ?? "the index"} ( / )` }));
  box.value = query;
  box.addEventListener("input", () => { ask_for(box.value); run(); });
  const reset = el("button", { type: "button", click: () => { weights = byName(info.weights); factors = byName(info["word weights"]); keep(); run(0); drawParts(); } }, "Reset the sliders");
  const parts = el("div", { class: "sliders" });
  function drawParts() {
    parts.replaceChildren(...Object.keys(info.weights).map((name) => slider(name, weights[name] ?? 0, 1, (value) => {
      weights = byName({ ...weights, [name]: value });
      keep();
      run(80);
    })));
  }
  drawParts();
  const filtering = el("details", { class: "side", open: Boolean(page.state.m || page.state.p) || matchMedia("(min-width: 60rem)").matches }, el("summary", {}, "Filters"), filters);
  const layout = el("div", { class: "layout" });
  const weighing = el("details", { open: Boolean(page.state.w || page.state.f) }, el("summary", {}, "Adjust weights"),
    el("h2", {}, "Parts"), parts, el("h2", {}, "Words and dimensions"), handles, reset);
  const keeper = el("details", { class: "keep" }, el("summary", {}, "Use these weights in Python"), code);
  const idBox = /** @type {HTMLInputElement} */ (el("input", { "aria-label": "Id of a document", placeholder: "id of a document", required: true }));
  const answer = el("div", { "aria-live": "polite" });
  const askWhyNot = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const { rows, ...options } = asked(0);
    try { answer.replaceChildren(...whyNot(await ask("why_not", { ...options, top_k: PAGE, word_weights: settings().words, id: idBox.value }))); } catch (error) { answer.replaceChildren(el("p", { class: "error", role: "alert" }, /** @type {Error} */ (error).message)); }
  };
  const missing = el("details", { class: "missing" }, el("summary", {}, "Why is a document not here?"), el("form", { class: "line", submit: askWhyNot }, idBox, el("button", {}, "Ask")), answer);
  main.append(
    el("form", { class: "line", role: "search", submit: (event) => { event.preventDefault(); run(0); } }, box, el("button", {}, "Search")),
    el("p", { class: "note" }, `${page.index}: ${info.documents.toLocaleString("en")} ${info.documents === 1 ? "document" : "documents"}`),
    layout);
  layout.append(filtering, el("div", {}, hits, missing, weighing, keeper));
  drawFilters();
  if (!query) drawHits();
  else weighing.hidden = keeper.hidden = missing.hidden = true;
  box.focus({ preventScroll: true });
  run(0);
}

/** Return a line that names some words of the question, if there are any. */
function named(/** @type {string} */ what, /** @type {string[]} */ words) {
  return words.length ? [el("p", { class: "note" }, `${what}: ${words.join(", ")}`)] : [];
}

/** Return why a document is not found: rank and gap, and causes with the changes that were tried. */
function whyNot(/** @type {any} */ found) {
  const rank = (/** @type {any} */ cause) => cause.rank ? `; rank ${cause.rank.toLocaleString("en")} then` : "";
  const isAbsent = found.causes.some((/** @type {any} */ cause) => cause.kind === "absent");
  const unranked = isAbsent ? "It is not in the index" : "It has no rank: it shares nothing with the question";
  const standing = found.rank ? `Rank ${found.rank.toLocaleString("en")}, score ${found.score.toFixed(4)}` : unranked;
  const last = found.last_score === null ? "" : `; the last hit has ${found.last_score.toFixed(4)}`;
  const isFound = [found, ...found.causes].some((/** @type {any} */ one) => one.rank && one.rank <= found.n_first);
  return [el("p", { class: "lead" }, `${standing}${last}.`),
    ...(isFound ? [] : [el("p", { class: "note" }, `No change that was tried brings it into the first ${found.n_first}.`)]),
    el("ul", {}, ...found.causes.map((/** @type {any} */ cause) => el("li", {}, `${cause.text}: `, el("code", {}, cause.change), rank(cause))))];
}

/** Whether a row is about something in the texts: what all texts have in common and the remainder have no weight. */
function isWeighable(/** @type {any} */ row) {
  return !["shared part", "context", "remainder"].includes(row.kind);
}

/** Return the score of a hit with some reasons weighed anew: an exact sum, since rows add up to the score. */
function weighed(/** @type {any} */ hit, /** @type {Record<string, number>} */ factors) {
  return hit.rows.reduce((/** @type {number} */ sum, /** @type {any} */ row) => sum + ((factors[row.handle] ?? 1) - 1) * row.contribution, hit.score);
}

/**
 * Return a field of the metadata that narrows the search: a choice of values, a text, or a range.
 * @param {string} name
 * @param {string} kind
 * @param {any} info
 * @param {Record<string, any>} where
 * @param {() => void} changed
 */
function filterOf(name, kind, info, where, changed) {
  const put = (/** @type {any} */ condition) => {
    if (condition === null) delete where[name];
    else where[name] = condition;
    changed();
  };
  if (kind === "number" || kind === "date") {
    const ends = ["gte", "lte"].map((end) => {
      const input = /** @type {HTMLInputElement} */ (el("input", { type: kind, step: "any", "aria-label": `${name}, ${end === "gte" ? "from" : "to"}`, placeholder: end === "gte" ? "from" : "to" }));
      input.value = String(where[name]?.[end] ?? "");
      return { end, input };
    });
    const read = () => Object.fromEntries(ends.filter(({ input }) => input.value).map(({ end, input }) => [end, kind === "number" ? Number(input.value) : input.value]));
    for (const { input } of ends) input.addEventListener("input", () => put(Object.keys(read()).length ? read() : null));
    return el("div", { role: "group", "aria-label": name }, el("span", { class: "note" }, name), el("div", { class: "ends" }, ...ends.map(({ input }) => input)));
  }
  const values = byName(info.values)[name] ?? [];
  if (byName(info["all values"])[name] && values.length) {
    const chosen = new Set([where[name] ?? []].flat());
    const boxes = values.map((/** @type {{value: any, documents: number}} */ { value, documents }) => {
      const box = /** @type {HTMLInputElement} */ (el("input", { type: "checkbox" }));
      box.checked = chosen.has(value);
      box.addEventListener("change", () => { if (box.checked) chosen.add(value); else chosen.delete(value); put(chosen.size ? [...chosen] : null); });
      return el("label", { class: "facet" }, box, el("bdi", {}, String(value)), el("span", { class: "note" }, documents.toLocaleString("en")));
    });
    return el("fieldset", {}, el("legend", {}, name), ...boxes);
  }
  const offered = el("datalist", { id: `values-${name}` }, ...values.map((/** @type {{value: any}} */ { value }) => el("option", { value: String(value) })));
  const input = /** @type {HTMLInputElement} */ (el("input", { list: `values-${name}`, placeholder: values.length ? `such as ${values[0].value}` : "any" }));
  input.value = String(where[name] ?? "");
  input.addEventListener("input", () => put(input.value || null));
  return el("div", {}, field(name, input), offered);
}

/** @typedef {[string, () => Promise<HTMLElement[]>]} Opening */

/**
 * Return a hit at its place: rank, title and bar of its score; the reason; fields; the passage around what matches.
 * @param {any} one
 * @param {number} place
 * @param {{scale: number, best: number, colourOf: ((group: import("./dom.js").HitGroup) => number) | null}} among the
 *   strongest word and the best score of all hits; colours of phrases, null where a slider has changed what reasons add
 * @param {{openings: any[], check: () => Promise<string>}} asking what can be opened, and what checks the reason
 * @param {HTMLElement | undefined} judging buttons that judge it
 */
function drawnHit({ hit, rank, score }, place, { scale, best, colourOf }, { openings, check }, judging) {
  const moved = rank - place;
  const lines = colourOf ? hit.groups.filter((/** @type {any} */ group) => group.kind === "phrase").slice(0, LINES) : [];
  const painted = (/** @type {"title" | "text"} */ field) => colourOf && lines.length ? phrasesOf(lines, `${field}_spans`, colourOf) : hit.marks[field].map((/** @type {any} */ mark) => ({ ...mark, value: mark.contribution }));
  const title = hit.title ? markedText(hit.title, painted("title"), { scale }) : el("span", { class: "marked", dir: "auto" }, hit.id);
  const parts = Object.entries(hit.parts).map(([name, value]) => `${name} ${signed(/** @type {number} */ (value), 3)}`).join(", ");
  const meter = el("span", { class: "meter", "aria-hidden": "true" }, el("i", {}));
  const scored = el("span", { class: "score-of-hit", title: `score ${score.toFixed(4)} = ${parts}`, "aria-label": `score ${score.toFixed(2)}`, role: "img" }, score.toFixed(2), meter);
  /** @type {HTMLElement} */ (meter.firstChild).style.width = `${Math.max(0, 100 * score / best)}%`;
  const facts = Object.entries(hit.metadata).map(([name, value]) => `${name}: ${[value].flat().join(", ")}`);
  const from = hit.start ? [`passage from character ${hit.start.toLocaleString("en")}`] : [];
  const chance = hit.probability === undefined ? [] : [`answers with a probability of ${hit.probability.toFixed(2)}`];
  const details = [...(hit.title ? [hit.id] : []), ...facts, ...from, ...chance].flatMap((text, number) => [...(number ? [" · "] : []), el("bdi", {}, text)]);
  return el("article", { class: "hit" },
    el("h3", {}, el("span", { class: "rank" }, String(place + 1)), title,
      el("span", { class: "moved" }, moved === 0 ? "" : moved > 0 ? `up ${moved}` : `down ${-moved}`), scored),
    ...(colourOf ? [reasonOf(hit.summary, check)] : [el("p", { class: "parts" }, `score ${score.toFixed(3)}, with the sliders`)]),
    ...passage(hit.text, painted("text"), scale, placeOf(hit.snippet, hit.text)),
    el("p", { class: "parts" }, ...details, ...(judging ? [" ", judging] : [])), openable(openings));
}

/** Return the reason of a hit, which a button checks: what the document scores without the words of each part of it. */
function reasonOf(/** @type {string} */ summary, /** @type {() => Promise<string>} */ check) {
  const said = (/** @type {string} */ text) => sentence(text.replace(/^Score [\d.-]+: (.)/, (_, first) => first.toUpperCase())); // which stands above
  const button = /** @type {HTMLButtonElement} */ (el("button", { type: "button", class: "link", title: "What does the document score without these words?", click: async () => {
    button.disabled = true;
    try { reason.replaceChildren(...said(await check())); } catch (error) { button.replaceWith(el("span", { class: "error", role: "alert" }, /** @type {Error} */ (error).message)); }
  } }, "check"));
  const reason = el("p", { class: "reasons" }, ...said(summary), " ", button);
  return reason;
}

/** Return where the words of a snippet stand in a text, in code points; 0 where they are of the title. */
function placeOf(/** @type {string} */ snippet, /** @type {string} */ text) {
  const words = snippet.replace(/^… | …$/g, "");
  return Array.from(text.slice(0, Math.max(0, text.indexOf(words)))).length;
}

/** Return a passage, of a long one the part with the words at `main`, and a button for the rest. */
function passage(/** @type {string} */ text, /** @type {import("./dom.js").Mark[]} */ marks, /** @type {number} */ scale, /** @type {number} */ main) {
  const characters = Array.from(text);
  const whole = () => markedText(text, marks, { scale });
  if (characters.length <= SNIPPET * 1.3) return [whole()];
  let start = Math.max(0, Math.min(main - 60, characters.length - SNIPPET));
  while (start > 0 && /\S/.test(characters[start - 1]) && start % 40) start -= 1; // to the beginning of a word
  let end = start + SNIPPET;
  for (let back = 0; back < 40 && end < characters.length && /\S/.test(characters[end]); back += 1) end -= 1; // to the end of a word
  const inside = marks.filter((mark) => mark.start >= start && mark.end <= end).map((mark) => ({ ...mark, start: mark.start - start, end: mark.end - start }));
  const short = markedText(characters.slice(start, end).join(""), inside, { scale });
  if (start) short.prepend("… ");
  if (end < characters.length) short.append(" …");
  const button = el("button", { type: "button", class: "link", "aria-expanded": "false", click: () => {
    const isShort = short.isConnected;
    const long = isShort ? whole() : short;
    (isShort ? short : /** @type {HTMLElement} */ (button.previousElementSibling)).replaceWith(long);
    button.textContent = isShort ? "less" : "whole passage";
    button.setAttribute("aria-expanded", String(isShort));
  } }, "whole passage");
  return [short, button];
}

/** Return buttons that each show something below, one at a time. */
function openable(/** @type {Opening[]} */ openings) {
  const shown = el("div", { "aria-live": "polite" });
  const buttons = openings.map(([name, work]) => {
    const button = el("button", { type: "button", class: "link", "aria-expanded": "false", click: async () => {
      const isOpen = button.getAttribute("aria-expanded") === "true";
      for (const other of buttons) other.setAttribute("aria-expanded", String(other === button && !isOpen));
      shown.replaceChildren(...(isOpen ? [] : [el("p", { class: "note" }, "Asking")]));
      if (isOpen) return;
      const drawn = await work().catch((error) => [el("p", { class: "error", role: "alert" }, error.message)]);
      if (button.getAttribute("aria-expanded") === "true") shown.replaceChildren(...drawn);
    } }, name);
    return button;
  });
  return el("div", {}, el("div", { class: "openings" }, ...buttons), shown);
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
