/** Beam search as a tree: steps run to the right, the best path along the top, other hypotheses below it. */

import { element, oncePerFrame, pushButton, showOverflow, svgElement } from "../shared/dom.js";
import { numberText, probabilityText } from "../shared/numbers.js";
import { shortToken, tokenText } from "../shared/tokens.js";

const COLUMN_WIDTH = 104;
const ROW_HEIGHT = 40;
const NODE_WIDTH = 84;
const NODE_HEIGHT = 32;
const MARGIN = 8;

/** @param {import("../shared/api.js").Beams} beams @returns {HTMLElement} */
export function drawTree(beams) {
  if (beams.nodes.length === 0) return element("p", {}, "The search has no steps.");
  const best = new Set(beams.best);
  const placed = placeNodes(beams.nodes, best);
  const columns = Math.max(...beams.nodes.map((node) => node.step)) + 1;
  const rows = Math.max(...[...placed.values()].map(({ row }) => row)) + 1;
  const [width, height] = [columns * COLUMN_WIDTH + 2 * MARGIN, rows * ROW_HEIGHT + 2 * MARGIN];
  const picture = svgElement(
    "svg",
    { class: "tree", role: "img", "aria-label": treeLabel(beams), width, height, viewBox: `0 0 ${width} ${height}` },
    ...treeEdges(beams.nodes, placed, best),
  );
  const scroller = element("div", { class: "tree-scroll", tabindex: "0", role: "region", "aria-label": "Beam search tree, scrolls sideways" }, picture);
  drawAsSeen(scroller, picture, placed, best);
  const frame = element("div", { class: "tree-frame" }, scroller);
  showOverflow(scroller, frame);
  return element("div", {}, treeExtent(scroller, columns - 1), frame, treeKey());
}

/** Which steps are in view, and how to see the others. */
function treeExtent(scroller, steps) {
  const line = element("span", {});
  const onwards = pushButton("Next steps →", () => scroller.scrollBy({ left: scroller.clientWidth - COLUMN_WIDTH }), { class: "button small" });
  const show = () => {
    const first = Math.floor((scroller.scrollLeft - MARGIN + COLUMN_WIDTH / 2) / COLUMN_WIDTH);
    const last = Math.floor((scroller.scrollLeft + scroller.clientWidth - MARGIN - NODE_WIDTH / 2) / COLUMN_WIDTH);
    const all = first <= 0 && last >= steps;
    line.textContent = all ? `All ${steps} steps` : `Steps ${Math.max(first, 1)} to ${Math.min(last, steps)} of ${steps}`;
    onwards.disabled = last >= steps;
    onwards.hidden = all;
  };
  scroller.addEventListener("scroll", oncePerFrame(show), { passive: true });
  new ResizeObserver(show).observe(scroller);
  return element("p", { class: "tree-extent" }, line, onwards);
}

/**
 * Give every node a row. The first child continues its parent's row, so the tree falls into chains, each of which
 * takes the first row below the chain it leaves that is free for as long as it lasts.
 */
function placeNodes(nodes, best) {
  const chains = chainsOf(nodes, best);
  const placed = new Map();
  const ends = []; // of each row: the steps that are taken, as [first, last] pairs
  for (const chain of chains) {
    const [first, last] = [chain[0].step, chain[chain.length - 1].step];
    let row = chain[0].parent === null ? 0 : placed.get(chain[0].parent).row + 1;
    while (ends[row]?.some(([from, to]) => first <= to && last >= from)) row += 1;
    (ends[row] ??= []).push([first, last]);
    for (const node of chain) placed.set(node.id, { node, row });
  }
  return placed;
}

/** Chains in the order in which they are placed: the best first, then what was kept, then what was dropped. */
function chainsOf(nodes, best) {
  const children = new Map(nodes.map((node) => [node.id, []]));
  for (const node of nodes) children.get(node.parent)?.push(node);
  for (const list of children.values()) list.sort((a, b) => rankOf(b, best) - rankOf(a, best) || b.score - a.score);
  const starts = nodes.filter((node) => node.parent === null || children.get(node.parent)[0] !== node);
  const chains = starts.map((start) => {
    const chain = [start];
    for (let next = children.get(start.id)[0]; next; next = children.get(next.id)[0]) chain.push(next);
    return chain;
  });
  return chains.sort((a, b) => rankOf(b[0], best) - rankOf(a[0], best) || a[0].step - b[0].step || b[0].score - a[0].score);
}

