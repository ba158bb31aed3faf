/** One model's explorer: the grid of heads, the chosen head enlarged, and the panels with everything else. */

import { drawAblation } from "./ablation.js";
import { createCandidates } from "./candidates.js";
import { drawChecks } from "./checks.js";
import { weightColour } from "./colours.js";
import { element, explanation, nextTask } from "./dom.js";
import { createFocus, pinOf, spotOf, strongest, weightsOf } from "./focus.js";
import { createGrid } from "./grid.js";
import { axisTokens, chosenHead, createMaps, kindWithin, layerCount } from "./maps.js";
import { createMatrix } from "./matrix.js";
import { createPanel } from "./panel.js";
import { createRibbons } from "./ribbons.js";
import { createSilenceButtons, headName, toggled } from "./silence.js";
import { quoted } from "./tokens.js";
import { drawTree } from "./tree.js";
import { drawNorms, drawVectors } from "./vectors.js";

const SIDE_NAMES = {
  encoder: { rows: "source tokens, looking", columns: "source tokens, looked at" },
  cross: { rows: "target tokens, being written", columns: "source tokens, looked at" },
  decoder: { rows: "target tokens, looking", columns: "target tokens, looked at" },
};

/**
 * @param {Object} options
 * @param {any} options.store
 * @param {any} options.services what can be asked; what is missing is not shown
 * @param {boolean} options.canSilence
 */
