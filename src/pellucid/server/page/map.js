// @ts-check
/** A corpus as points: topics in colours with the words that set them apart; one can zoom, point and read. */

import { ask, el, field, rowTable, said, textField } from "./dom.js";

/** Colours that colour-blind eyes tell apart (Okabe and Ito), in the order of the clusters; then grey. */
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#a6761d"];
const RAMP = ["#fde725", "#5ec962", "#21918c", "#3b528b", "#440154"]; // viridis, for what has an order
const NEAR = 12; // pixels
const LISTED = 30;
const EDGE = 24; // pixels that stay free around the points
const MOST_STRETCH = 1.7; // of the longer side of the canvas: neighbours stay neighbours
const BEYOND = 0.35; // of the breadth of nine in ten points: what is further out does not make the map smaller
const MANY = 3000; // points from which they are small squares
const PICTURE = 2; // pixels of a saved picture for one of the screen
const LEAST_SELECTED = 2; // texts, and as many others

/**
 * Points of a colour; the others of a map are further groups.
 * @typedef {{label: string, title: string, colour: string, has: (point: any) => boolean}} Group
 */

/** @type {import("./explorer.js").View} */
export function map(main, page) {
  let corpus = "";
  const result = el("div", {});
  const asked = el("input", { type: "number", min: "10", max: "50000", value: page.state.limit ?? "30000" });
  const clusters = el("input", { type: "number", min: "2", max: "50", value: page.state.clusters ?? "8" });
  const value = (/** @type {HTMLElement} */ input) => Number(/** @type {HTMLInputElement} */ (input).value);

  async function run() {
    page.set({ limit: String(value(asked)), clusters: String(value(clusters)) });
    result.replaceChildren(el("p", { class: "note", role: "status" }, "Drawing the map. The first time this takes some seconds; then it is kept with the index."));
    const texts = corpus.split("\n").map((line) => line.trim()).filter(Boolean);
    const body = { model: page.model, clusters: value(clusters), ...(texts.length ? { texts } : { limit: value(asked), index: page.index }) };
    try {
      const found = await ask("map", body);
      page.result(found);
      result.replaceChildren(...drawn(found, { model: page.model, index: page.index, title: texts.length ? `${found.points.length.toLocaleString("en")} texts` : titleOf(found, page.index), texts }));
    } catch (error) {
      result.replaceChildren(el("p", { class: "error", role: "alert" }, String(/** @type {Error} */ (error).message)));
    }
  }

  main.append(
    el("form", { class: "line", submit: (event) => { event.preventDefault(); run(); } },
      el("label", { hidden: !page.server.has_index }, el("span", {}, "Documents at most"), asked),
      el("label", {}, el("span", {}, "Topics at most"), clusters),
      el("button", {}, "Draw the map")),
    el("details", { open: !page.server.has_index }, el("summary", {}, "Or draw a map of other texts"), field("Texts of your own, one a line, ten or more", textField("", (text) => { corpus = text; }, 400_000))),
    result);
  if (page.server.has_index) run();
}

/** Say which documents are drawn: all, or how many of how many. */
function titleOf(/** @type {any} */ found, /** @type {string | null} */ index) {
  const [drawn, all] = [found.points.length, found.documents].map((count) => count.toLocaleString("en"));
  return `${index ?? "Index"}: ${drawn === all ? `all ${all} documents` : `${drawn} of ${all} documents, evenly spread`}`;
}

