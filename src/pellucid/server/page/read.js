// @ts-check
/** One text: what it is about for the model, its nearest texts of the index, and the dimensions of the model. */

import { explanation as shown } from "./compare.js";
import { ask, byName, el, field, keeping, range, sentence, slider, soon, textField } from "./dom.js";

const WORDS = 12; // of the text, with a slider
const LISTED = 12; // dimensions

/**
 * What a new model would change.
 * @typedef {{words: Record<string, number>, scale: Record<string, number>}} Edit
 */

/** @type {import("./explorer.js").View} */
export function read(main, page) {
  let text = page.state.text ?? "The bank raised interest rates on home loans.";
  /** @type {Edit} */
  const edit = { words: byName(JSON.parse(page.state.w || "{}")), scale: byName(JSON.parse(page.state.s || "{}")) };
  const result = el("div", { "aria-live": "polite" });
  const code = el("pre", { tabindex: "0" });
  const words = el("div", { class: "sliders" });
  const isStatic = page.models.some((model) => model.name === page.model && model.family === "static");
  const change = (/** @type {keyof Edit} */ kind, /** @type {string} */ name) => (/** @type {number} */ value) => {
    if (value === 1) delete edit[kind][name];
    else edit[kind][name] = value;
    page.set({ w: asState(edit.words), s: asState(edit.scale) });
    code.textContent = asCode(page.model, edit);
  };
  const explain = soon(
    async () => ({
      explanation: (await ask("describe", { text, model: page.model, explanation: true })).explanation,
      nearest: page.server.has_index ? await ask("search", { query: text, top_k: 5, index: page.index }) : null,
    }),
    (found) => {
      page.result(found);
      result.replaceChildren(...drawn(found));
      const names = [...new Set([...Object.keys(edit.words), ...(isStatic ? found.explanation.rows.slice(0, WORDS).map((/** @type {any} */ row) => known(row.name)) : [])])];
      words.replaceChildren(...names.map((name) => slider(name, edit.words[name] ?? 1, 2, change("words", name))));
    },
    (error) => result.replaceChildren(el("p", { class: "error" }, error.message)),
  );
  const save = async (/** @type {string} */ name) => {
    const { scale, without } = asked(edit);
    await ask("models", { name, model: page.model, words: edit.words, scale, without });
    await page.open(name);
  };
  const keeper = keeping({ summary: "Make a new model of these changes", code, saves: page.server.saves, button: "Save as a new model", name: `${page.model.replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[^A-Za-z0-9]+/, "")}-edited`, save });
  keeper.toggleAttribute("open", Boolean(page.state.w || page.state.s));
  code.textContent = asCode(page.model, edit);
  main.append(field("Text", textField(text, (value) => { text = value; page.set({ text }); explain(); })), result,
    el("details", { hidden: !isStatic, open: Boolean(page.state.w) }, el("summary", {}, "Weigh its words for a new model"), words),
    el("details", { open: Boolean(page.state.s || page.state.dimension) }, el("summary", {}, "Dimensions of the model"), dimensions(page, edit, change)), keeper);
  explain(0);
}

/** Return the word of the vocabulary that a row is about. */
function known(/** @type {string} */ name) {
  return name.match(/ \(read as ([^+]*)\)$/)?.[1] ?? name;
}

function asState(/** @type {Record<string, number>} */ factors) {
  return Object.keys(factors).length ? JSON.stringify(factors) : "";
}

/** Return what is asked of the dimensions: those at 0 go. */
function asked(/** @type {Edit} */ { scale }) {
  const some = Object.entries(scale);
  return { scale: Object.fromEntries(some.filter(([, factor]) => factor > 0)), without: some.filter(([, factor]) => factor === 0).map(([name]) => name) };
}

/** Return Python that makes the new model. */
function asCode(/** @type {string} */ model, /** @type {Edit} */ edit) {
  const { scale, without } = asked(edit);
  const steps = [Object.keys(scale).length && `.scale(${JSON.stringify(scale)})`, without.length && `.without(${JSON.stringify(without)})`,
    Object.keys(edit.words).length && `.reweight(${JSON.stringify(edit.words)})`].filter(Boolean);
  if (!steps.length) return "# Move a slider above, and the Python that does the same stands here.";
  return ["import pellucid", "", `model = pellucid.load(${JSON.stringify(model)})`, `model = model${steps.join("")}`, 'model.save_pretrained("my-model")'].join("\n");
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

/** Return the list of dimensions, found by name or by what they are about; a slider says what each counts in a new model. */
function dimensions(/** @type {import("./explorer.js").Page} */ page, /** @type {Edit} */ edit, /** @type {(kind: keyof Edit, name: string) => (value: number) => void} */ change) {
  const list = el("div", {});
  const wanted = /** @type {HTMLInputElement} */ (el("input", { type: "search" }));
  wanted.value = page.state.dimension ?? "";
  const find = soon(
    () => ask(`dimensions?${new URLSearchParams({ model: page.model, search: wanted.value, limit: String(LISTED) })}`),
    (found) => list.replaceChildren(
      el("p", { class: "note" }, `${found.total.toLocaleString("en")} ${wanted.value ? "match" : "dimensions"}${found.total > LISTED ? `; the first ${LISTED}` : ""}`),
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Dimensions" }, el("table", {},
        el("caption", {}, `Dimensions of ${found.model}`),
        el("thead", {}, el("tr", {}, ...["number", "counts", "name", "about"].map((name) => el("th", { scope: "col", class: name === "number" ? "number" : "" }, name)))),
        el("tbody", {}, ...found.dimensions.map((/** @type {any} */ one) =>
          el("tr", {}, el("td", { class: "number" }, String(one.number)), el("td", { class: "counts" }, ...range(one.name, edit.scale[one.name] ?? 1, 2, change("scale", one.name))),
            el("td", {}, one.name), el("td", {}, one.about.join("; ")))))))),
    (error) => list.replaceChildren(el("p", { class: "error" }, error.message)),
  );
  wanted.addEventListener("input", () => { page.set({ dimension: wanted.value }); find(); });
  find(0);
  return el("section", {}, field("Find a dimension by its name or words", wanted), list);
}
