// @ts-check
/** Elements, requests, and the pieces that several views are made of. Text only ever becomes text, never markup. */

/**
 * @typedef {{name: string, contribution: number, parts: string[], spans1: number[][], spans2: number[][], spans3: number[][]}} Row
 * @typedef {{name: string, contribution: number, kind: string, spans1: number[][], spans2: number[][], spans3: number[][]}} Group
 * @typedef {{name: string, contribution: number, kind: string, query_spans: number[][], title_spans: number[][], text_spans: number[][]}} HitGroup
 * @typedef {{start: number, end: number, value: number, colour?: number, name?: string}} Mark
 * @typedef {"spans1" | "spans2" | "spans3"} Side
 */

const COLOURS = 6; // of phrases, in style.css

/**
 * Return an element with attributes and children; a function is a listener.
 * @param {string} tag
 * @param {Record<string, string | number | boolean | EventListener>} attributes
 * @param {(Node | string)[]} children
 * @returns {HTMLElement}
 */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== false) made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children);
  return made;
}

/**
 * Return numbers or conditions by names that people chose; no name is inherited, as "constructor" is by other objects.
 * @template T
 * @param {Record<string, T>} values
 * @returns {Record<string, T>}
 */
export function byName(values) {
  return Object.assign(Object.create(null), values);
}

/** The server wants a token, and none was given. */
export class NoTokenError extends Error {}

/**
 * Ask the server; a body makes it a POST.
 * @param {string} path
 * @param {object} [body]
 * @returns {Promise<any>}
 */
export async function ask(path, body) {
  /** @type {Record<string, string>} */
  const headers = { "content-type": "application/json" };
  const token = sessionStorage.getItem("token");
  if (token) headers.authorization = `Bearer ${token}`;
  const answer = await fetch(path, body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers });
  if (answer.status === 401) {
    const isOutdated = token !== sessionStorage.getItem("token"); // another request has asked meanwhile
    const typed = isOutdated || prompt(token ? "The token is wrong. Which is it?" : "This server asks for its token.");
    if (!typed) throw new NoTokenError("This server answers only with its token. Whoever started it has it, in PELLUCID_TOKEN.");
    if (typed !== true) sessionStorage.setItem("token", typed);
    return ask(path, body);
  }
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error?.message ?? value.error ?? answer.statusText);
  return value;
}

/** Say something below the view, to screen readers too. */
export function said(/** @type {string} */ text) {
  const place = /** @type {HTMLElement} */ (document.getElementById("said"));
  place.textContent = text;
}

/** Return a number with its sign. */
export function signed(/** @type {number} */ value, digits = 4) {
  return `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`;
}

/**
 * Call `work` when nothing was typed for a moment; an answer that a later one has overtaken is dropped.
 * @template T
 * @param {() => Promise<T>} work
 * @param {(found: T) => void} show
 * @param {(error: Error) => void} fail
 */
export function soon(work, show, fail) {
  let timer = 0;
  let number = 0;
  return (wait = 300) => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const own = ++number;
      try {
        const found = await work();
        if (own === number) show(found);
      } catch (error) {
        if (own === number) fail(/** @type {Error} */ (error));
      }
    }, wait);
  };
}

/**
 * Return a text whose words are tinted by what they add. Spans count characters as Python does, by code points.
 * @param {string} text
 * @param {Mark[]} marks
 * @param {{unknown?: number[][], scale?: number, hover?: (mark: Mark | null) => void}} [options]
 */
export function markedText(text, marks, { unknown = [], scale = 0, hover } = {}) {
  const characters = Array.from(text);
  const most = scale || Math.max(1e-9, ...marks.map((mark) => Math.abs(mark.value)));
  const all = [...marks, ...unknown.map(([start, end]) => ({ start, end, value: NaN }))].sort((a, b) => a.start - b.start);
  const box = el("div", { class: "marked", dir: "auto" });
  let at = 0;
  for (const mark of all) {
    if (mark.start < at) continue;
    box.append(characters.slice(at, mark.start).join(""));
    const word = characters.slice(mark.start, mark.end).join("");
    box.append(Number.isNaN(mark.value) ? el("span", { class: "unknown", title: "not in the vocabulary" }, word) : tinted(word, mark, most, hover));
    at = mark.end;
  }
  box.append(characters.slice(at).join(""));
  return box;
}

/**
 * Return a word with its tint; a button where something happens on it.
 * @param {string} word
 * @param {Mark} mark
 * @param {number} most
 * @param {((mark: Mark | null) => void) | undefined} hover
 */
function tinted(word, mark, most, hover) {
  const strength = Math.abs(mark.value) / most;
  const sign = strength < 0.05 ? "" : mark.value < 0 ? "minus" : "plus";
  const kind = mark.colour === undefined ? sign : `phrase colour-${mark.colour} ${mark.value < 0 ? "lowers" : ""}`;
  const made = el(hover ? "button" : "mark", { class: `word ${kind}`, title: `${mark.name ?? ""} ${signed(mark.value)}`.trim() }, word);
  made.style.setProperty("--tint", String(0.62 * Math.min(1, strength)));
  made.dataset.span = `${mark.start}-${mark.end}`;
  if (hover) {
    made.setAttribute("type", "button");
    for (const begin of ["mouseenter", "focus"]) made.addEventListener(begin, () => hover(mark));
    for (const end of ["mouseleave", "blur"]) made.addEventListener(end, () => hover(null));
  }
  return made;
}