export function createExplorer({ store, services, canSilence }) {
  let looked = null;
  let maps = null;
  let matrix = null;
  let shownKind = null;

  const focus = createFocus(highlight);
  const pin = (spot) => store.set({ pin: store.get().pin === pinOf(spot) ? null : pinOf(spot) }, "replace");
  const listeners = { onHover: focus.hover, onPin: pin };
  const grid = createGrid({
    onChoose: ({ layer, head }) => store.set({ layer, head }),
    onSilence: (where) => canSilence && typeof where.head === "number" && store.set({ silenced: toggled(store.get().silenced, headName(where)) }),
  });
  const ribbons = createRibbons(listeners);
  const matrixView = createMatrix(listeners);
  const candidates = createCandidates({
    onHover: (step) => isTargetRow() && focus.hover(step === null ? null : { side: "q", index: step }),
    onPin: (step) => isTargetRow() && pin({ side: "q", index: step }),
  });
  const silence = createSilenceButtons((silenced) => store.set({ silenced }));
  const panels = makePanels(services, store);

  const title = element("h3", { class: "enlarged-title" });
  const facts = element("p", { class: "head-facts" });
  const words = element("p", { class: "in-words", "aria-live": "polite" });
  const trouble = element("p", { class: "trouble", role: "status" });
  const legend = element("div", { class: "legend" });
  const root = element(
    "div",
    { class: "explorer", hidden: true },
    element(
      "div",
      { class: "split" },
      element("section", { class: "heads card" }, element("h3", {}, "All heads"), gridExplanation(), grid.element, legend),
      element(
        "section",
        { class: "enlarged card" },
        title,
        facts,
        canSilence ? silence.element : null,
        trouble,
        ribbons.element,
        words,
        matrixView.element,
      ),
      element("section", { class: "next card" }, element("h3", {}, "Next-token candidates"), candidatesExplanation(), candidates.element),
    ),
    ...Object.values(panels).map((panel) => panel.element),
  );

  /** The state, brought within what this model has. */
  function seenState() {
    const state = store.get();
    return { ...state, kind: kindWithin(looked, state.kind) };
  }

  function isTargetRow() {
    return seenState().kind !== "encoder";
  }

  function highlight(spot, pinned) {
    const fits = spot && matrix && spot.index < (spot.side === "q" ? matrix.rows : matrix.columns);
    const shown = fits ? spot : null;
    ribbons.highlight(shown, pinned);
    matrixView.highlight(shown);
    words.replaceChildren(inWords(shown, matrix, looked, shownKind));
    if (shown?.side === "q" && shownKind !== "encoder") candidates.showStep(shown.index);
  }

  async function enlarge(state) {
    const where = chosenHead(looked, state);
    const asked = maps;
    title.textContent = headTitle(where);
    facts.textContent = headFacts(where, looked);
    silence.show(where, state.silenced, looked.n_heads);
    root.classList.toggle("is-silenced", state.silenced.includes(headName(where)));
    try {
      trouble.textContent = "";
      const found = await asked.matrix(where);
      const stale = () => asked !== maps || JSON.stringify(where) !== JSON.stringify(chosenHead(looked, seenState()));
      if (stale()) return;
      await draw(found, where, stale);
    } catch (error) {
      trouble.textContent = error.message;
    }
  }

  async function draw(found, where, stale) {
    const tokens = axisTokens(looked, where.kind);
    ribbons.show(found, tokens.rows, tokens.columns, SIDE_NAMES[where.kind]);
    await nextTask();
    if (stale()) return;
    [matrix, shownKind] = [found, where.kind];
    matrixView.show(matrix, tokens.rows, tokens.columns, { triangle: where.kind === "decoder", title: headTitle(where) });
    focus.pin(spotOf(store.get().pin));
  }

  function wantPanels(state) {
    const where = chosenHead(looked, state);
    const { model, source, target, silenced } = looked;
    const about = { model, source, target, silenced };
    const want = (name, question, drawer) => {
      const load = (signal) => services[name](question, signal);
      panels[name]?.want(JSON.stringify(question), load, drawer);
    };
    const ofCross = where.kind === "cross" && typeof where.layer === "number";
    const layer = ofCross ? where.layer : null;
    const head = ofCross && where.head !== "mean" ? where.head : null;
    want("beams", { model, source, silenced, beam: state.beam }, drawTree);
    want("checks", { ...about, kind: "cross", layer, head }, (checks) => drawChecks(checks, looked));
    want("ablation", about, (ablation) => drawAblation(ablation, (choice) => store.set({ ...choice, pin: null })));
    if (panels.vectors && typeof where.head === "number") {
      want("vectors", { ...about, ...where }, (vectors) => drawVectors(vectors, axisTokens(looked, where.kind)));
    } else {
      panels.vectors?.want("none", () => Promise.resolve(null), () => element("p", {}, "Choose one head: a mean has no queries and keys of its own."));
    }
    if (looked.norms) panels.norms.want(JSON.stringify(about), () => Promise.resolve(looked.norms), (norms) => drawNorms(norms, looked));
    panels.norms.element.hidden = !looked.norms;
  }

  return {
    element: root,
    /** Show another look. @param {import("./api.js").Looked|null} newLooked */
    show(newLooked) {
      looked = newLooked;
      matrix = null; // the old weights do not belong to the new tokens
      root.hidden = looked === null || layerCount(looked, kindWithin(looked, "cross")) === 0;
      if (root.hidden) return;
      const { model, source, target, silenced } = looked;
      const fetchLayer = services.layer ? (kind, layer) => services.layer({ model, source, target, silenced, kind, layer }) : null;
      maps = createMaps(looked, fetchLayer);
      candidates.show(looked);
      nextTask().then(() => looked === newLooked && this.refresh());
    },
    /** Show the same look as the state says now. */
    refresh() {
      if (!looked || root.hidden) return;
      const state = seenState();
      const silenced = canSilence ? state.silenced : looked.silenced; // what can be changed shows at once
      grid.show(looked, maps, { ...state, silenced });
      for (const panel of Object.values(panels)) panel.setOpen(state.open.includes(panel.name));
      enlarge(state);
      wantPanels(state);
    },
    pin() {
      focus.pin(spotOf(store.get().pin));
    },
    /** Colours have changed. */
    recolour() {
      drawLegend(legend);
      if (!looked || root.hidden) return;
      grid.repaint();
      matrixView.repaint();
      highlight(focus.get(), spotOf(store.get().pin));
      for (const panel of Object.values(panels)) panel.redraw();
    },
    /** The chosen head, for the keyboard shortcut. */
    chosen: () => (looked ? chosenHead(looked, seenState()) : null),
  };
}

function makePanels(services, store) {
  const onToggle = (name, open) => {
    const others = store.get().open.filter((other) => other !== name);
    store.set({ open: open ? [...others, name] : others }, "replace");
  };
  const made = Object.entries(PANELS)
    .filter(([name]) => name === "norms" || services[name])
    .map(([name, texts]) => [name, createPanel({ name, ...texts, onToggle })]);
  return Object.fromEntries(made);
}

