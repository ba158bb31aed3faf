/** Small helpers to make page elements. Text always becomes a text node, never markup. */

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";
let lastId = 0;

/**
 * Make an HTML element. `on` holds listeners, `class` the classes; everything else is an attribute
 * (true: present, false, null or undefined: absent).
 * @param {string} tag
 * @param {Record<string, any>} [options]
 * @param {...(Node|string|null)} children
 * @returns {any}
 */
export function element(tag, options = {}, ...children) {
  return furnish(document.createElement(tag), options, children);
}

/** Make an SVG element; arguments as in `element`. */
export function svgElement(tag, options = {}, ...children) {
  return furnish(document.createElementNS(SVG_NAMESPACE, tag), options, children);
}

function furnish(made, options, children) {
  for (const [name, value] of Object.entries(options)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    } else if (value !== false && value !== null && value !== undefined) {
      made.setAttribute(name, value === true ? "" : String(value));
    }
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** An id that no other element of this page has. */
export function uniqueId(prefix) {
  lastId += 1;
  return `${prefix}-${lastId}`;
}

const CAN_BE_FOCUSED = "[tabindex], button, input, select, summary";

/** Replace the content of a box; the focus stays where it was. */
export function refill(box, children) {
  const before = [...box.querySelectorAll(CAN_BE_FOCUSED)].indexOf(document.activeElement);
  box.replaceChildren(...children.filter(Boolean));
  if (before >= 0) box.querySelectorAll(CAN_BE_FOCUSED)[before]?.focus({ preventScroll: true });
}

/** A push button. */
export function pushButton(text, onClick, options = {}) {
  return element("button", { type: "button", class: "button", on: { click: onClick }, ...options }, text);
}

/** A "?" that opens a longer explanation. */
export function explanation(about, ...sentences) {
  return element(
    "details",
    { class: "why" },
    element("summary", { title: `Explain: ${about}` }, element("span", { "aria-hidden": "true" }, "?"), element("span", { class: "unseen" }, `Explain: ${about}`)),
    element("div", { class: "why-text" }, ...sentences.map((sentence) => element("p", {}, sentence))),
  );
}

/** Whether the main pointer is a finger rather than a mouse. */
export function isTouched() {
  return matchMedia("(pointer: coarse)").matches;
}

/** Mark the sides on which a box scrolls on, so that it shows that it continues. */
export function showOverflow(scroller, frame) {
  const mark = () => {
    const rest = scroller.scrollWidth - scroller.clientWidth - scroller.scrollLeft;
    frame.classList.toggle("continues-left", scroller.scrollLeft > 2);
    frame.classList.toggle("continues-right", rest > 2);
  };
  scroller.addEventListener("scroll", oncePerFrame(mark), { passive: true });
  new ResizeObserver(mark).observe(scroller);
}

/** Call `action` at most once per animation frame, with the newest arguments. */
export function oncePerFrame(action) {
  let waiting = null;
  return (...values) => {
    const first = waiting === null;
    waiting = values;
    if (!first) return;
    requestAnimationFrame(() => {
      const newest = waiting;
      waiting = null;
      action(...newest);
    });
  };
}

/** Let the browser handle events before the work continues: long work is cut into short tasks. */
export function nextTask() {
  return new Promise((resume) => setTimeout(resume, 0));
}

/** Call `action` after a pause of `milliseconds` without further calls. */
export function afterPause(action, milliseconds) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), milliseconds);
  };
}

/**
 * Arrow keys among the items of a row: one of them can be reached by Tab, the arrows move from there.
 * @param {HTMLElement} container
 * @param {string} selector which descendants take part
 */
export function arrowKeys(container, selector) {
  container.addEventListener("keydown", (event) => {
    const items = /** @type {HTMLElement[]} */ ([...container.querySelectorAll(selector)]);
    const here = items.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const next = nextIndex(event.key, here, items.length);
    if (here < 0 || next === null) return;
    event.preventDefault();
    items[here].tabIndex = -1;
    items[next].tabIndex = 0;
    items[next].focus();
  });
}

function nextIndex(key, here, count) {
  if (key === "ArrowRight" || key === "ArrowDown") return Math.min(here + 1, count - 1);
  if (key === "ArrowLeft" || key === "ArrowUp") return Math.max(here - 1, 0);
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  return null;
}
