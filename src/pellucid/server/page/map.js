// @ts-check
/** A corpus as points: clusters in colours with the words that set them apart; one can zoom, point and read. */

import { ask, el, field, said, textField } from "./dom.js";

/** Colours that colour-blind eyes tell apart (Okabe and Ito), in the order of the clusters; then grey. */
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#a6761d"];
const NEAR = 12; // pixels
const LISTED = 30;

/** @type {import("./explorer.js").View} */
export function map(main, page) {
  let corpus = "";
  const result = el("div", {});
  const asked = el("input", { type: "number", min: "10", max: "5000", value: page.state.limit ?? "500" });
  const clusters = el("input", { type: "number", min: "2", max: "50", value: page.state.clusters ?? "8" });
  const value = (/** @type {HTMLElement} */ input) => Number(/** @type {HTMLInputElement} */ (input).value);

  async function run() {
    page.set({ limit: String(value(asked)), clusters: String(value(clusters)) });
    result.replaceChildren(el("p", { class: "note", role: "status" }, "Drawing the map; five hundred texts take some seconds."));
    const texts = corpus.split("\n").map((line) => line.trim()).filter(Boolean);
    const body = { model: page.model, clusters: value(clusters), ...(texts.length ? { texts } : { limit: value(asked) }) };
    try {
      const found = await ask("map", body);
      page.result(found);
      result.replaceChildren(...drawn(found));
    } catch (error) {
      result.replaceChildren(el("p", { class: "error", role: "alert" }, String(/** @type {Error} */ (error).message)));
    }
  }

  main.append(
    el("form", { class: "line", submit: (event) => { event.preventDefault(); run(); } },
      el("label", { hidden: !page.server.has_index }, el("span", {}, "Documents of the index"), asked),
      el("label", {}, el("span", {}, "Clusters"), clusters),
      el("button", {}, "Draw the map")),
    el("details", { open: !page.server.has_index }, el("summary", {}, "Or draw a map of other texts"), field("Texts of your own, one a line, ten or more", textField("", (text) => { corpus = text; }, 400_000))),
    result);
  if (page.server.has_index) run();
}