/**
 * Return what each stretch of a text adds, from the rows: a row's share goes to its spans in equal parts.
 * @param {Row[]} rows
 * @param {"spans1" | "spans2" | "spans3"} side
 * @returns {Mark[]}
 */
export function marksOf(rows, side) {
  /** @type {Map<string, Mark>} */
  const found = new Map();
  for (const row of rows) {
    for (const [start, end] of row[side]) {
      const mark = found.get(`${start}-${end}`) ?? { start, end, value: 0 };
      mark.value += row.contribution / row[side].length;
      found.set(`${start}-${end}`, mark);
    }
  }
  return [...found.values()];
}

/**
 * Return the phrases of one text, each in the colour of the line to which it gives most.
 * @param {any[]} groups
 * @param {Side | "title_spans" | "text_spans"} side
 * @param {(group: any, number: number) => number} [colourOf]
 * @returns {Mark[]}
 */
export function phrasesOf(groups, side, colourOf = (_, number) => number % COLOURS) {
  /** @type {Map<string, {mark: Mark, weight: number}>} */
  const found = new Map();
  groups.filter(isPhrase).forEach((group, number) => group[side].forEach((/** @type {number[]} */ [start, end], /** @type {number} */ rank) => {
    const weight = Math.abs(group.contribution) / 2 ** rank; // a line names the phrase first that gives it most
    const mark = { start, end, value: group.contribution, colour: colourOf(group, number), name: group.name };
    if (weight > (found.get(`${start}-${end}`)?.weight ?? -1)) found.set(`${start}-${end}`, { mark, weight });
  }));
  return [...found.values()].map(({ mark }) => mark);
}

/** Return a function that gives the lines of one phrase of the question the same colour in every hit. */
export function colours() {
  /** @type {Map<number, number>} */
  const given = new Map();
  return (/** @type {HitGroup} */ group) => {
    const start = group.query_spans[0]?.[0] ?? -1;
    if (!given.has(start)) given.set(start, given.size % COLOURS);
    return /** @type {number} */ (given.get(start));
  };
}

/** Whether a line of an explanation is of a phrase, or of a sentence. */
export function isPhrase(/** @type {Group} */ group) {
  return group.kind === "phrase" || group.kind === "sentence";
}

/**
 * Return the lines of an explanation as a table; a dot has the colour that a line's phrases have in the texts.
 * @param {Group[]} groups
 * @param {{score: number, caption: string, hover?: (group: any) => void}} options
 */
export function groupTable(groups, options) {
  const phrases = groups.filter(isPhrase);
  const dotOf = (/** @type {any} */ group) => isPhrase(group) ? [el("span", { class: `dot colour-${phrases.indexOf(group) % COLOURS}`, "aria-hidden": "true" }), " "] : [];
  return rowTable(/** @type {any[]} */ (groups), { ...options, before: dotOf });
}

/**
 * Join the phrases of each line by curves, from text 1 to the others, behind whatever is pointed at.
 * @param {HTMLElement} box what holds the texts
 * @param {HTMLElement[]} texts
 * @param {Group[]} groups
 */
export function joinPhrases(box, texts, groups) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "joints");
  svg.setAttribute("aria-hidden", "true");
  const most = Math.max(1e-9, ...groups.map((group) => Math.abs(group.contribution)));
  const draw = () => {
    const at = box.getBoundingClientRect();
    svg.replaceChildren();
    groups.filter(isPhrase).forEach((group, number) => {
      const [first, ...others] = [group.spans1, group.spans2, group.spans3].slice(0, texts.length).map((spans, text) =>
        spans.map((span) => texts[text].querySelector(`[data-span="${span.join("-")}"]`)?.getClientRects()).filter((rects) => rects?.length && isInside(rects[0], texts[text].getBoundingClientRect())));
      for (const from of first) for (const to of others.flat()) {
        const [start, end] = [/** @type {DOMRectList} */ (from)[/** @type {DOMRectList} */ (from).length - 1], /** @type {DOMRectList} */ (to)[0]];
        const [x1, y1, x2, y2] = [start.left + start.width / 2 - at.left, start.bottom - at.top, end.left + end.width / 2 - at.left, end.top - at.top];
        const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
        line.setAttribute("d", `M${x1},${y1} C${x1},${(y1 + y2) / 2} ${x2},${(y1 + y2) / 2} ${x2},${y2}`);
        line.setAttribute("class", `colour-${number % COLOURS}${group.contribution < 0 ? " lowers" : ""}`);
        line.setAttribute("stroke-width", String(1 + 2 * Math.abs(group.contribution) / most));
        svg.append(line);
      }
    });
  };
  for (const text of texts) text.addEventListener("scroll", draw);
  box.append(svg);
  new ResizeObserver(draw).observe(box);
}

