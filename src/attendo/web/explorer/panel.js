/** A part of the page that opens on demand and only then requests its data. */

import { wasDropped } from "../shared/api.js";
import { element, explanation } from "../shared/dom.js";

/**
 * @param {Object} options
 * @param {string} options.name short name, kept in the address while the panel is open
 * @param {string} options.title
 * @param {string} options.hint one short sentence under the title
 * @param {string[]} [options.sentences] a longer explanation, behind a "?"
 * @param {(name: string, open: boolean) => void} options.onToggle
 */
export function createPanel({ name, title, hint, sentences = [], onToggle }) {
  const content = element("div", { class: "panel-content" });
  const status = element("p", { class: "panel-status", role: "status" });
  const heading = element("h3", {}, title);
  const hintLine = element("span", { class: "hint" }, hint);
  const summary = element("summary", {}, heading, hintLine);
  const box = element("details", { class: "panel" }, summary, ...(sentences.length ? [explanation(title, ...sentences)] : []), status, content);
  let want = null; // the newest {key, load, draw}
  let shownKey = null;
  let shown = null; // how to draw what is shown once more
  let pending = new AbortController();

  box.addEventListener("toggle", () => {
    onToggle(name, box.open);
    refresh();
  });

  async function refresh() {
    if (!box.open || !want || want.key === shownKey) return;
    const { key, load, draw } = want;
    shownKey = key;
    pending.abort();
    pending = new AbortController();
    const { signal } = pending;
    status.textContent = "Computing …";
    content.classList.add("stale");
    try {
      const data = await load(signal);
      if (signal.aborted) return;
      shown = () => content.replaceChildren(draw(data));
      shown();
      status.textContent = "";
    } catch (error) {
      if (signal.aborted || wasDropped(error)) return;
      [shownKey, shown] = [null, null];
      content.replaceChildren();
      status.textContent = error.message;
    }
    content.classList.remove("stale");
  }

  return {
    element: box,
    name,
    /** Set what belongs into the panel; it is requested when the panel is open and `key` is new. */
    want(key, load, draw, texts = null) {
      if (texts) [heading.textContent, hintLine.textContent] = [texts.title, texts.hint];
      want = { key, load, draw };
      refresh();
    },
    /** Draw once more, for instance in other colours. */
    redraw() {
      if (box.open) shown?.();
    },
    setOpen(open) {
      if (box.open !== open) box.open = open;
    },
  };
}
