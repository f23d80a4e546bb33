// @ts-check
/** A corpus as points. */

import { el } from "./dom.js";

/** @type {import("./explorer.js").View} */
export function map(main) {
  main.append(el("p", { class: "note" }, "Not there yet."));
}
