// @ts-check
/** One text: what it is about for the model, its nearest texts of the index, and the dimensions of the model. */

import { explanation as shown } from "./compare.js";
import { ask, el, field, sentence, soon, textField } from "./dom.js";

const LISTED = 12; // dimensions

/** @type {import("./explorer.js").View} */
export function read(main, page) {
  let text = page.state.text ?? "The bank raised interest rates on home loans.";
  const result = el("div", { "aria-live": "polite" });
  const explain = soon(
    async () => ({
      explanation: (await ask("describe", { text, model: page.model, explanation: true })).explanation,
      nearest: page.index ? await ask("search", { query: text, top_k: 5, index: page.index }) : null,
    }),
    (found) => { page.result(found); result.replaceChildren(...drawn(found)); },
    (error) => result.replaceChildren(el("p", { class: "error" }, error.message)),
  );
  main.append(field("Text", textField(text, (value) => { text = value; page.set({ text }); explain(); })), result,
    el("details", { open: Boolean(page.state.dimension) }, el("summary", {}, "Dimensions of the model"), dimensions(page)));
  explain(0);
}

function drawn(/** @type {{explanation: any, nearest: any}} */ { explanation, nearest }) {
  const parts = [
    el("p", { class: "lead" }, ...sentence(explanation.summary)), ...shown(explanation, "What the text is about", []),
  ];
  if (nearest) {
    parts.push(el("details", {}, el("summary", {}, `${nearest.hits.length} nearest documents of the index`), el("ol", {}, ...nearest.hits.map((/** @type {any} */ hit) =>
      el("li", {}, hit.title || hit.text.slice(0, 160), " ", el("span", { class: "note" }, hit.score.toFixed(2)))))));
  }
  return parts;
}

/** Return the list of dimensions, found by name or by what they are about. */
function dimensions(/** @type {import("./explorer.js").Page} */ page) {
  const list = el("div", {});
  const wanted = /** @type {HTMLInputElement} */ (el("input", { type: "search" }));
  wanted.value = page.state.dimension ?? "";
  const find = soon(
    () => ask(`dimensions?${new URLSearchParams({ model: page.model, search: wanted.value, limit: String(LISTED) })}`),
    (found) => list.replaceChildren(
      el("p", { class: "note" }, `${found.total.toLocaleString("en")} ${wanted.value ? "match" : "dimensions"}${found.total > LISTED ? `; the first ${LISTED}` : ""}`),
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Dimensions" }, el("table", {},
        el("caption", {}, `Dimensions of ${found.model}`),
        el("thead", {}, el("tr", {}, ...["number", "name", "about"].map((name) => el("th", { scope: "col", class: name === "number" ? "number" : "" }, name)))),
        el("tbody", {}, ...found.dimensions.map((/** @type {any} */ one) =>
          el("tr", {}, el("td", { class: "number" }, String(one.number)), el("td", {}, one.name), el("td", {}, one.about.join("; ")))))))),
    (error) => list.replaceChildren(el("p", { class: "error" }, error.message)),
  );
  wanted.addEventListener("input", () => { page.set({ dimension: wanted.value }); find(); });
  find(0);
  return el("section", {}, field("Find a dimension by its name or words", wanted), list);
}
