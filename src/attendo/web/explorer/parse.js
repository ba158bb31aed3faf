/** A constituency tree as a picture: the words in one row, with their constituents above them. */

import { element, svgElement } from "../shared/dom.js";

const CHARACTER_WIDTH = 8.5;
const WORD_GAP = 14;
const LEVEL_HEIGHT = 34;
const PARSE_MARGIN = 12;
const BRACKETS = { "-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}" };

/** @typedef {{label: string, word?: string, children: ParseNode[]}} ParseNode */

/** Whether models of a task find trees. @param {string} task */
export function findsTrees(task) {
  return task === "parsing" || task === "parsing-spans";
}

/** Read a tree in brackets. @param {string} text @returns {ParseNode} */
export function readBrackets(text) {
  const root = { label: "", children: [] };
  const stack = [root];
  for (const part of text.match(/[()]|[^\s()]+/gu) ?? []) {
    const node = stack[stack.length - 1];
    if (part === "(") {
      const child = { label: "", children: [] };
      node.children.push(child);
      stack.push(child);
    } else if (part === ")") stack.pop();
    else if (node.label) node.word = part;
    else node.label = part;
  }
  return root.children[0] ?? root;
}

/** Give each node a place: `x` in pixels, `height` in levels above the words. */
export function placeParse(node, left = 0) {
  if (!node.children.length) {
    const word = BRACKETS[node.word] ?? node.word ?? "";
    const width = CHARACTER_WIDTH * Math.max(word.length, node.label.length) + WORD_GAP;
    return { label: node.label, word, children: [], x: left + width / 2, height: 0, right: left + width };
  }
  const children = [];
  let right = left;
  for (const child of node.children) {
    children.push(placeParse(child, right));
    ({ right } = children[children.length - 1]);
  }
  const height = 1 + Math.max(...children.map((child) => child.height + (child.children.length ? 0 : 0.6)));
  const x = (children[0].x + children[children.length - 1].x) / 2;
  return { label: node.label, children, x, height, right: Math.max(right, left + CHARACTER_WIDTH * node.label.length + WORD_GAP) };
}

/** @param {string} brackets @returns {HTMLElement} */
export function drawParse(brackets) {
  const root = placeParse(readBrackets(brackets));
  const [width, height] = [root.right + 2 * PARSE_MARGIN, root.height * LEVEL_HEIGHT + 46];
  const picture = svgElement("svg", { class: "parse", role: "img", "aria-label": `Tree: ${brackets}`, width, height, viewBox: `0 0 ${width} ${height}` });
  const y = (level) => 20 + (root.height - level) * LEVEL_HEIGHT;
  const add = (node) => {
    const x = PARSE_MARGIN + node.x;
    const text = (level, words, kind) => picture.append(svgElement("text", { class: kind, x, y: y(level) + 4, "text-anchor": "middle" }, words));
    if (!node.children.length) {
      text(0, node.word, "parse-word");
      text(0.6, node.label, "parse-tag");
      return;
    }
    text(node.height, node.label, "parse-label");
    const bar = y(node.height) + 13; // upright lines below one bar never cross
    for (const child of node.children) {
      const top = child.children.length ? y(child.height) - 10 : y(0.6) - 8;
      picture.append(svgElement("path", { class: "parse-line", d: `M${x} ${bar - 5}V${bar}H${PARSE_MARGIN + child.x}V${top}` }));
      add(child);
    }
  };
  add(root);
  return element("div", { class: "parse-scroll", tabindex: "0", role: "region", "aria-label": "Tree, scrolls sideways" }, picture);
}
