/** Lines and bars, redrawn when their width changes, so that the text stays readable on a phone. */

import { element, svgElement } from "../shared/dom.js";
import { tokenText } from "../shared/tokens.js";
import { digits, shortDigits } from "./numbers.js";
import { withIndices } from "./parts.js";

const MARGIN = { top: 30, right: 22, bottom: 38, left: 40 };

const ROUND_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500]; // between two ticks of an axis

/**
 * A picture that is redrawn when its width changes.
 * @param {string} label for screen readers
 * @param {number} height in pixels
 * @param {(width: number) => Element[]} draw
 */
export function fluidPicture(label, height, draw) {
  const svg = svgElement("svg", { role: "img", "aria-label": label, height, width: "100%" });
  const box = element("div", { class: "chart" }, svg);
  let drawnFor = 0;
  new ResizeObserver(() => {
    const width = Math.floor(box.clientWidth);
    if (width === 0 || width === drawnFor) return;
    drawnFor = width;
    svg.replaceChildren(...draw(width));
  }).observe(box);
  return box;
}

/**
 * @typedef {{name: string, values: number[], classes?: string}} Line
 * @typedef {Object} ChartOptions
 * @property {string} label for screen readers
 * @property {string} [title]
 * @property {string} [hint]
 * @property {Line[]} lines
 * @property {string} across name of the horizontal axis
 * @property {string} up name of the vertical axis
 * @property {(at: number) => string} [tickText] for the horizontal axis
 * @property {number} [least]
 * @property {number} [most]
 * @property {number} [mark] place along the horizontal axis that is marked
 * @property {number} [height]
 */

/** Lines over a common axis. @param {ChartOptions} options */
export function lineChart(options) {
  const { title, hint = "", label, lines, height = 240 } = options;
  const chart = fluidPicture(label, height, (width) => drawChart(options, width, height));
  const keys = lines
    .filter((line) => line.name)
    .map((line) => element("span", { class: `key ${line.classes ?? ""}` }, ...withIndices(line.name)));
  return element(
    "figure",
    { class: "chart-box" },
    title ? element("figcaption", {}, element("strong", {}, title), element("span", {}, hint)) : null,
    keys.length ? element("p", { class: "keys", "aria-hidden": "true" }, ...keys) : null,
    chart,
  );
}

function drawChart({ lines, across, up, tickText = String, least = 0, most, mark }, width, height) {
  const count = Math.max(...lines.map((line) => line.values.length));
  const top = most ?? Math.max(...lines.flatMap((line) => line.values));
  const x = (at) => MARGIN.left + (at / Math.max(count - 1, 1)) * (width - MARGIN.left - MARGIN.right);
  const y = (value) => height - MARGIN.bottom - ((value - least) / (top - least || 1)) * (height - MARGIN.top - MARGIN.bottom);
  const drawn = lines.map((line) => svgElement("path", { class: `line ${line.classes ?? ""}`, d: pathOf(line.values, x, y) }));
  const marked = mark === undefined ? [] : markAt(lines, mark, x, y);
  return [
    ...upTicks(least, top, y, width),
    ...acrossTicks(count, x, height, tickText, width),
    ...drawn,
    ...marked,
    ...axisNames(across, up, width, height),
  ];
}

function pathOf(values, x, y) {
  return values.map((value, at) => `${at ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
}

function markAt(lines, mark, x, y) {
  return lines
    .filter((line) => line.values[mark] !== undefined)
    .map((line) => svgElement("circle", { class: `dot ${line.classes ?? ""}`, cx: x(mark), cy: y(line.values[mark]), r: 4.5 }));
}

function upTicks(least, most, y, width) {
  return [0, 1, 2].flatMap((at) => {
    const value = least + (at / 2) * (most - least);
    return [
      svgElement("line", { class: "rule", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }),
      svgElement("text", { class: "tick", x: MARGIN.left - 6, y: y(value) + 4, "text-anchor": "end" }, shortDigits(value)),
    ];
  });
}

function acrossTicks(count, x, height, tickText, width) {
  const room = Math.max(Math.floor(width / 60), 2);
  const every = ROUND_STEPS.find((step) => (count - 1) / step <= room) ?? count;
  return Array.from({ length: count }, (_, at) => at)
    .filter((at) => at % every === 0)
    .map((at) =>
      svgElement(
        "text",
        { class: "tick", x: Math.min(x(at), width - 18), y: height - MARGIN.bottom + 16, "text-anchor": "middle" },
        tickText(at),
      ),
    );
}

function axisNames(across, up, width, height) {
  return [
    svgElement("text", { class: "axis-name", x: width - MARGIN.right, y: height - 3, "text-anchor": "end" }, across),
    svgElement("text", { class: "axis-name", x: 0, y: 14 }, up),
  ];
}

/**
 * A vector as bars up and down.
 * @param {string} label
 * @param {number[]} values
 * @param {number} most
 */
export function vectorBars(label, values, most, height = 90) {
  return fluidPicture(label, height, (width) => {
    const [step, middle] = [width / values.length, height / 2];
    const bars = values.map((value, at) => {
      const size = Math.max((Math.abs(value) / (most || 1)) * (middle - 3), 0.5);
      const bar = svgElement("rect", {
        class: value < 0 ? "bar-down" : "bar-up",
        x: at * step + step * 0.1,
        width: step * 0.8,
        y: value < 0 ? middle : middle - size,
        height: size,
      });
      bar.append(svgElement("title", {}, `dimension ${at + 1}: ${digits(value)}`));
      return bar;
    });
    return [svgElement("line", { class: "rule", x1: 0, x2: width, y1: middle, y2: middle }), ...bars];
  });
}

/**
 * Bars with names on the left and numbers on the right.
 * @param {{name: string, share: number, text: string, classes?: string}[]} items share: length, 0 to 1
 */
export function barList(items, label) {
  const rows = items.map(({ name, share, text, classes = "" }) => {
    const bar = element("span", { class: "bar" });
    bar.style.inlineSize = `${Math.max(100 * Math.min(share, 1), 0.4).toFixed(2)}%`;
    return element(
      "li",
      { class: classes },
      element("span", { class: "bar-name", dir: "auto", title: name }, tokenText(name)),
      element("span", { class: "bar-well", "aria-hidden": "true" }, bar),
      element("span", { class: "number" }, text),
    );
  });
  return element("ol", { class: "bars", "aria-label": label }, ...rows);
}
