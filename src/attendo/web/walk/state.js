/** What is chosen in the walk-through, and its form in the address: "#softmax&source=…&token=3&head=1". */

/**
 * @typedef {Object} WalkState
 * @property {string} station
 * @property {string} source
 * @property {string|null} target a translation entered by hand, or null: the model's own
 * @property {number|null} token position of the source token whose query is shown, from 0; null: not chosen yet
 * @property {number|null} head from 0
 * @property {number|null} step position of the decoder's input token, from 0
 */

/** @type {Readonly<WalkState>} */
export const FIRST_STATE = Object.freeze({
  station: "tokens",
  source: "The brothers want to sell the car.",
  target: null,
  token: null,
  head: null,
  step: null,
});

/** Write the state as an address fragment, without what was not chosen. @param {WalkState} state */
export function toFragment(state) {
  const fields = new URLSearchParams();
  for (const name of ["source", "target", "token", "head", "step"]) {
    if (state[name] !== FIRST_STATE[name]) fields.set(name, String(state[name]));
  }
  const rest = fields.toString();
  return `#${state.station}${rest ? `&${rest}` : ""}`;
}

/**
 * Read a fragment that anybody may have written; what makes no sense is ignored.
 * @param {string} fragment
 * @param {string[]} stations those that there are
 * @returns {WalkState}
 */
export function fromFragment(fragment, stations) {
  const [station, ...rest] = fragment.replace(/^#/, "").split("&");
  const fields = new URLSearchParams(rest.join("&"));
  const place = (name) => (/^\d{1,3}$/.test(fields.get(name) ?? "") ? Number(fields.get(name)) : null);
  return {
    station: stations.includes(station) ? station : FIRST_STATE.station,
    source: fields.get("source") || FIRST_STATE.source,
    target: fields.get("target"),
    token: place("token"),
    head: place("head"),
    step: place("step"),
  };
}

/**
 * Complete the choices for a station: within what the walk has, and the server's suggestion for what was not chosen.
 * A station with a model of its own completes them itself.
 * @param {WalkState} state
 * @param {import("./server.js").Walk} walk
 * @param {import("./station.js").Station} station
 */
export function completed(state, walk, { attention = "encoder" }) {
  const { start } = walk;
  if (!start[attention]) return state;
  const steps = attention === "encoder" ? start.cross : start[attention];
  return {
    ...state,
    token: Math.min(state.token ?? start.encoder.row, walk.source_tokens.length - 1),
    head: Math.min(state.head ?? start[attention].head, walk.sizes.n_heads - 1),
    step: Math.min(state.step ?? steps.row, walk.target_inputs.length - 1),
  };
}
