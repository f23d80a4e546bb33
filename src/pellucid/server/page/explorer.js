// @ts-check
/** The page: which view is shown, its state in the address, and what the buttons below it do. */

import { ask, el, said } from "./dom.js";
import { compare } from "./compare.js";
import { read } from "./read.js";
import { search } from "./search.js";
import { map } from "./map.js";
import { api } from "./api.js";

/**
 * A view draws itself into `main` and returns what "Save JSON" saves.
 * @typedef {Record<string, string>} State
 * @typedef {{name: string, family: string, dimension: number, sparse: boolean, size: string}} Model
 * @typedef {{has_index: boolean, saves: boolean}} Server
 * @typedef {{state: State, models: Model[], model: string, server: Server, set: (changes: State) => void, open: (model: string) => Promise<void>, result: (value: unknown) => void}} Page
 * @typedef {(main: HTMLElement, page: Page) => void | Promise<void>} View
 */

/** @type {Record<string, View>} */
const VIEWS = { compare, read, search, map, api };
const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const models = /** @type {HTMLSelectElement} */ (document.getElementById("model"));
/** @type {unknown} */
let result = null;
/** @type {Model[]} */
let known = [];
/** @type {Server} */
let server = { has_index: false, saves: false };

/** Return the view that the address names, and its state. */
function place() {
  const [name, query] = location.hash.slice(1).split("?");
  return { name: name in VIEWS ? name : "compare", state: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

/** Write the state into the address without drawing anew. */
function remember(/** @type {string} */ name, /** @type {State} */ state) {
  const kept = Object.entries(state).filter(([, value]) => value !== "");
  history.replaceState(null, "", `#${name}${kept.length ? `?${new URLSearchParams(kept)}` : ""}`);
}

async function draw() {
  const { name, state } = place();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  models.value = known.some((model) => model.name === state.model) ? state.model : known[0].name;
  /** @type {HTMLElement} */ (models.closest("label")).hidden = name === "search" || name === "api"; // an index has models of its own
  result = null;
  said("");
  main.replaceChildren();
  /** @type {Page} */
  const page = {
    state, models: known, model: models.value, server, open,
    set: (changes) => { Object.assign(state, changes); remember(name, state); },
    result: (value) => { result = value; },
  };
  document.title = `pellucid: ${name}`;
  try {
    await VIEWS[name](main, page);
  } catch (error) {
    main.append(el("p", { class: "error", role: "alert" }, String(/** @type {Error} */ (error).message)));
  }
}

/** Ask which models there are. */
async function learn() {
  known = /** @type {Model[]} */ (await ask("models"));
  models.replaceChildren(...known.map((model) => el("option", { value: model.name }, `${model.name} (${model.family})`)));
}

/** Show a model that was saved, without the changes that made it. */
async function open(/** @type {string} */ model) {
  await learn();
  remember(place().name, { model });
  await draw();
  said(`${model} is saved, and shown here`);
}

/** Offer bytes as a file. */
function save(/** @type {Blob} */ blob, /** @type {string} */ name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(/** @type {HTMLAnchorElement} */ (link).href), 1000);
  said(`${name} saved`);
}

/** Return the view as a picture: a canvas as it is, everything else drawn by way of an SVG. */
async function picture() {
  const canvas = main.querySelector("canvas");
  if (canvas) return canvas;
  const box = main.getBoundingClientRect();
  const style = await (await fetch("style.css")).text();
  const copy = /** @type {HTMLElement} */ (main.cloneNode(true));
  const fields = main.querySelectorAll("textarea, input");
  copy.querySelectorAll("textarea, input").forEach((field, number) => {
    const value = /** @type {HTMLInputElement} */ (fields[number]).value;
    if (field instanceof HTMLTextAreaElement) field.textContent = value;
    else field.setAttribute("value", value);
  });
  const body = el("div", { xmlns: "http://www.w3.org/1999/xhtml" }, el("style", {}, style), copy);
  const root = getComputedStyle(document.body);
  body.style.cssText = `color:${root.color};background:${root.backgroundColor};font:${root.font};padding:16px`;
  const [width, height] = [Math.ceil(box.width) + 32, Math.ceil(box.height) + 32];
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}"><foreignObject width="100%" height="100%">${new XMLSerializer().serializeToString(body)}</foreignObject></svg>`;
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const drawn = /** @type {HTMLCanvasElement} */ (el("canvas", { width: String(2 * width), height: String(2 * height) }));
  /** @type {CanvasRenderingContext2D} */ (drawn.getContext("2d")).drawImage(image, 0, 0, 2 * width, 2 * height);
  return drawn;
}

document.getElementById("link")?.addEventListener("click", async () => {
  await navigator.clipboard.writeText(location.href);
  said("link copied");
});
document.getElementById("json")?.addEventListener("click", () => {
  if (result === null) said("there is nothing to save yet");
  else save(new Blob([JSON.stringify(result, null, 2)], { type: "application/json" }), `pellucid-${place().name}.json`);
});
document.getElementById("png")?.addEventListener("click", async () => {
  (await picture()).toBlob((blob) => blob && save(blob, `pellucid-${place().name}.png`));
});
models.addEventListener("change", () => {
  const { name, state } = place();
  remember(name, { ...state, model: models.value });
  draw();
});
addEventListener("hashchange", draw);

try {
  await learn();
  server = /** @type {Server} */ (await ask("info"));
  await draw();
} catch (error) {
  main.append(el("p", { class: "error", role: "alert" }, `The server does not answer: ${error}`));
}
