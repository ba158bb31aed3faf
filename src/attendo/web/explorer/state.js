/** What has been chosen, and its form in the address, so that a link shows the same. */

/**
 * @typedef {Object} State
 * @property {string} model
 * @property {string} compare second model, or ""
 * @property {string} source
 * @property {string|null} target a translation given by hand, or null: the model's own
 * @property {"encoder"|"cross"|"decoder"} kind
 * @property {number|"rollout"|null} layer null: the last one
 * @property {number|"mean"} head
 * @property {string|null} pin "q3": the token of row 3, "k5": the token of column 5
 * @property {string[]} ablated like "cross.1.0": kind, layer, head
 * @property {number} beam
 * @property {number|null} sentence which of several sentences is inspected; null: the one being edited, else the first
 * @property {number} temperature of the candidates, and of a sample
 * @property {number|null} seed of a sampled continuation; null: the most probable tokens
 * @property {string[]} open panels that are open
 */

export const KINDS = ["encoder", "cross", "decoder"];

/** @type {Readonly<State>} */
export const DEFAULT_STATE = Object.freeze({
  model: "",
  compare: "",
  source: "",
  target: null,
  kind: "cross",
  layer: null,
  head: "mean",
  pin: null,
  ablated: [],
  beam: 4,
  sentence: null,
  temperature: 1,
  seed: null,
  open: [],
});

/** Write the state as an address fragment; defaults are left out. */
export function toFragment(state) {
  const fields = new URLSearchParams();
  for (const [name, usual] of Object.entries(DEFAULT_STATE)) {
    const value = state[name];
    const text = Array.isArray(value) ? value.join(",") : value;
    const usualText = Array.isArray(usual) ? "" : usual;
    if (text !== usualText && text !== null) fields.set(name, String(text));
  }
  return `#${fields}`;
}

/** Read a fragment from any source: what is not valid gets its default. */
export function fromFragment(fragment) {
  const fields = new URLSearchParams(fragment.replace(/^#/, ""));
  const pick = (name, pattern, usual) => {
    const text = fields.get(name);
    return text !== null && pattern.test(text) ? text : usual;
  };
  const list = (name, pattern) => (fields.get(name) ?? "").split(",").filter((item) => pattern.test(item));
  const number = (text) => (/^\d+$/.test(text) ? Number(text) : text);
  return {
    model: fields.get("model") ?? "",
    compare: fields.get("compare") ?? "",
    source: fields.get("source") ?? "",
    target: fields.get("target"),
    kind: pick("kind", /^(encoder|cross|decoder)$/, DEFAULT_STATE.kind),
    layer: number(pick("layer", /^(\d{1,3}|rollout)$/, null)),
    head: number(pick("head", /^(\d{1,3}|mean)$/, DEFAULT_STATE.head)),
    pin: pick("pin", /^[qk]\d{1,5}$/, null),
    ablated: [...new Set(list("ablated", /^(encoder|cross|decoder)\.\d{1,3}\.\d{1,3}$/))],
    beam: Number(pick("beam", /^([1-9]|1[0-6])$/, DEFAULT_STATE.beam)),
    sentence: number(pick("sentence", /^\d{1,5}$/, null)),
    temperature: Number(pick("temperature", /^\d(\.\d{1,2})?$/, DEFAULT_STATE.temperature)),
    seed: number(pick("seed", /^\d{1,9}$/, null)),
    open: list("open", /^[a-z]{1,20}$/),
  };
}

/**
 * Holds the state and notifies listeners of changes.
 * `how` is "push" for a step that the back button undoes, "replace" for a small one, "location" for one that came from the address.
 * @param {State} initial
 */
export function createStore(initial) {
  let state = initial;
  const listeners = new Set();
  return {
    get: () => state,
    set(patch, how = "push") {
      const before = state;
      state = { ...state, ...patch };
      if (toFragment(before) === toFragment(state)) return;
      for (const listener of listeners) listener(state, before, how);
    },
    subscribe(listener) {
      listeners.add(listener);
    },
  };
}

/** Keep the address and the store alike, in both directions. */
export function bindToAddress(store) {
  let timer = 0;
  const write = (state, method) => {
    clearTimeout(timer);
    const fragment = toFragment(state);
    if (fragment !== location.hash) history[method](null, "", fragment);
  };
  store.subscribe((state, before, how) => {
    if (how === "push") {
      write(before, "replaceState"); // small steps that still waited belong to the entry we leave
      write(state, "pushState");
    } else if (how === "replace") {
      clearTimeout(timer);
      timer = setTimeout(() => write(store.get(), "replaceState"), 300); // browsers limit how often
    }
  });
  addEventListener("popstate", () => {
    clearTimeout(timer);
    const given = fromFragment(location.hash);
    const { model, source } = store.get();
    store.set({ ...given, model: given.model || model, source: given.source || source }, "location");
  });
}
