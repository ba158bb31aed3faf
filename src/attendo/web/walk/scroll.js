/** Regions that scroll sideways: with a label, by keyboard, and with a fade and a hint where a part is hidden. */

import { element } from "../shared/dom.js";

const PADDING = 4; // pixels around the content that need not be seen

/**
 * A region around wide content.
 * @param {{label: string, hint: string, classes?: string}} options hint: what can be seen by scrolling
 * @param {...Node} content
 * @returns {{element: HTMLElement, scroller: HTMLElement}} scroller: what scrolls and can be focused
 */
export function scrollRegion({ label, hint, classes = "" }, ...content) {
  const scroller = element("div", { class: `scroller ${classes}`, tabindex: "0", role: "group", "aria-label": label }, ...content);
  const words = element("p", { class: "scroll-hint" }, element("span", { "aria-hidden": "true" }, "↔ "), `Swipe or scroll sideways to see ${hint}.`);
  const box = element("div", { class: "scroll-box" }, element("div", { class: "scroll-frame" }, scroller), words);
  markHidden(scroller, box);
  return { element: box, scroller };
}

/** Mark a box with `more-before` and `more-after` where content of its scroller is hidden. */
export function markHidden(scroller, box) {
  const refresh = () => {
    const hidden = scroller.scrollWidth - scroller.clientWidth;
    box.classList.toggle("scrolls", hidden > PADDING);
    box.classList.toggle("more-before", hidden > PADDING && scroller.scrollLeft > PADDING);
    box.classList.toggle("more-after", scroller.scrollLeft < hidden - PADDING);
  };
  scroller.addEventListener("scroll", refresh, { passive: true });
  const observer = new ResizeObserver(refresh);
  for (const watched of [scroller, ...scroller.children]) observer.observe(watched);
  new MutationObserver(refresh).observe(scroller, { childList: true });
}