const PANELS = {
  beams: {
    title: "Beam search",
    hint: "What the search tried, kept and dropped.",
    sentences: [
      "The search writes several translations at once. At each step it keeps the few best beginnings, as many as the beam is wide, and drops the rest.",
      "The number under a token is the score of everything up to it: the sum of the logarithms of the probabilities. Closer to 0 is better.",
    ],
  },
  checks: {
    title: "Is attention an explanation?",
    hint: "Compare the weights with what really changes the translation.",
    sentences: [
      "A large weight shows where a head looked. It does not prove that the model used what it saw.",
      "So here are two other measurements. “Leave one out” takes each source token away and sees how much less likely the translation becomes. “Gradient × input” asks what a tiny change of each token would do.",
      "The rank correlation tells whether they put the source tokens in the same order: 1 is the same order, 0 is no relation, −1 is the reverse.",
    ],
  },
  ablation: {
    title: "Which heads matter?",
    hint: "How the loss changes when one head is silenced.",
    sentences: ["Each head is silenced alone, the rest stay. The loss says how surprised the model is by this translation; a head that matters makes it rise. Click a cell to see the head."],
  },
  vectors: {
    title: "Queries, keys, values",
    hint: "The numbers that the weights of this head are made of.",
    sentences: ["Each token makes a query, a key and a value. A score is the product of a query and a key, divided by the square root of their width. The softmax turns each row of scores into weights that sum to 1; the head hands on the values, mixed by these weights."],
  },
  norms: {
    title: "Residual stream",
    hint: "How long each token's vector is, after each layer.",
    sentences: ["Every layer adds to the vector of each token. Its length tells where much is added."],
  },
};

function headTitle({ kind, layer, head }) {
  const name = { encoder: "Encoder", cross: "Cross-attention", decoder: "Decoder" }[kind];
  if (layer === "rollout") return `${name} · rollout`;
  return `${name} · layer ${layer + 1} · ${head === "mean" ? "mean of heads" : `head ${head + 1}`}`;
}

function headFacts(where, looked) {
  if (where.layer === "rollout") return "All layers multiplied, each with its residual connection: how much of each input token could have reached each place.";
  if (where.head === "mean") return "The weights of all heads of this layer, averaged.";
  const facts = looked.heads[where.kind]?.[where.layer]?.[where.head];
  if (!facts) return "";
  const name = facts.name ? `${facts.name}, ${Math.round(100 * facts.share)} % of its rows` : "no simple pattern";
  const spread = `spread ${facts.entropy.toFixed(2)} bits`;
  return `${name} · ${spread} · ${facts.distance.toFixed(1)} tokens away on average`;
}

/** What a token looks at, as a sentence. */
function inWords(spot, matrix, looked, kind) {
  if (!spot) return "Point at a token to see only its weights; click to pin it.";
  const tokens = axisTokens(looked, kind);
  const weights = weightsOf(matrix, spot);
  const others = spot.side === "q" ? tokens.columns : tokens.rows;
  const self = quoted((spot.side === "q" ? tokens.rows : tokens.columns)[spot.index]);
  const list = strongest(weights, 4, 0.005).map((other) => `${quoted(others[other])} ${weights[other].toFixed(4)}`);
  const verb = spot.side === "k" ? "is looked at by" : kind === "cross" ? "was written looking at" : "looks at";
  return `${self} ${verb} ${list.join(", ") || "nothing much"}.`;
}

function drawLegend(legend) {
  const stops = Array.from({ length: 17 }, (_, at) => `${weightColour(at / 16)} ${(100 * at) / 16}%`);
  const bar = element("div", { class: "legend-bar", role: "img", "aria-label": "Colour scale of weights from 0 to 1" });
  bar.style.backgroundImage = `linear-gradient(to right, ${stops.join(", ")})`;
  const ticks = [0, 0.05, 0.25, 0.5, 1].map((weight) => {
    const tick = element("span", {}, String(weight));
    tick.style.left = `${100 * Math.sqrt(weight)}%`;
    return tick;
  });
  legend.replaceChildren(element("span", {}, "weight"), bar, element("div", { class: "legend-ticks", "aria-hidden": "true" }, ...ticks));
}

function gridExplanation() {
  return explanation(
    "the small maps",
    "Each small map is one head: a row for each token that looks, a column for each token it looks at. Each row sums to 1. Darker (in dark colours: brighter) is more.",
    "The colour grows with the square root of the weight, so that small weights can be seen.",
    "The name under a map is what the head measurably does, and in how many of its rows.",
    "The rollout multiplies the layers: it follows attention from the last layer down to the words.",
  );
}

function candidatesExplanation() {
  return explanation(
    "next-token candidates",
    "At each step the model gives every token of its vocabulary a probability. The bars over the words show how likely the written token was; the list shows the best candidates of one step.",
    "At first you see the step of which the model was least sure.",
  );
}
