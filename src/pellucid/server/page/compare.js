// @ts-check
/** Two texts: their score and what it is made of; with a third, why the second is closer than that. */

import { ask, el, field, markedText, marksOf, rowTable, soon, textField } from "./dom.js";

const EXAMPLE = { a: "The bank raised interest rates on home loans.", b: "Mortgage costs are going up.", c: "" };

/** @type {import("./explorer.js").View} */
export function compare(main, page) {
  const texts = { a: page.state.a ?? EXAMPLE.a, b: page.state.b ?? EXAMPLE.b, c: page.state.c ?? EXAMPLE.c };
  const result = el("div", { "aria-live": "polite" });
  const explain = soon(
    () => ask("explain", { text1: texts.a, text2: texts.b, ...(texts.c && { text3: texts.c }), model: page.model, notes: true }),
    (found) => { page.result(found); result.replaceChildren(...drawn(found)); },
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

/** Return the view of an explanation. */
function drawn(/** @type {any} */ found) {
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
  return [
    el("p", { class: "note" }, label),
    el("div", { class: "score" }, found.score.toFixed(4)),
    ...found.notes.map((/** @type {any} */ note) => el("p", { class: note.is_warning ? "warning" : "note" }, note.text)),
    ...boxes.flatMap((box, number) => [el("h2", {}, `Text ${"ABC"[number]}`), box]),
    rowTable(found.rows, { score: found.score, remainder: found.exact ? null : found.remainder, caption: "What the score is made of", hover: (row) => outline(row ? [row] : [], row !== null) }),
  ];
}