function rankOf(node, best) {
  if (best.has(node.id)) return 2;
  return node.state === "dropped" ? 0 : 1;
}

function nodeLeft(node) {
  return MARGIN + node.step * COLUMN_WIDTH;
}

function rowMiddle(row) {
  return MARGIN + (row + 0.5) * ROW_HEIGHT;
}

/** All edges of a class are one path: hundreds of elements less. */
function treeEdges(nodes, placed, best) {
  const paths = { dropped: "", kept: "", ended: "", best: "" };
  for (const node of nodes) {
    if (!placed.has(node.parent)) continue;
    const name = best.has(node.id) && best.has(node.parent) ? "best" : node.state;
    paths[name] += edgePath(placed.get(node.parent), placed.get(node.id));
  }
  return Object.entries(paths).map(([name, d]) => svgElement("path", { class: `edge ${name}`, d }));
}

function edgePath(parent, child) {
  const [x1, y1] = [nodeLeft(parent.node) + NODE_WIDTH, rowMiddle(parent.row)];
  const [x2, y2] = [nodeLeft(child.node), rowMiddle(child.row)];
  const middle = (x1 + x2) / 2;
  return `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`;
}

/** Add the nodes of a column when it first comes into view: a long sentence has thousands, a screen shows a few. */
function drawAsSeen(scroller, picture, placed, best) {
  const columns = [];
  for (const place of placed.values()) (columns[place.node.step] ??= []).push(place);
  let drawn = 0;
  const draw = () => {
    const seen = Math.ceil((scroller.scrollLeft + (scroller.clientWidth || 1500)) / COLUMN_WIDTH) + 1;
    for (; drawn < Math.min(seen, columns.length); drawn += 1) {
      picture.append(...(columns[drawn] ?? []).map((place) => treeNode(place, best)));
    }
  };
  draw();
  scroller.addEventListener("scroll", oncePerFrame(draw), { passive: true });
  new ResizeObserver(draw).observe(scroller);
}

function treeNode({ node, row }, best) {
  const [left, top] = [nodeLeft(node), rowMiddle(row) - NODE_HEIGHT / 2];
  const middle = left + NODE_WIDTH / 2;
  return svgElement(
    "g",
    { class: `node ${best.has(node.id) ? "best" : node.state}` },
    svgElement("title", {}, `${tokenText(node.token)}: log-probability ${numberText(node.score, 4)} (${node.state})`),
    svgElement("rect", { x: left, y: top, width: NODE_WIDTH, height: NODE_HEIGHT, rx: 6 }),
    svgElement("text", { x: middle, y: top + 14, "text-anchor": "middle" }, shortToken(node.token, 10)),
    svgElement("text", { x: middle, y: top + 26, "text-anchor": "middle", class: "score" }, probabilityText(Math.exp(node.score))),
  );
}

function treeLabel({ nodes, best }) {
  const words = nodes.filter((node) => best.includes(node.id)).sort((a, b) => a.step - b.step);
  const dropped = nodes.filter((node) => node.state === "dropped").length;
  const path = words.map((node) => tokenText(node.token).slice(0, 40)).join(" ").slice(0, 500);
  return `Beam search tree of ${nodes.length} nodes, ${dropped} dropped. Best path: ${path}. Its probability: ${probabilityText(Math.exp(words.at(-1)?.score ?? -Infinity))}.`;
}

function treeKey() {
  const entry = (name, text) => element("span", { class: `tree-key ${name}` }, text);
  return element("p", { class: "tree-keys" }, entry("best", "best path"), entry("kept", "kept"), entry("ended", "ended"), entry("dropped", "dropped"));
}
