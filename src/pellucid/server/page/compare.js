// @ts-check
/** Two texts: their score and what it is made of; with a third, why the second is closer than that. */

import { ask, el, field, groupTable, isPhrase, joinPhrases, markedText, marksOf, phrasesOf, rowTable, sentence, soon, textField } from "./dom.js";

const EXAMPLE = { a: "The bank raised interest rates on home loans.", b: "Mortgage costs are going up.", c: "" };

/** @type {import("./explorer.js").View} */
export function compare(main, page) {
  const texts = { a: page.state.a ?? EXAMPLE.a, b: page.state.b ?? EXAMPLE.b, c: page.state.c ?? EXAMPLE.c };
  const result = el("div", { "aria-live": "polite" });
  const explain = soon(
    async () => texts.a.trim() && texts.b.trim() ? ask("explain", { text1: texts.a, text2: texts.b, ...(texts.c.trim() && { text3: texts.c }), model: page.model, notes: true }) : null,
    (answer) => {
      page.result(answer);
      result.replaceChildren(...(answer ? drawn(answer) : [el("p", { class: "empty" }, "Write two texts, A and B, to compare them.")]));
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

/** Return the view of an explanation. */
function drawn(/** @type {any} */ found) {
  const label = found.text3 ? "how much closer B is to A than C" : "similarity of A and B";
  const isEmpty = found.score === 0 && !found.rows.length;
  return [
    el("p", { class: "note" }, label),
    ...(isEmpty ? [el("p", { class: "empty" }, "No score: the model finds nothing that the texts have in common.")] : [el("div", { class: "score" }, found.score.toFixed(4))]),
    ...(isEmpty ? [] : [el("p", { class: "lead" }, ...sentence(lettered(found.summary)))]),
    ...(isEmpty ? [...notesOf(found, true), ...notesOf(found, false), ...withMarks(found, LETTERS).boxes] : explanation(found)),
  ];
}

const LETTERS = ["Text A", "Text B", "Text C"];

/** Return a summary in which texts have the letters of the page; what it quotes stays. */
function lettered(/** @type {string} */ summary) {
  const named = (/** @type {string} */ said) => said.replace(/\btext ([123])\b/gi, (_, number) => `text ${"ABC"[Number(number) - 1]}`);
  return summary.split('"').map((said, place) => place % 2 ? said : named(said)).join('"').replace(/^t/, "T");
}

/** Return warnings, or the other sentences about what the numbers are based on. */
function notesOf(/** @type {any} */ found, /** @type {boolean} */ areWarnings) {
  return (found.notes ?? []).filter((/** @type {any} */ note) => note.is_warning === areWarnings)
    .map((/** @type {any} */ note) => el("p", { class: areWarnings ? "warning" : "note" }, note.text));
}

/**
 * Return the texts with their phrases and the lines of the score; notes and rows are below, the rows to be opened.
 * @param {any} found
 * @param {string} [caption]
 * @param {string[]} [labels] of the texts
 */
export function explanation(found, caption = "What the score is made of", labels = LETTERS) {
  const rows = () => {
    const { boxes, outline } = withMarks(found, labels);
    return [...boxes, rowTable(found.rows, { score: found.score, remainder: found.exact ? null : found.remainder, caption: "Every row", hover: (row) => outline(row ? [row] : [], row !== null) })];
  };
  const fold = el("details", { class: "rows" }, el("summary", {}, `All ${found.rows.length.toLocaleString("en")} rows`));
  fold.addEventListener("toggle", () => fold.append(...rows()), { once: true });
  const isOfPhrases = found.groups.some(isPhrase);
  const { boxes, texts, outline } = isOfPhrases ? withPhrases(found, labels) : withMarks(found, labels);
  const joined = el("div", { class: "joined" }, ...boxes);
  if (isOfPhrases && texts.length > 1) joinPhrases(joined, texts, found.groups);
  const spans = SIDES.map((side) => found.groups.find(isPhrase)?.[side][0]?.join("-"));
  requestAnimationFrame(() => texts.forEach((text, number) => { // a long text begins with the phrase that adds most
    const word = /** @type {HTMLElement | null} */ (text.querySelector(`[data-span="${spans[number]}"]`));
    if (word) text.scrollTop = word.offsetTop - text.clientHeight / 3;
  }));
  return [...notesOf(found, true), joined,
    groupTable(found.groups, { score: found.score, caption, hover: (group) => outline(group ? [group] : [], group !== null) }),
    ...notesOf(found, false), fold];
}

const SIDES = /** @type {const} */ (["spans1", "spans2", "spans3"]);

/** Return the sides of the texts that an explanation has. */
function sidesOf(/** @type {any} */ found) {
  return SIDES.filter((_, number) => found[`text${number + 1}`] !== null && found[`text${number + 1}`] !== undefined);
}

/** Return the texts with the phrases of each line in one colour. */
function withPhrases(/** @type {any} */ found, /** @type {string[]} */ labels) {
  return linked(found, labels, (side, hover, number) => markedText(found[`text${number + 1}`], phrasesOf(found.groups, side), { unknown: found[`unknown${number + 1}`], hover }), found.groups.filter(isPhrase));
}

/** Return the texts with their words tinted by what they add. */
function withMarks(/** @type {any} */ found, /** @type {string[]} */ labels) {
  const marks = sidesOf(found).map((side) => marksOf(found.rows, side));
  const scale = Math.max(1e-9, ...marks.flat().map((mark) => Math.abs(mark.value)));
  return linked(found, labels, (side, hover, number) => markedText(found[`text${number + 1}`], marks[number], { unknown: found[`unknown${number + 1}`], scale, hover }), found.rows);
}

/**
 * Return texts in which what is pointed at outlines its partners, and fades the others.
 * @param {any} found
 * @param {string[]} labels
 * @param {(side: import("./dom.js").Side, hover: (mark: import("./dom.js").Mark | null) => void, number: number) => HTMLElement} draw
 * @param {any[]} terms rows or lines, with the spans that belong together
 */
function linked(found, labels, draw, terms) {
  const sides = sidesOf(found);
  const texts = sides.map((side, number) => draw(side, (mark) => show(side, mark), number));
  const boxes = texts.flatMap((text, number) => [...(labels[number] ? [el("h2", {}, labels[number])] : []), text]);

  function show(/** @type {import("./dom.js").Side} */ side, /** @type {import("./dom.js").Mark | null} */ at) {
    const own = at && `${at.start}-${at.end}`;
    outline(at ? terms.filter((term) => term[side].some((/** @type {number[]} */ span) => span.join("-") === own)) : [], at !== null);
  }

  function outline(/** @type {any[]} */ chosen, /** @type {boolean} */ isOn) {
    const strong = [...chosen].sort((a, b) => Math.abs(b.contribution) - Math.abs(a.contribution)).slice(0, 4);
    texts.forEach((text, number) => {
      const spans = new Set(strong.flatMap((term) => term[sides[number]].map((/** @type {number[]} */ span) => span.join("-"))));
      for (const word of /** @type {NodeListOf<HTMLElement>} */ (text.querySelectorAll(".word"))) {
        word.classList.toggle("is-partner", isOn && spans.has(word.dataset.span ?? ""));
        word.classList.toggle("is-faded", isOn && !spans.has(word.dataset.span ?? ""));
      }
    });
  }

  return { boxes, texts, outline };
}