/** Return the canvas, the legend and the list of a map. */
function drawn(/** @type {any} */ found) {
  const canvas = /** @type {HTMLCanvasElement} */ (el("canvas", { role: "img", "aria-label": `Map of ${found.points.length} texts in ${found.clusters.length} clusters; the list below names them` }));
  const read = el("p", { class: "marked", "aria-live": "polite" }, "Point at a dot to read its text; turn the wheel to zoom, drag to move.");
  const list = el("ul", {});
  const extent = { x: reach(found.points, "x"), y: reach(found.points, "y") };
  const view = { zoom: 1, x: 0, y: 0 };
  /** @type {number | null} */
  let chosen = null;
  let wanted = "";

  const colour = (/** @type {number} */ cluster) => COLOURS[cluster] ?? "#888888";
  const isOn = (/** @type {any} */ point) => (chosen === null || point.cluster === chosen) && (!wanted || point.text.toLowerCase().includes(wanted));
  const size = () => Math.min(canvas.clientWidth / extent.x, canvas.clientHeight / extent.y) / 2.2 * view.zoom;
  const place = (/** @type {any} */ point) => [
    canvas.clientWidth / 2 + (point.x - view.x) * size(), canvas.clientHeight / 2 + (point.y - view.y) * size(),
  ];

  function draw() {
    const scale = devicePixelRatio || 1;
    canvas.width = canvas.clientWidth * scale;
    canvas.height = canvas.clientHeight * scale;
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    pen.scale(scale, scale);
    const style = getComputedStyle(document.body);
    pen.fillStyle = style.backgroundColor;
    pen.fillRect(0, 0, canvas.clientWidth, canvas.clientHeight);
    for (const point of found.points) {
      const [x, y] = place(point);
      pen.globalAlpha = isOn(point) ? 0.85 : 0.12;
      pen.fillStyle = colour(point.cluster);
      pen.beginPath();
      pen.arc(x, y, 3, 0, 7);
      pen.fill();
    }
    pen.globalAlpha = 1;
    pen.font = `600 13px ${style.fontFamily}`;
    pen.textAlign = "center";
    pen.lineWidth = 4;
    found.clusters.forEach((/** @type {any} */ cluster, /** @type {number} */ number) => {
      if (chosen !== null && chosen !== number) return;
      const own = found.points.filter((/** @type {any} */ point) => point.cluster === number);
      const [x, y] = place({ x: middle(own, "x"), y: middle(own, "y") });
      pen.strokeStyle = style.backgroundColor;
      pen.strokeText(cluster.words.slice(0, 2).join(", ") || cluster.label, x, y);
      pen.fillStyle = style.color;
      pen.fillText(cluster.words.slice(0, 2).join(", ") || cluster.label, x, y);
    });
  }

  function showList() {
    const shown = found.points.filter(isOn);
    list.replaceChildren(...shown.slice(0, LISTED).map((/** @type {any} */ point) => el("li", {}, point.text.slice(0, 140))));
    said(`${shown.length} of ${found.points.length} texts`);
  }

  const legend = el("div", { class: "sliders" }, ...found.clusters.map((/** @type {any} */ cluster, /** @type {number} */ number) => {
    const dot = el("span", { class: "dot", "aria-hidden": "true" });
    dot.style.background = colour(number);
    const button = el("button", { type: "button", class: "legend", "aria-pressed": "false", title: `dimensions: ${cluster.dimensions.join("; ")}` }, dot, `${cluster.label} (${cluster.texts})`);
    button.addEventListener("click", () => {
      chosen = chosen === number ? null : number;
      legend.querySelectorAll("button").forEach((other, at) => other.setAttribute("aria-pressed", String(at === chosen)));
      draw();
      showList();
    });
    return button;
  }));
  const find = /** @type {HTMLInputElement} */ (el("input", { type: "search" }));
  find.addEventListener("input", () => { wanted = find.value.toLowerCase(); draw(); showList(); });

  /** @type {number[] | null} */
  let grip = null;
  canvas.addEventListener("pointerdown", (event) => { grip = [event.clientX, event.clientY]; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { grip = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (grip) {
      view.x -= (event.clientX - grip[0]) / size();
      view.y -= (event.clientY - grip[1]) / size();
      grip = [event.clientX, event.clientY];
      draw();
      return;
    }
    const box = canvas.getBoundingClientRect();
    const distance = (/** @type {any} */ point) => Math.hypot(place(point)[0] - event.clientX + box.left, place(point)[1] - event.clientY + box.top);
    const near = found.points.filter(isOn).reduce((/** @type {any} */ best, /** @type {any} */ point) => (!best || distance(point) < distance(best) ? point : best), null);
    if (near && distance(near) < NEAR) read.textContent = `${near.id}: ${near.text}`;
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    view.zoom = Math.min(40, Math.max(0.8, view.zoom * Math.exp(-event.deltaY / 500)));
    draw();
  }, { passive: false });
  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

  const atlas = el("button", { type: "button", click: () => {
    const lines = found.points.map((/** @type {any} */ point) => JSON.stringify({ ...point, label: found.clusters[point.cluster].label })).join("\n");
    const link = el("a", { href: URL.createObjectURL(new Blob([lines], { type: "application/jsonl" })), download: "pellucid-map.jsonl" });
    link.click();
    said("saved; open it with: embedding-atlas pellucid-map.jsonl --text text --x x --y y");
  } }, "Save for embedding-atlas");
  showList();
  return [canvas, read, el("h2", {}, "Clusters, by the words that set them apart"), legend,
    el("label", {}, el("span", {}, "Show texts that hold"), find), list, atlas];
}

/** Return the median of a coordinate. */
function middle(/** @type {any[]} */ points, /** @type {"x" | "y"} */ side) {
  const values = points.map((point) => point[side]).sort((a, b) => a - b);
  return values[values.length >> 1] ?? 0;
}

/** Return how far nearly all points reach from the middle. */
function reach(/** @type {any[]} */ points, /** @type {"x" | "y"} */ side) {
  const sizes = points.map((point) => Math.abs(point[side])).sort((a, b) => a - b);
  return sizes[Math.floor(sizes.length * 0.98)] || 1;
}
