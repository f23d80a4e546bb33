// @ts-check
/** One text: what it is about for the model, its nearest texts of the index, and the dimensions of the model. */

import { ask, el, field, markedText, marksOf, rowTable, soon, textField } from "./dom.js";

/** @type {import("./explorer.js").View} */
export function read(main, page) {
  let text = page.state.text ?? "The bank raised interest rates on home loans.";
  const result = el("div", { "aria-live": "polite" });
  const explain = soon(
    async () => ({
      explanation: await ask("explain", { text1: text, model: page.model, notes: true }),
      nearest: await ask("search", { query: text, top_k: 5 }).catch(() => null),
    }),
    (found) => { page.result(found); result.replaceChildren(...drawn(found)); },
    (error) => result.replaceChildren(el("p", { class: "error" }, error.message)),
  );
  main.append(field("Text", textField(text, (value) => { text = value; page.set({ text }); explain(); })), result, dimensions(page));
  explain(0);
}

function drawn(/** @type {{explanation: any, nearest: any}} */ { explanation, nearest }) {
  const parts = [
    ...explanation.notes.map((/** @type {any} */ note) => el("p", { class: note.is_warning ? "warning" : "note" }, note.text)),
    markedText(explanation.text1, marksOf(explanation.rows, "spans1"), { unknown: explanation.unknown1 }),
    rowTable(explanation.rows, { score: explanation.score, caption: "What the text is about" }),
  ];
  if (nearest) {
    parts.push(el("h2", {}, "Nearest in the index"), el("ol", {}, ...nearest.hits.map((/** @type {any} */ hit) =>
      el("li", {}, el("span", { class: "number" }, hit.score.toFixed(3)), " ", hit.title || hit.text.slice(0, 160)))));
  }
  return parts;
}

/** Return the list of dimensions, found by name or by what they are about. */
function dimensions(/** @type {import("./explorer.js").Page} */ page) {
  const list = el("div", {});
  const wanted = /** @type {HTMLInputElement} */ (el("input", { type: "search" }));
  wanted.value = page.state.dimension ?? "";
  const find = soon(
    () => ask(`dimensions?${new URLSearchParams({ model: page.model, search: wanted.value, limit: "30" })}`),
    (found) => list.replaceChildren(
      el("p", { class: "note" }, `${found.total.toLocaleString("en")} ${wanted.value ? "match" : "dimensions"}`),
      el("table", {},
        el("caption", {}, `Dimensions of ${found.model}`),
        el("thead", {}, el("tr", {}, el("th", { scope: "col", class: "number" }, "number"), el("th", { scope: "col" }, "name"), el("th", { scope: "col" }, "about"))),
        el("tbody", {}, ...found.dimensions.map((/** @type {any} */ one) =>
          el("tr", {}, el("td", { class: "number" }, String(one.number)), el("td", {}, one.name), el("td", {}, one.about.join("; "))))))),
    (error) => list.replaceChildren(el("p", { class: "error" }, error.message)),
  );
  wanted.addEventListener("input", () => { page.set({ dimension: wanted.value }); find(); });
  find(0);
  return el("section", {}, el("h2", {}, "Dimensions"), field("Find a dimension by its name or words", wanted), list);
}
