// @ts-check
/** Two texts: their score and what it is made of; with a third, why the second is closer than that. */

import { ask, el, field, markedText, marksOf, rowTable, soon, textField } from "./dom.js";

const EXAMPLE = { a: "The bank raised interest rates on home loans.", b: "Mortgage costs are going up.", c: "" };

/** @type {import("./explorer.js").View} */
export function compare(main, page) {
  const texts = { a: page.state.a ?? EXAMPLE.a, b: page.state.b ?? EXAMPLE.b, c: page.state.c ?? EXAMPLE.c };
  const result = el("div", { "aria-live": "polite" });
  const explain = soon(
    async () => {
      if (!texts.a.trim() || !texts.b.trim()) return null;
      const [found, scale] = await Promise.all([
        ask("explain", { text1: texts.a, text2: texts.b, ...(texts.c.trim() && { text3: texts.c }), model: page.model, notes: true }),
        ask(`scores?${new URLSearchParams({ model: page.model })}`),
      ]);
      return { found, scale };
    },
    (answer) => {
      page.result(answer && answer.found);
      result.replaceChildren(...(answer ? drawn(answer.found, answer.scale) : [el("p", { class: "empty" }, "Write two texts, A and B, to compare them.")]));
    },
    (error) => result.replaceChildren(el("p", { class: "error" }, error.message)),
  );
  const typed = (/** @type {"a" | "b" | "c"} */ name) => (/** @type {string} */ value) => {
    texts[name] = value;
    page.set(texts);
    explain();
  };
  main.append(
    el("div", { class: "texts" },
      field("Text A", textField(texts.a, typed("a"))),
      field("Text B", textField(texts.b, typed("b"))),
      field("Text C, if you like: why is B closer to A than C?", textField(texts.c, typed("c")))),
    result);
  explain(0);
}

/**
 * What a model gives to pairs of sentences, from the lowest up.
 * @typedef {{paraphrases: number[], unrelated: number[]}} Scale
 */

/** Return where a score lies among those of paraphrases and of unrelated sentences. */
function placed(/** @type {number} */ score, /** @type {Scale} */ usual) {
  const kinds = /** @type {const} */ (["paraphrases", "unrelated"]);
  const [low, high] = [Math.min(0, score, usual.unrelated[0]), Math.max(1, score)];
  const at = (/** @type {number} */ value) => `${(100 * (value - low)) / (high - low)}%`;
  const inner = (/** @type {number[]} */ values, /** @type {number} */ share) => values[Math.round(share * (values.length - 1))];
  const below = (/** @type {number[]} */ values) => `${values.filter((value) => value < score).length} of ${values.length}`;
  const lines = kinds.map((kind) => {
    const [from, to] = [inner(usual[kind], 0.05), inner(usual[kind], 0.95)];
    const band = el("span", { class: `band ${kind}`, title: `nine in ten: ${from.toFixed(2)} to ${to.toFixed(2)}` });
    band.style.left = at(from);
    band.style.width = `calc(${at(to)} - ${at(from)})`;
    const needle = el("span", { class: "needle" });
    needle.style.left = at(score);
    return [el("span", { class: "note" }, kind === "unrelated" ? "unrelated sentences" : "paraphrases"), el("div", { class: "strip", "aria-hidden": "true" }, band, needle)];
  });
  return [el("p", {}, `Higher than ${below(usual.unrelated)} pairs of unrelated sentences and ${below(usual.paraphrases)} paraphrases.`),
    el("div", { class: "scale" }, ...lines.flat()),
    el("p", { class: "note" }, "The bars: nine in ten scores that this model gives to such pairs, in English; the line: this score.")];
}

/** Return the view of an explanation; `usual` says what a score of the model means. */
function drawn(/** @type {any} */ found, /** @type {Scale} */ usual) {
  const sides = /** @type {const} */ (["spans1", "spans2", "spans3"]).filter((_, number) => found[`text${number + 1}`] !== null && found[`text${number + 1}`] !== undefined);
  const marks = sides.map((side) => marksOf(found.rows, side));
  const scale = Math.max(1e-9, ...marks.flat().map((mark) => Math.abs(mark.value)));
  const boxes = sides.map((side, number) => markedText(found[`text${number + 1}`], marks[number], {
    unknown: found[`unknown${number + 1}`], scale, hover: (mark) => showPartners(mark && { side, mark }),
  }));

  /** Outline the words that a word has rows with; fade the others. */
  function showPartners(/** @type {{side: typeof sides[number], mark: import("./dom.js").Mark} | null} */ at) {
    const own = at && `${at.mark.start}-${at.mark.end}`;
    const rows = at ? found.rows.filter((/** @type {any} */ row) => row[at.side].some((/** @type {number[]} */ span) => span.join("-") === own)) : [];
    outline(rows, at !== null);
  }

  function outline(/** @type {any[]} */ rows, /** @type {boolean} */ isOn) {
    const strong = [...rows].sort((a, b) => Math.abs(b.contribution) - Math.abs(a.contribution)).slice(0, 4);
    boxes.forEach((box, number) => {
      const spans = new Set(strong.flatMap((row) => row[sides[number]].map((/** @type {number[]} */ span) => span.join("-"))));
      for (const word of /** @type {NodeListOf<HTMLElement>} */ (box.querySelectorAll(".word"))) {
        word.classList.toggle("is-partner", isOn && spans.has(word.dataset.span ?? ""));
        word.classList.toggle("is-faded", isOn && !spans.has(word.dataset.span ?? ""));
      }
    });
  }

  const label = found.text3 ? "how much closer B is to A than C" : "similarity of A and B";
  const isEmpty = found.score === 0 && !found.rows.length;
  return [
    el("p", { class: "note" }, label),
    ...(isEmpty ? [el("p", { class: "empty" }, "No score: the model finds nothing that the texts have in common.")] : [el("div", { class: "score" }, found.score.toFixed(4))]),
    ...(isEmpty || found.text3 ? [] : placed(found.score, usual)),
    ...found.notes.map((/** @type {any} */ note) => el("p", { class: note.is_warning ? "warning" : "note" }, note.text)),
    ...boxes.flatMap((box, number) => [el("h2", {}, `Text ${"ABC"[number]}`), box]),
    ...(isEmpty ? [] : [rowTable(found.rows, { score: found.score, remainder: found.exact ? null : found.remainder, caption: "What the score is made of", hover: (row) => outline(row ? [row] : [], row !== null) })]),
  ];
}
