// @ts-check
/** Every route of the server, from its own description: what it takes, what it gives, and a request to send. */

import { ask, el, field } from "./dom.js";

const TAGS = { pellucid: "Reasons and index", OpenAI: "As OpenAI's API", "text-embeddings-inference": "As text-embeddings-inference", state: "State of the server" };
/** What a request is filled with, by the names of fields; numbers and choices have defaults. */
const SAMPLES = /** @type {Record<string, unknown>} */ ({ text2: "mortgage rates are rising", id: "1" });
const TEXTS = ["a loan for a house", "mortgage rates are rising", "a dog in the park"];
const SHOWN = 4000; // characters of an answer

/** @type {import("./explorer.js").View} */
export async function api(main, page) {
  const described = await ask("openapi.json");
  page.result(described);
  /**
   * Return a schema without references and without null.
   * @type {(schema: any) => any}
   */
  const whole = (schema) => {
    const named = schema.$ref ? described.components.schemas[schema.$ref.split("/").pop()] : schema;
    const some = (named.anyOf ?? []).filter((/** @type {any} */ one) => one.type !== "null");
    return some.length === 1 ? { ...named, anyOf: undefined, ...whole(some[0]) } : named;
  };
  main.append(el("p", {}, "One JSON body a request, with the header Content-Type: application/json. ",
    el("a", { href: "openapi.json" }, "openapi.json"), " says the same to programs."));
  for (const [tag, title] of Object.entries(TAGS)) {
    main.append(el("h2", {}, title));
    for (const [path, methods] of Object.entries(described.paths)) {
      for (const [method, operation] of Object.entries(methods)) {
        if (operation.tags?.[0] === tag) main.append(route(path, method, operation, whole));
      }
    }
  }
}

/**
 * Return a route that can be opened.
 * @param {string} path
 * @param {string} method
 * @param {any} operation
 * @param {(schema: any) => any} whole
 */
function route(path, method, operation, whole) {
  const about = operation.description ?? "";
  const box = el("details", { class: "route" }, el("summary", {}, el("code", {}, `${method.toUpperCase()} ${path}`), " ", about.split(". ")[0].replace(/\.$/, "")));
  box.addEventListener("toggle", () => {
    const body = operation.requestBody?.content["application/json"].schema;
    const options = body ? (whole(body).anyOf ?? [body]).map(whole) : [];
    const fields = new Map([
      ...options.flatMap((/** @type {any} */ one) => Object.entries(one.properties ?? {}).map(([name, schema]) => [name, { ...whole(schema), isNeeded: one.required?.includes(name) }])),
      ...(operation.parameters ?? []).map((/** @type {any} */ one) => [one.name, { ...whole(one.schema), description: one.description ?? "", isNeeded: one.required }]),
    ]);
    box.append(...(about.includes(". ") ? [el("p", {}, about)] : []), ...(fields.size ? [tableOf(fields, path)] : []), trial(path, method, options[0], whole));
  }, { once: true });
  return box;
}

/** Return the fields of a request as a table. */
function tableOf(/** @type {Map<string, any>} */ fields, /** @type {string} */ path) {
  const lines = [...fields].map(([name, schema]) => el("tr", {}, el("td", {}, el("code", {}, name), schema.isNeeded ? " (needed)" : ""), el("td", {}, kindOf(schema)),
    el("td", {}, [schema.description, schema.default === undefined || schema.default === null ? "" : `Default: ${JSON.stringify(schema.default)}.`].filter(Boolean).join(" "))));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Fields of ${path}` },
    el("table", {}, el("thead", {}, el("tr", {}, ...["field", "kind", "about"].map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, ...lines)));
}

function kindOf(/** @type {any} */ schema) {
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.anyOf) return schema.anyOf.map((/** @type {any} */ one) => one.type ?? "object").filter((/** @type {string} */ type) => type !== "null").join(" | ");
  const bounds = [schema.minimum, schema.maximum].filter((bound) => bound !== undefined).map((bound) => bound.toLocaleString("en"));
  return (schema.type ?? "any") + (bounds.length ? ` (${bounds.join(" to ")})` : "");
}

/**
 * Return a request to change and send, and its answer.
 * @param {string} path
 * @param {string} method
 * @param {any} body
 * @param {(schema: any) => any} whole
 */
function trial(path, method, body, whole) {
  const sent = body && Object.fromEntries(Object.entries(body.properties ?? {}).filter(([name]) => body.required?.includes(name)).map(([name, schema]) => [name, sample(name, whole(schema))]));
  const input = /** @type {HTMLTextAreaElement} */ (el("textarea", { rows: "6", spellcheck: "false", class: "code" }));
  input.value = body ? JSON.stringify(sent, null, 2) : path.slice(1);
  const answer = el("pre", { tabindex: "0", hidden: true, "aria-live": "polite" });
  const send = async () => {
    answer.hidden = false;
    answer.textContent = "Asking";
    try {
      const found = await ask(body ? path.slice(1) || "." : input.value, body && JSON.parse(input.value));
      const text = JSON.stringify(found, null, 2);
      answer.textContent = text.length > SHOWN ? `${text.slice(0, SHOWN)}\n… ${(text.length - SHOWN).toLocaleString("en")} more characters` : text;
    } catch (error) {
      answer.textContent = /** @type {Error} */ (error).message;
    }
  };
  return path === "/" || path === "/health"
    ? el("p", {}, el("a", { href: path.slice(1) || "." }, "Open it"))
    : el("div", {}, field(body ? "Body" : "Address", input), el("button", { type: "button", click: send }, "Send"), answer);
}

function sample(/** @type {string} */ name, /** @type {any} */ schema) {
  if (name in SAMPLES) return SAMPLES[name];
  if (schema.type === "array") return Array.from({ length: Math.max(TEXTS.length, schema.minItems ?? 0) }, (_, number) => TEXTS[number % TEXTS.length]);
  if (schema.type === "object") return {};
  return schema.type === "integer" || schema.type === "number" ? schema.default ?? 1 : TEXTS[0];
}
