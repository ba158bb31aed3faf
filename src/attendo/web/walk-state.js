/** What the person has chosen on the walk, and its form in the address: "#softmax&source=…&token=3&head=1". */

/**
 * @typedef {Object} WalkState
 * @property {string} station
 * @property {string} source
 * @property {string|null} target a translation given by hand, or null: the model's own
 * @property {number} token place of the source token that asks, from 0
 * @property {number} head from 0
 * @property {number} step place of the target token, from 0
 */

/** @type {Readonly<WalkState>} */
export const FIRST_STATE = Object.freeze({
  station: "tokens",
  source: "The dog sees the cat.",
  target: null,
  token: 1,
  head: 0,
  step: 1,
});

/** Write the state as an address fragment; what is as usual is left out. @param {WalkState} state */
export function toFragment(state) {
  const fields = new URLSearchParams();
  for (const name of ["source", "target", "token", "head", "step"]) {
    if (state[name] !== FIRST_STATE[name]) fields.set(name, String(state[name]));
  }
  const rest = fields.toString();
  return `#${state.station}${rest ? `&${rest}` : ""}`;
}

/**
 * Read a fragment that anybody may have written: what makes no sense is as usual.
 * @param {string} fragment
 * @param {string[]} stations those that there are
 * @returns {WalkState}
 */
export function fromFragment(fragment, stations) {
  const [station, ...rest] = fragment.replace(/^#/, "").split("&");
  const fields = new URLSearchParams(rest.join("&"));
  const place = (name) => (/^\d{1,3}$/.test(fields.get(name) ?? "") ? Number(fields.get(name)) : FIRST_STATE[name]);
  return {
    station: stations.includes(station) ? station : FIRST_STATE.station,
    source: fields.get("source") || FIRST_STATE.source,
    target: fields.get("target"),
    token: place("token"),
    head: place("head"),
    step: place("step"),
  };
}

/** Bring the choices within what the walk has. @param {WalkState} state @param {import("./walk-server.js").Walk} walk */
export function within(state, walk) {
  return {
    ...state,
    token: Math.min(state.token, walk.source_tokens.length - 1),
    head: Math.min(state.head, walk.sizes.n_heads - 1),
    step: Math.min(state.step, walk.target_inputs.length - 1),
  };
}
