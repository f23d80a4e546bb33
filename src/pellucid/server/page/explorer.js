// @ts-check
/** The page: which view is shown, its state in the address, and what the buttons below it do. */

import { ask, el, NoTokenError, said } from "./dom.js";
import { compare } from "./compare.js";
import { read } from "./read.js";
import { search } from "./search.js";
import { api } from "./api.js";

/**
 * A view draws itself into `main` and returns what "Save JSON" saves.
 * @typedef {Record<string, string>} State
 * @typedef {{name: string, family: string, dimension: number, size: string}} Model
 * @typedef {{models: Model[], indexes: string[]}} Server
 * @typedef {{state: State, model: string, index: string | null, set: (changes: State) => void, result: (value: unknown) => void}} Page
 * @typedef {(main: HTMLElement, page: Page) => void | Promise<void>} View
 */

/** @type {Record<string, View>} */
const VIEWS = { compare, read, search, api };
const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const models = /** @type {HTMLSelectElement} */ (document.getElementById("model"));
const indexes = /** @type {HTMLSelectElement} */ (document.getElementById("index"));
/** @type {unknown} */
let result = null;
/** @type {Server} */
let server = { models: [], indexes: [] };

/** Return the view that the address names, and its state. */
function place() {
  const [name, query] = location.hash.slice(1).split("?");
  return { name: Object.hasOwn(VIEWS, name) ? name : server.indexes.length ? "search" : "compare", state: Object.fromEntries(new URLSearchParams(query ?? "")) };
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
  indexes.value = server.indexes.includes(state.index) ? state.index : server.indexes[0];
  /** @type {HTMLElement} */ (indexes.closest("label")).hidden = server.indexes.length < 2 || !["search", "read"].includes(name);
  models.value = server.models.some((model) => model.name === state.model) ? state.model : server.models[0].name;
  /** @type {HTMLElement} */ (models.closest("label")).hidden = name === "search" || name === "api"; // an index has models of its own
  result = null;
  said("");
  main.replaceChildren();
  /** @type {Page} */
  const page = {
    state, model: models.value, index: server.indexes.length ? indexes.value : null,
    set: (changes) => { Object.assign(state, changes); remember(name, state); },
    result: (value) => { result = value; },
  };
  document.title = `${page.index && name !== "compare" ? page.index : name} - pellucid`;
  try {
    await VIEWS[name](main, page);
  } catch (error) {
    main.append(el("p", { class: "error", role: "alert" }, String(/** @type {Error} */ (error).message)));
  }
}

/** Offer bytes as a file. */
function save(/** @type {Blob} */ blob, /** @type {string} */ name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(/** @type {HTMLAnchorElement} */ (link).href), 1000);
  said(`${name} saved`);
}

/** Return the view as a picture, drawn by way of an SVG. */
async function picture() {
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
indexes.addEventListener("change", () => {
  const { name, state } = place();
  remember(name, { q: state.q ?? "", index: indexes.value }); // filters and weights are of the other index
  draw();
});
addEventListener("hashchange", draw);
addEventListener("keydown", (event) => {
  const at = /** @type {HTMLElement} */ (event.target);
  const box = /** @type {HTMLElement | null} */ (main.querySelector('input[type="search"]'));
  if (event.key === "/" && box && !event.ctrlKey && !event.metaKey && !at.closest("input, textarea, select")) {
    event.preventDefault();
    box.focus();
  }
});

/** Begin; without its token the page says so, and asks for it on request. */
async function begin() {
  main.replaceChildren();
  try {
    server = /** @type {Server} */ (await ask("info"));
    models.replaceChildren(...server.models.map((model) => el("option", { value: model.name }, `${model.name} (${model.family})`)));
    indexes.replaceChildren(...server.indexes.map((name) => el("option", {}, name)));
    await draw();
  } catch (error) {
    const isLocked = error instanceof NoTokenError;
    main.replaceChildren(el("p", { class: "error", role: "alert" }, isLocked ? error.message : `The server does not answer: ${error}`),
      el("button", { type: "button", click: begin }, isLocked ? "Enter the token" : "Try again"));
  }
}
await begin();
