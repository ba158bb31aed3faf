/**
 * Colours of weights. One scale from the page's background to a deep blue (light) or a pale yellow (dark), mixed in
 * OKLab and placed by lightness, so that equal steps look equal and remain so without colour vision.
 */

const STEPS = 256;

// Each list runs from "nothing" to "most"; where a stop sits on the scale follows from its lightness.
const WEIGHT_STOPS = {
  light: ["#f1f4f4", "#b5dadb", "#5fabbc", "#1f6f98", "#0c2a52"],
  dark: ["#1f262f", "#1d4a63", "#23809a", "#69bfb3", "#f0f7cf"],
};

// From most negative through nothing to most positive: blue and orange are distinct with any colour vision.
const SIGNED_STOPS = {
  light: { negative: ["#f3f4f3", "#8dbbe0", "#0b4f8a"], positive: ["#f3f4f3", "#eeb583", "#9c4209"] },
  dark: { negative: ["#1f262f", "#33648f", "#8fccf7"], positive: ["#1f262f", "#94592a", "#f9b97f"] },
};

const builtTables = new Map();

/** "light" or "dark": what was chosen here, else what the system prefers. */
export function currentTheme() {
  const chosen = document.documentElement.dataset.theme;
  if (chosen === "light" || chosen === "dark") return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/**
 * Place of a weight on the scale, 0 to 1. The square root makes small weights visible; the legend shows it.
 * @param {number} weight
 */
export function weightLevel(weight) {
  return Math.sqrt(Math.min(Math.max(weight, 0), 1));
}

/** Packed pixels (for a Uint32Array over canvas data) of the weight scale. */
export function weightPixels(theme = currentTheme()) {
  return tableOf(`weight ${theme}`, () => mixedTable(WEIGHT_STOPS[theme]).map(packed));
}

/** Packed pixels from -1 (index 0) through 0 to 1 (index 510). */
export function signedPixels(theme = currentTheme()) {
  return tableOf(`signed ${theme}`, () => {
    const { negative, positive } = SIGNED_STOPS[theme];
    return [...mixedTable(negative).reverse(), ...mixedTable(positive).slice(1)].map(packed);
  });
}

/** CSS colour of a level of the weight scale. */
export function weightColour(level, theme = currentTheme()) {
  return cssColour(weightPixels(theme)[Math.round(level * (STEPS - 1))]);
}

/** CSS colour of a signed value between -1 and 1. */
export function signedColour(value, theme = currentTheme()) {
  const bounded = Math.min(Math.max(value, -1), 1);
  return cssColour(signedPixels(theme)[Math.round((bounded + 1) * (STEPS - 1))]);
}

/** Black or white, whichever can be read better on a CSS `rgb()` colour. */
export function readableOn(colour) {
  const [red, green, blue] = colour.match(/\d+/g).map((part) => linear(Number(part) / 255));
  const luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return luminance > 0.179 ? "#000" : "#fff"; // where both contrasts are equal
}

function tableOf(name, build) {
  if (!builtTables.has(name)) builtTables.set(name, build());
  return builtTables.get(name);
}

function mixedTable(stops) {
  const points = stops.map((stop) => toOklab(stop));
  const [first, last] = [points[0][0], points[points.length - 1][0]];
  const places = points.map((point) => (point[0] - first) / (last - first));
  return Array.from({ length: STEPS }, (_, step) => {
    const place = step / (STEPS - 1);
    const upper = Math.max(1, places.findIndex((at) => at >= place - 1e-9));
    const share = (place - places[upper - 1]) / (places[upper] - places[upper - 1]);
    return fromOklab(points[upper - 1].map((from, axis) => from + share * (points[upper][axis] - from)));
  });
}

function linear(value) {
  return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
}

function companded(value) {
  const bounded = Math.min(Math.max(value, 0), 1);
  return bounded <= 0.0031308 ? 12.92 * bounded : 1.055 * bounded ** (1 / 2.4) - 0.055;
}

// Matrices of Björn Ottosson's OKLab, https://bottosson.github.io/posts/oklab/
function toOklab(hex) {
  const [red, green, blue] = [1, 3, 5].map((at) => linear(parseInt(hex.slice(at, at + 2), 16) / 255));
  const l = Math.cbrt(0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue);
  const m = Math.cbrt(0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue);
  const s = Math.cbrt(0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

function fromOklab([lightness, a, b]) {
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ].map((value) => Math.round(255 * companded(value)));
}

// Canvas pixels are red, green, blue, alpha in memory: the lowest byte of a little-endian number comes first.
function packed([red, green, blue]) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

function cssColour(pixel) {
  return `rgb(${pixel & 255}, ${(pixel >> 8) & 255}, ${(pixel >> 16) & 255})`;
}
