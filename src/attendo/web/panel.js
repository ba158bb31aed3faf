/** A part of the page that opens on demand and only then asks for its data. */

import { wasDropped } from "./api.js";
import { element, explanation } from "./dom.js";

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
  const summary = element("summary", {}, element("h3", {}, title), element("span", { class: "hint" }, hint));
  const box = element("details", { class: "panel" }, summary, ...(sentences.length ? [explanation(title, ...sentences)] : []), status, content);
  let want = null; // the newest {key, load, draw}
  let shownKey = null;
  let shown = null; // how to draw what is shown once more
  let question = new AbortController();

  box.addEventListener("toggle", () => {
    onToggle(name, box.open);
    refresh();
  });

  async function refresh() {
    if (!box.open || !want || want.key === shownKey) return;
    const { key, load, draw } = want;
    shownKey = key;
    question.abort();
    question = new AbortController();
    const { signal } = question;
    status.textContent = "…";
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
    /** Say what belongs into the panel now; it is fetched when the panel is open and `key` is new. */
    want(key, load, draw) {
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
