/** All heads at once: a row for each layer, a column for each head, each as a small map with its name. */

import { element } from "../shared/dom.js";
import { chosenHead, layerCount } from "../shared/maps.js";
import { paintWeights } from "../shared/paint.js";
import { headName } from "./ablation.js";

/**
 * @param {Object} listeners
 * @param {(choice: {layer: number|"rollout", head: number|"mean"}) => void} listeners.onChoose
 * @param {(where: any) => void} listeners.onAblate called for a head when "s" is pressed on it
 */
export function createGrid({ onChoose, onAblate }) {
  const table = element("div", { class: "grid", role: "grid" });
  const seen = new IntersectionObserver(drawVisible, { rootMargin: "200px" });
  let cells = []; // rows of cells, as they lie on the page
  let shape = "";
  let recording = null;
  let maps = null;

  table.addEventListener("keydown", moveInGrid);
  table.addEventListener("focusin", (event) => makeReachable(event.target));

  function build(kind) {
    const layers = layerCount(recording, kind);
    const rollout = Boolean(recording.rollout?.[kind]);
    const wanted = [kind, layers, recording.n_heads, rollout].join();
    if (wanted === shape) return;
    shape = wanted;
    seen.disconnect();
    table.style.setProperty("--heads", String(Math.max(recording.n_heads + 1, 3))); // a single map is not as wide as the card
    table.classList.toggle("many", recording.n_heads > 5);
    cells = Array.from({ length: layers }, (_, layer) => gridRow(kind, layer, recording.n_heads));
    if (rollout) cells.push([gridCell({ kind, layer: "rollout", head: "mean" })]);
    table.replaceChildren(headerRow(recording.n_heads), ...cells.map(rowElement));
    cells[0][0].box.tabIndex = 0;
  }

  function gridRow(kind, layer, headCount) {
    const heads = Array.from({ length: headCount }, (_, head) => gridCell({ kind, layer, head }));
    return headCount === 1 ? heads : [...heads, gridCell({ kind, layer, head: "mean" })];
  }

  function gridCell(where) {
    const canvas = element("canvas", { "aria-hidden": "true" });
    const caption = element("span", { class: "caption" });
    const box = element("div", { class: "cell", role: "gridcell", tabindex: "-1" }, element("div", { class: "thumb" }, canvas), caption);
    const cell = { where, box, canvas, caption, wanted: true };
    box.addEventListener("click", () => onChoose(where));
    seen.observe(box);
    cellOf.set(box, cell);
    return cell;
  }

  function drawVisible(entries) {
    for (const { target, isIntersecting } of entries) {
      const cell = cellOf.get(target);
      cell.visible = isIntersecting;
      if (isIntersecting && cell.wanted) draw(cell);
    }
  }

  async function draw(cell) {
    cell.wanted = false;
    const current = maps;
    try {
      const matrix = await current.matrix(cell.where);
      if (current !== maps) return; // there is a newer sentence
      paintWeights(cell.canvas, matrix, { triangle: cell.where.kind === "decoder" });
      cell.box.classList.remove("missing");
    } catch (error) {
      cell.box.classList.add("missing");
      cell.box.title = error.message;
    }
  }

  function label(state) {
    const chosen = headName(chosenHead(recording, state));
    for (const cell of cells.flat()) {
      const name = headName(cell.where);
      const isAblated = state.ablated.includes(name);
      const facts = recording.heads[cell.where.kind]?.[cell.where.layer]?.[cell.where.head];
      cell.caption.textContent = captionOf(cell.where, facts);
      cell.box.setAttribute("aria-label", labelOf(cell.where, facts, isAblated));
      cell.box.title = titleOf(cell.where, facts);
      cell.box.setAttribute("aria-selected", String(name === chosen));
      cell.box.classList.toggle("ablated", isAblated);
      if (name === chosen && !table.contains(document.activeElement)) makeReachable(cell.box);
    }
  }

  function moveInGrid(event) {
    const row = cells.findIndex((line) => line.some((cell) => cell.box === event.target));
    if (row < 0) return;
    const column = cells[row].findIndex((cell) => cell.box === event.target);
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      onChoose(cells[row][column].where);
      return;
    }
    if (event.key === "s" && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.stopPropagation(); // elsewhere the key means the chosen head
      onAblate(cells[row][column].where);
      return;
    }
    const [down, right] = STEP_OF_KEY[event.key] ?? [0, 0];
    if (!down && !right) return;
    event.preventDefault();
    const nextRow = cells[Math.min(Math.max(row + down, 0), cells.length - 1)];
    nextRow[Math.min(Math.max(column + right, 0), nextRow.length - 1)].box.focus();
  }

  function makeReachable(box) {
    if (!cellOf.has(box)) return;
    for (const cell of cells.flat()) cell.box.tabIndex = cell.box === box ? 0 : -1;
  }

  const cellOf = new WeakMap();
  return {
    element: table,
    /** Show another look, or the same with another choice. */
    show(newRecording, newMaps, state) {
      const changed = newMaps !== maps;
      [recording, maps] = [newRecording, newMaps];
      build(state.kind);
      table.setAttribute("aria-label", `${state.kind} attention: rows are layers, columns are heads`);
      label(state);
      if (changed) this.repaint();
    },
    repaint() {
      for (const cell of cells.flat()) {
        cell.wanted = true;
        if (cell.visible) draw(cell);
      }
    },
  };
}

const STEP_OF_KEY = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -999], End: [0, 999] };

function headerRow(headCount) {
  const names = Array.from({ length: headCount }, (_, head) => [element("span", { class: "long" }, "head "), `${head + 1}`]);
  if (headCount === 1) names[0] = ["attention"];
  return element(
    "div",
    { class: "grid-row grid-head", role: "row" },
    element("span", { role: "columnheader", class: "corner" }, "layer"),
    ...names.map((name) => element("span", { role: "columnheader" }, ...name)),
    ...(headCount === 1 ? [] : [element("span", { role: "columnheader" }, "mean")]),
  );
}

function rowElement(line) {
  const { layer } = line[0].where;
  const text = layer === "rollout" ? "all" : String(layer + 1);
  const header = element("span", { role: "rowheader", "aria-label": layer === "rollout" ? "all layers" : `layer ${text}` }, text);
  return element("div", { class: "grid-row", role: "row" }, header, ...line.map((cell) => cell.box));
}

function captionOf(where, facts) {
  if (where.layer === "rollout") return "rollout";
  if (where.head === "mean") return "mean";
  return facts?.name ? `${facts.name} ${Math.round(100 * facts.share)}\u00a0%` : "—";
}

function labelOf(where, facts, isAblated) {
  if (where.layer === "rollout") return "rollout through all layers";
  const place = `layer ${where.layer + 1}, ${where.head === "mean" ? "mean of heads" : `head ${where.head + 1}`}`;
  const name = facts?.name ? `, ${facts.name} ${Math.round(100 * facts.share)} percent` : "";
  return `${place}${name}${isAblated ? ", ablated" : ""}`;
}

function titleOf(where, facts) {
  if (!facts) return "";
  return `Layer ${where.layer + 1}, head ${where.head + 1}: entropy ${facts.entropy.toFixed(2)} bits, mean distance ${facts.distance.toFixed(1)} tokens`;
}