/** Return the groups of points by their clusters, or by a field of their metadata: a few values, or ranges of numbers. */
function groupsOf(/** @type {any} */ found, /** @type {string} */ name) {
  if (!name) {
    const none = { label: "no topic", title: "texts without a known word", colour: "#888888", has: (/** @type {any} */ point) => point.cluster < 0 };
    return [...found.clusters.map((/** @type {any} */ cluster, /** @type {number} */ number) => ({
      label: cluster.label, title: cluster.words.join(", "), colour: COLOURS[number] ?? "#888888", has: (/** @type {any} */ point) => point.cluster === number,
    })), ...(found.points.some(none.has) ? [none] : [])];
  }
  const valuesOf = (/** @type {any} */ point) => Object.hasOwn(point.metadata, name) ? [point.metadata[name] ?? []].flat() : [];
  const all = found.points.flatMap(valuesOf);
  const none = { label: "without", title: "", colour: "#888888", has: (/** @type {any} */ point) => !valuesOf(point).length };
  const counts = new Map();
  for (const value of all) counts.set(value, (counts.get(value) ?? 0) + 1);
  /** @type {Group[]} */
  let groups;
  if (counts.size > COLOURS.length && all.every((/** @type {any} */ value) => typeof value === "number")) {
    all.sort((/** @type {number} */ a, /** @type {number} */ b) => a - b);
    const ends = [...new Set(RAMP.map((_, number) => all[Math.floor(((number + 1) * all.length) / RAMP.length) - 1]))];
    groups = ends.map((end, number) => {
      const start = number ? ends[number - 1] : -Infinity;
      const isIn = (/** @type {any} */ value) => value > start && value <= end;
      return { label: number ? `above ${start} to ${end}` : `to ${end}`, title: "", colour: RAMP[number], has: (/** @type {any} */ point) => valuesOf(point).some(isIn) };
    });
  } else {
    const names = [...counts].sort((a, b) => b[1] - a[1] || String(a[0]).localeCompare(String(b[0]))).map(([value]) => value);
    const kept = new Set(names.slice(0, COLOURS.length));
    groups = [...kept].map((value, number) => ({ label: String(value), title: "", colour: COLOURS[number], has: (/** @type {any} */ point) => valuesOf(point).includes(value) }));
    if (names.length > kept.size) groups.push({ label: "other values", title: "", colour: "#888888", has: (/** @type {any} */ point) => valuesOf(point).some((/** @type {any} */ value) => !kept.has(value)) });
  }
  return [...groups, none].filter((group) => found.points.some(group.has));
}