/** Whether a word is in sight in a text that scrolls. */
function isInside(/** @type {DOMRect} */ word, /** @type {DOMRect} */ text) {
  return word.bottom > text.top && word.top < text.bottom;
}

/**
 * Return rows as a table with bars; what is left out is summed up, so that the column adds up to the score.
 * @param {Row[]} rows
 * @param {{score: number, total?: string, remainder?: number | null, caption: string, top?: number, hover?: (row: Row | null) => void, before?: (row: Row) => (Node | string)[]}} options
 *   remainder: null where the rows are all of the score; total: what the sum is called
 */
export function rowTable(rows, { score, total = "score", remainder = null, caption, top = 12, hover, before = () => [] }) {
  const most = Math.max(1e-9, Math.abs(remainder ?? 0), ...rows.map((row) => Math.abs(row.contribution)));
  const least = (remainder ?? 0) < 0 || rows.slice(0, top).some((row) => row.contribution < 0) ? -1 : 0; // bars have no left half in vain
  const lineOf = (/** @type {Row} */ row) => {
    const line = el("tr", {}, el("td", { class: "number" }, signed(row.contribution)), el("td", { class: "bar" }, bar(row.contribution / most, least)), el("td", {}, ...before(row), ...nameOf(row.name)));
    if (hover) {
      line.addEventListener("mouseenter", () => hover(row));
      line.addEventListener("mouseleave", () => hover(null));
    }
    return line;
  };
  const lines = rows.slice(0, top).map(lineOf);
  const rest = score - (remainder ?? 0) - rows.slice(0, top).reduce((sum, row) => sum + row.contribution, 0);
  if (rows.length > top) {
    const all = el("button", { type: "button", class: "link", click: () => more.replaceWith(...rows.slice(top).map(lineOf)) }, "show them");
    const more = el("tr", {}, el("td", { class: "number" }, signed(rest)), el("td", { class: "bar" }), el("td", { class: "note" }, `${(rows.length - top).toLocaleString("en")} more rows together `, all));
    lines.push(more);
  }
  if (remainder !== null) lines.push(el("tr", {}, el("td", { class: "number" }, signed(remainder)), el("td", { class: "bar" }, bar(remainder / most, least)), el("td", { class: "note" }, "remainder: what the rows do not carry")));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, el("table", {},
    el("caption", {}, caption),
    el("thead", {}, el("tr", {}, el("th", { scope: "col", class: "number" }, "adds"), el("th", { scope: "col", class: "bar" }, "size"), el("th", { scope: "col" }, "reason"))),
    el("tbody", {}, ...lines),
    el("tfoot", {}, el("tr", {}, el("td", { class: "number" }, signed(score)), el("td", { class: "bar" }), el("td", {}, total)))));
}

/** Return a bar, to the right for what adds and, from the middle then, to the left for what lowers. */
function bar(/** @type {number} */ length, /** @type {-1 | 0} */ least) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `${least} 0 ${1 - least} 1`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  const box = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  box.setAttribute("x", String(Math.min(0, length)));
  box.setAttribute("width", String(Math.abs(length)));
  box.setAttribute("height", "1");
  box.setAttribute("class", length < 0 ? "minus" : "plus");
  svg.append(box);
  return svg;
}

/** Return a sentence in which quoted texts of another direction do not reorder the words around them. */
export function sentence(/** @type {string} */ text) {
  return text.split(/("[^"]*")/).map((piece, number) => number % 2 ? el("bdi", {}, piece) : piece);
}

/** Return a name of phrases and of what stands between them, which keeps its order whatever their direction is. */
function nameOf(/** @type {string} */ name) {
  return name.split(/( → | × |, rather than )/).map((piece, number) => number % 2 ? piece : el("bdi", {}, piece));
}

/** Return a field with its label. */
export function field(/** @type {string} */ label, /** @type {HTMLElement} */ input) {
  return el("label", {}, el("span", {}, label), input);
}

/** Return a text field that calls `typed` with each new value. */
export function textField(/** @type {string} */ value, /** @type {(value: string) => void} */ typed, most = 10_000) {
  const area = /** @type {HTMLTextAreaElement} */ (el("textarea", { maxlength: most }));
  area.value = value;
  area.addEventListener("input", () => typed(area.value));
  return area;
}

/** Return a labelled slider from 0 to `most` and its value as text. */
export function slider(/** @type {string} */ name, /** @type {number} */ value, /** @type {number} */ most, /** @type {(value: number) => void} */ moved) {
  const shown = el("output", {}, value.toFixed(2));
  const input = /** @type {HTMLInputElement} */ (el("input", { type: "range", min: "0", max: String(most), step: "0.05", value: String(value), "aria-label": name }));
  input.addEventListener("input", () => { shown.textContent = Number(input.value).toFixed(2); moved(Number(input.value)); });
  return el("label", {}, el("bdi", { title: name }, name), shown, input);
}