/** Return the canvas, the legend and the list of a map. */
function drawn(/** @type {any} */ found, /** @type {{model: string, index: string | null, title: string, texts: string[]}} */ source) {
  const canvas = /** @type {HTMLCanvasElement} */ (el("canvas", { role: "img", "aria-label": `Map of ${found.points.length} texts in ${found.clusters.length} topics; the list below names them` }));
  const tip = el("div", { class: "tip", hidden: true });
  const apart = el("div", { "aria-live": "polite" });
  const list = el("ul", {});
  const legend = el("div", { class: "sliders" });
  const sides = { x: reach(found.points, "x"), y: reach(found.points, "y") };
  const view = { zoom: 1, x: sides.x.middle, y: sides.y.middle };
  /** @type {Group[]} */
  let groups = [];
  /** @type {Map<any, string>} */
  let colours = new Map();
  /** @type {Group | null} */
  let chosen = null;
  let wanted = "";
  /** @type {({x: number, y: number} | null)[]} */
  let centres = []; // of topics, of the points that are shown
  /** @type {number[] | null} */
  let box = null; // the region that is drawn: two corners, in pixels
  /** @type {Set<any> | null} */
  let selected = null;

  const isOn = (/** @type {any} */ point) => (!chosen || chosen.has(point)) && (!selected || selected.has(point)) && (!wanted || point.text.toLowerCase().includes(wanted));
  /** Return the pixels of a unit of the map, each way: the whole canvas is used, but neither side is stretched too far. */
  function size() {
    const full = { x: (canvas.clientWidth - 2 * EDGE) / sides.x.length, y: (canvas.clientHeight - 2 * EDGE) / sides.y.length };
    const most = MOST_STRETCH * Math.min(full.x, full.y);
    return { x: Math.min(full.x, most) * view.zoom, y: Math.min(full.y, most) * view.zoom };
  }
  /** Return the pixels of a point; one that the whole map has no room for stands at the edge of the canvas. */
  function place(/** @type {{x: number, y: number}} */ point) {
    const unit = size();
    const [right, down] = [canvas.clientWidth / 2 - EDGE, canvas.clientHeight / 2 - EDGE];
    const inside = (/** @type {number} */ value, /** @type {number} */ middle, /** @type {number} */ reach) => Math.min(Math.max(value, middle - reach), middle + reach);
    const [x, y] = [inside(point.x, sides.x.middle, right * view.zoom / unit.x), inside(point.y, sides.y.middle, down * view.zoom / unit.y)];
    return [canvas.clientWidth / 2 + (x - view.x) * unit.x, canvas.clientHeight / 2 + (y - view.y) * unit.y];
  }

  function draw() {
    const scale = devicePixelRatio || 1;
    canvas.width = canvas.clientWidth * scale;
    canvas.height = canvas.clientHeight * scale;
    canvas.style.touchAction = view.zoom > 1 || region.getAttribute("aria-pressed") === "true" ? "none" : "pan-y";
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    pen.scale(scale, scale);
    const style = getComputedStyle(document.body);
    pen.fillStyle = style.backgroundColor;
    pen.fillRect(0, 0, canvas.clientWidth, canvas.clientHeight);
    const many = found.points.length > MANY;
    const side = many ? 2.5 : 7;
    for (const point of found.points) {
      const [x, y] = place(point);
      if (x < -side || y < -side || x > canvas.clientWidth + side || y > canvas.clientHeight + side) continue;
      pen.globalAlpha = isOn(point) ? (many ? 0.6 : 0.85) : 0.08;
      pen.fillStyle = colours.get(point) ?? "#888888";
      if (many) pen.fillRect(x - side / 2, y - side / 2, side, side);
      else { pen.beginPath(); pen.arc(x, y, side / 2, 0, 7); pen.fill(); }
    }
    pen.globalAlpha = 1;
    drawLabels(pen, style);
    if (box) {
      pen.strokeStyle = style.color;
      pen.setLineDash([5, 4]);
      pen.strokeRect(box[0], box[1], box[2] - box[0], box[3] - box[1]);
    }
  }

  /** Write what clusters are about, the largest first, each beside those before it or not at all. */
  function drawLabels(/** @type {CanvasRenderingContext2D} */ pen, /** @type {CSSStyleDeclaration} */ style) {
    pen.font = `600 13px ${style.fontFamily}`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.lineWidth = 5;
    pen.lineJoin = "round";
    /** @type {number[][]} */
    const taken = [];
    for (const [number, cluster] of found.clusters.entries()) {
      const centre = centres[number];
      if (!centre) continue;
      const text = cluster.words.slice(0, 2).join(", ") || cluster.label;
      const half = pen.measureText(text).width / 2 + 4;
      const [x, y] = place(centre);
      if (x < 0 || y < 0 || x > canvas.clientWidth || y > canvas.clientHeight) continue;
      const at = Math.min(Math.max(x, half), canvas.clientWidth - half);
      const free = [0, -20, 20, -40, 40, -60, 60].map((shift) => y + shift).find((line) => line > 10 && line < canvas.clientHeight - 10
        && taken.every(([left, right, other]) => at + half < left || at - half > right || Math.abs(line - other) > 18));
      if (free === undefined) continue;
      taken.push([at - half, at + half, free]);
      pen.strokeStyle = style.backgroundColor;
      pen.strokeText(text, at, free);
      pen.fillStyle = style.color;
      pen.fillText(text, at, free);
    }
    canvas.dataset.labels = JSON.stringify(taken.map((one) => one.map(Math.round)));
  }

  function show() {
    const shown = found.points.filter(isOn);
    centres = found.clusters.map((/** @type {any} */ _, /** @type {number} */ number) => {
      const members = shown.filter((/** @type {any} */ point) => point.cluster === number);
      return members.length ? { x: middle(members, "x"), y: middle(members, "y") } : null;
    });
    draw();
    list.replaceChildren(...shown.slice(0, LISTED).map((/** @type {any} */ point) => el("li", {}, point.text.slice(0, 140))));
    said(`${shown.length} of ${found.points.length} texts`);
  }

  function colourBy(/** @type {string} */ name) {
    groups = groupsOf(found, name);
    colours = new Map(found.points.map((/** @type {any} */ point) => [point, groups.find((group) => group.has(point))?.colour ?? "#888888"]));
    chosen = null;
    legend.replaceChildren(...groups.map((group) => {
      const dot = el("span", { class: "dot", "aria-hidden": "true" });
      dot.style.background = group.colour;
      const button = el("button", { type: "button", class: "legend", "aria-pressed": "false", title: group.title, click: () => {
        chosen = chosen === group ? null : group;
        legend.querySelectorAll("button").forEach((other) => other.setAttribute("aria-pressed", String(other === button && chosen === group)));
        show();
      } }, dot, `${group.label} (${found.points.filter(group.has).length})`);
      return button;
    }));
    show();
  }

  /** Ask what sets the selected texts apart from all others of the map. */
  async function contrast() {
    const members = found.points.flatMap((/** @type {any} */ point, /** @type {number} */ number) => (selected?.has(point) ? [number] : []));
    const forget = el("button", { type: "button", click: () => { selected = null; apart.replaceChildren(); show(); } }, "Clear selection");
    const title = el("h2", {}, `What sets ${members.length} selected texts apart`);
    if (members.length < LEAST_SELECTED || members.length > found.points.length - LEAST_SELECTED) {
      apart.replaceChildren(title, el("p", { class: "empty" }, `Select at least ${LEAST_SELECTED} texts, and leave as many.`), forget);
      return;
    }
    apart.replaceChildren(title, el("p", { class: "note" }, "Asking"), forget);
    try {
      const made = await ask("contrast", { model: source.model, members, ...(source.texts.length ? { texts: source.texts } : { limit: found.limit, index: source.index }) });
      const words = made.words.map((/** @type {any} */ word) => `${word.word} (in ${word.texts} of them, ${word.others} others)`).join(", ");
      apart.replaceChildren(title, el("p", {}, words || "no word"),
        rowTable(made.rows, { score: made.separation, total: "separation", caption: "How much more alike two of them are than one of them and another, by dimensions" }), forget);
    } catch (error) {
      apart.replaceChildren(title, el("p", { class: "error", role: "alert" }, String(/** @type {Error} */ (error).message)), forget);
    }
  }

  const find = /** @type {HTMLInputElement} */ (el("input", { type: "search" }));
  find.addEventListener("input", () => { wanted = find.value.toLowerCase(); show(); });
  const region = el("button", { type: "button", "aria-pressed": "false", click: () => { region.setAttribute("aria-pressed", String(region.getAttribute("aria-pressed") !== "true")); draw(); } }, "Select a region");
  const fields = [...new Set(found.points.flatMap((/** @type {any} */ point) => Object.keys(point.metadata)))].sort();
  const by = /** @type {HTMLSelectElement} */ (el("select", {}, el("option", { value: "" }, "topics"), ...fields.map((name) => el("option", { value: name }, name))));
  by.addEventListener("change", () => colourBy(by.value));
  const zoom = (/** @type {number} */ factor) => { view.zoom = Math.min(40, Math.max(0.8, view.zoom * factor)); draw(); };
  const whole = () => { Object.assign(view, { zoom: 1, x: sides.x.middle, y: sides.y.middle }); draw(); };

  /** @type {number[] | null} */
  let grip = null;
  const at = (/** @type {PointerEvent} */ event) => { const edge = canvas.getBoundingClientRect(); return [event.clientX - edge.left, event.clientY - edge.top]; };
  canvas.addEventListener("pointerdown", (event) => {
    grip = at(event);
    canvas.setPointerCapture(event.pointerId);
    if (region.getAttribute("aria-pressed") === "true") box = [...grip, ...grip];
    point(event);
  });
  canvas.addEventListener("pointerup", () => {
    grip = null;
    if (!box) return;
    const [left, right] = [box[0], box[2]].sort((a, b) => a - b);
    const [top, bottom] = [box[1], box[3]].sort((a, b) => a - b);
    box = null;
    region.setAttribute("aria-pressed", "false");
    selected = new Set(found.points.filter((/** @type {any} */ one) => { const [x, y] = place(one); return x >= left && x <= right && y >= top && y <= bottom; }));
    show();
    contrast();
  });
  canvas.addEventListener("pointercancel", () => { grip = null; box = null; draw(); });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("pointermove", point);
  function point(/** @type {PointerEvent} */ event) {
    const [x, y] = at(event);
    if (box) {
      box = [box[0], box[1], x, y];
      draw();
    } else if (grip && (x !== grip[0] || y !== grip[1])) {
      const unit = size();
      view.x -= (x - grip[0]) / unit.x;
      view.y -= (y - grip[1]) / unit.y;
      grip = [x, y];
      tip.hidden = true;
      draw();
    } else showTip(x, y);
  }

  /** Show the text of the nearest point beside the pointer, within the canvas. */
  function showTip(/** @type {number} */ x, /** @type {number} */ y) {
    const distance = (/** @type {any} */ one) => { const [left, top] = place(one); return Math.hypot(left - x, top - y); };
    const near = found.points.filter(isOn).reduce((/** @type {any} */ best, /** @type {any} */ one) => (!best || distance(one) < distance(best) ? one : best), null);
    tip.hidden = !near || distance(near) > NEAR;
    if (tip.hidden) return;
    tip.replaceChildren(el("span", { class: "note" }, near.id), el("br", {}), near.text);
    tip.style.left = `${Math.max(0, Math.min(x + 14, canvas.clientWidth - tip.offsetWidth))}px`;
    tip.style.top = y > canvas.clientHeight / 2 ? `${y - tip.offsetHeight - 10}px` : `${y + 14}px`;
  }
  canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoom(Math.exp(-event.deltaY / 500)); }, { passive: false });
  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

  const atlas = el("button", { type: "button", click: () => {
    const lines = found.points.map((/** @type {any} */ one) => JSON.stringify({ ...one, label: found.clusters[one.cluster]?.label ?? "" })).join("\n");
    const link = el("a", { href: URL.createObjectURL(new Blob([lines], { type: "application/jsonl" })), download: "pellucid-map.jsonl" });
    link.click();
    said("saved; open it with: embedding-atlas pellucid-map.jsonl --text text --x x --y y");
  } }, "Save for embedding-atlas");
  colourBy("");
  canvas.addEventListener("picture", (event) => { /** @type {any} */ (event).detail.canvas = withLegend(canvas, source.title, `Vectors of ${found.model}, by ${found.method}; colours: ${by.value || "topics"}. pellucid`, groups); });
  return [el("h2", {}, source.title), el("div", { class: "stage" }, canvas, tip),
    el("div", { class: "tools" }, el("button", { type: "button", "aria-label": "Zoom in", click: () => zoom(1.5) }, "+"), el("button", { type: "button", "aria-label": "Zoom out", click: () => zoom(1 / 1.5) }, "−"),
      el("button", { type: "button", click: whole }, "Whole map"), region, el("label", { hidden: !fields.length }, "Colours ", by)),
    el("p", { class: "note" }, `Vectors of ${found.model}, projected by ${found.method}. `, "Point at a dot to read its text; scroll to zoom, drag to move. A selected region says what sets it apart."),
    apart, el("h2", {}, "Legend"), legend, el("label", {}, el("span", {}, "Show texts that hold"), find), list, atlas];
}

/**
 * Return a picture of a map with its title, legend and source.
 * @param {HTMLCanvasElement} map
 * @param {string} title
 * @param {string} source
 * @param {Group[]} groups
 */
function withLegend(map, title, source, groups) {
  const scale = PICTURE * (devicePixelRatio || 1);
  const [width, lines] = [map.clientWidth, groups.map((group) => group.label)];
  const height = map.clientHeight + 70 + 22 * lines.length;
  const picture = /** @type {HTMLCanvasElement} */ (el("canvas", { width: String(width * scale), height: String(height * scale) }));
  const pen = /** @type {CanvasRenderingContext2D} */ (picture.getContext("2d"));
  const style = getComputedStyle(document.body);
  pen.scale(scale, scale);
  pen.fillStyle = style.backgroundColor;
  pen.fillRect(0, 0, width, height);
  pen.fillStyle = style.color;
  pen.font = `600 16px ${style.fontFamily}`;
  pen.fillText(title, 12, 26, width - 24);
  pen.drawImage(map, 0, 40, width, map.clientHeight);
  pen.font = `14px ${style.fontFamily}`;
  groups.forEach((group, number) => {
    const y = map.clientHeight + 58 + 22 * number;
    pen.fillStyle = group.colour;
    pen.fillRect(12, y - 10, 11, 11);
    pen.fillStyle = style.color;
    pen.fillText(group.label, 30, y, width - 40);
  });
  pen.font = `12px ${style.fontFamily}`;
  pen.fillText(source, 12, height - 10, width - 24);
  return picture;
}

/** Return the median of a coordinate. */
function middle(/** @type {any[]} */ points, /** @type {"x" | "y"} */ side) {
  const values = points.map((point) => point[side]).sort((a, b) => a - b);
  return values[values.length >> 1] ?? 0;
}

/** Return the frame of the map along a coordinate; what is far from nearly all points lies beyond it. */
function reach(/** @type {any[]} */ points, /** @type {"x" | "y"} */ side) {
  const values = points.map((point) => point[side]).sort((a, b) => a - b);
  const [low, high] = [0.05, 0.95].map((share) => values[Math.round(share * (values.length - 1))]);
  const from = Math.max(values[0], low - BEYOND * (high - low));
  const to = Math.min(values[values.length - 1], high + BEYOND * (high - low));
  return { middle: (from + to) / 2, length: to - from || 1 };
}
