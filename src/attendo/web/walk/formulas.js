/** The formulas of the stations, as MathML with a spoken form for screen readers. */

const MATH_NAMESPACE = "http://www.w3.org/1998/Math/MathML";

function make(tag, ...children) {
  const made = document.createElementNS(MATH_NAMESPACE, tag);
  made.append(...children);
  return made;
}

// One letter is a variable (slanted), "d_k" a variable with a subscript, everything else is set as it is.
function part(piece) {
  if (piece instanceof Node) return piece;
  if (/^\d[\d,.]*$/.test(piece)) return make("mn", piece);
  const [base, below] = piece.split("_");
  if (below) return make("msub", part(base), below === "model" ? upright(below) : part(below));
  if (/^\p{L}$/u.test(piece)) return make("mi", piece);
  return /^\p{L}/u.test(piece) ? upright(piece) : operator(piece);
}

// "((" and "))" grow with what they hold; single brackets stay small, or they would tower over a lone letter.
function operator(piece) {
  if (piece === "…") return make("mi", piece); // as an operator it would get spaces of its own
  const grows = piece === "((" || piece === "))";
  const made = make("mo", grows ? piece[0] : piece);
  if (!grows) made.setAttribute("stretchy", "false");
  if (piece === "," || piece === ";") made.setAttribute("rspace", "0.3em");
  return made;
}

function space(width) {
  const made = make("mspace");
  made.setAttribute("width", width);
  return made;
}

const upright = (word) => make("mtext", word);
const row = (...pieces) => make("mrow", ...pieces.map(part));
const fraction = (above, below) => make("mfrac", row(above), row(below));
const root = (...pieces) => make("msqrt", ...pieces.map(part));
const power = (base, ...above) => make("msup", part(base), row(...above));
const index = (base, ...below) => make("msub", part(base), row(...below));
/** Factors side by side; without a little space they would read as one name. */
const product = (...factors) => make("mrow", ...factors.flatMap((factor, at) => [...(at ? [space("0.18em")] : []), part(factor)]));
const sum = (...below) => make("munder", make("mo", "∑"), row(...below));

/** A formula; `words` is for screen readers. */
function formula(words, ...pieces) {
  const made = make("math", row(...pieces));
  made.setAttribute("display", "block");
  made.setAttribute("alttext", words);
  made.setAttribute("aria-label", words);
  return made;
}

function wave(name, parity) {
  const exponent = row(product("2", "i"), "/", "d_model");
  const angle = fraction("pos", power("10,000", exponent));
  return formula(
    `P E of position and ${parity} equals ${name === "sin" ? "sine" : "cosine"} of position over 10,000 to the power 2 i over d model`,
    index("PE", "(", "pos", ",", product("2", "i"), ...(parity === "2 i + 1" ? ["+", "1"] : []), ")"),
    "=",
    name,
    "((",
    angle,
    "))",
  );
}

function projection(name, input, origin) {
  const words = { Q: "queries", K: "keys", V: "values" }[name];
  return formula(
    `${name} equals ${input} times W ${name}, plus bias: the ${words}, ${origin}`,
    name,
    "=",
    product(input, power("W", name)),
    "+",
    power("b", name),
  );
}

/** @type {Record<string, () => Element[]>} by station */
export const FORMULAS = {
  tokens: () => [
    formula("The sentence becomes tokens t 1 to t n", "sentence", "⟶", "(", "t_1", ",", "t_2", ",", "…", ",", "t_n", ")"),
  ],
  ids: () => [
    formula(
      "x i is the index of token t i in the vocabulary, from 0 to V minus 1",
      "x_i",
      "=",
      "index",
      "(",
      "t_i",
      ")",
      "∈",
      "{",
      "0",
      ",",
      "…",
      ",",
      "V",
      "−",
      "1",
      "}",
    ),
  ],
  embeddings: () => [
    formula(
      "e i equals the square root of d model times row x i of the matrix E",
      "e_i",
      "=",
      root("d_model"),
      "·",
      "E",
      "[",
      "x_i",
      "]",
    ),
  ],
  positions: () => [wave("sin", "2 i"), wave("cos", "2 i + 1")],
  qkv: () => ["Q", "K", "V"].map((name) => projection(name, "X", "from the input of the layer")),
  scores: () => [
    formula(
      "s i j equals q i dot k j, the sum over the dimensions c of q i c times k j c",
      index("s", "i", "j"),
      "=",
      "q_i",
      "·",
      "k_j",
      "=",
      sum("c"),
      product(index("q", "i", "c"), index("k", "j", "c")),
    ),
    formula("S equals Q times K transposed", "S", "=", product("Q", power("K", upright("T")))),
  ],
  scaling: () => [
    formula(
      "S equals Q K transposed over the square root of d k",
      "S",
      "=",
      fraction(product("Q", power("K", upright("T"))), root("d_k")),
    ),
  ],
  mask: () => [
    formula(
      "s i j becomes minus infinity where j is greater than i",
      index("s", "i", "j"),
      "←",
      upright("−∞"),
      upright("\u2003where\u2003"),
      "j",
      ">",
      "i",
    ),
  ],
  softmax: () => [
    formula(
      "w i j equals e to the s i j, over the sum of all e to the s i m",
      index("w", "i", "j"),
      "=",
      fraction(power("e", index("s", "i", "j")), row(sum("m"), power("e", index("s", "i", "m")))),
    ),
  ],
  sum: () => [
    formula("z i equals the sum over j of w i j times v j", "z_i", "=", sum("j"), product(index("w", "i", "j"), "v_j")),
    formula(
      "Attention of Q, K, V equals softmax of Q K transposed over root d k, times V",
      "Attention",
      "(",
      "Q",
      ",",
      "K",
      ",",
      "V",
      ")",
      "=",
      "softmax",
      "((",
      fraction(product("Q", power("K", upright("T"))), root("d_k")),
      "))",
      space("0.25em"),
      "V",
    ),
  ],
  heads: () => [
    formula(
      "head i equals attention of X W Q i, X W K i, X W V i",
      "head_i",
      "=",
      "Attention",
      "(",
      ...["Q", "K", "V"].flatMap((name, at) => [...(at ? [","] : []), product("X", make("msubsup", part("W"), part("i"), part(name)))]),
      ")",
    ),
  ],
  concatenation: () => [
    formula(
      "H equals the concatenation of head 1 to head h",
      "H",
      "=",
      "Concat",
      "(",
      "head_1",
      ",",
      "…",
      ",",
      "head_h",
      ")",
    ),
    formula(
      "MultiHead of X equals H times W O, plus bias",
      "MultiHead",
      "(",
      "X",
      ")",
      "=",
      product("H", power("W", "O")),
      "+",
      power("b", "O"),
    ),
  ],
  norm: () => [
    formula("y equals LayerNorm of x plus attention of x", "y", "=", "LayerNorm", "(", "x", "+", "MultiHead", "(", "x", ")", ")"),
    formula(
      "LayerNorm of a equals gamma times a minus mean, over the root of variance plus epsilon, plus beta",
      "LayerNorm",
      "(",
      "a",
      ")",
      "=",
      "γ",
      space("0.18em"),
      fraction(row("a", "−", "μ"), root(power("σ", "2"), "+", "ε")),
      "+",
      "β",
    ),
  ],
  feedforward: () => [
    formula(
      "FFN of x equals the larger of 0 and x W 1 plus b 1, times W 2, plus b 2",
      "FFN",
      "(",
      "x",
      ")",
      "=",
      "max",
      "(",
      "0",
      ",",
      product("x", "W_1"),
      "+",
      "b_1",
      ")",
      space("0.25em"),
      "W_2",
      "+",
      "b_2",
    ),
  ],
  stack: () => [
    formula(
      "x of layer l equals Layer l of x of layer l minus 1",
      power("x", "(", "l", ")"),
      "=",
      "Layer_l",
      "(",
      power("x", "(", "l", "−", "1", ")"),
      ")",
    ),
  ],
  cross: () => [
    projection("Q", "Y", "from the decoder"),
    projection("K", "M", "from the memory M, the output of the encoder"),
    projection("V", "M", "from the memory M"),
  ],
  bert: () => [
    formula("Token x i is replaced by mask", "x_i", "←", upright("<mask>")),
    formula(
      "The probabilities of x i are the softmax of the head of y i, times E transposed, plus bias",
      "p",
      "(",
      "x_i",
      ")",
      "=",
      "softmax",
      "(",
      "Head",
      "(",
      "y_i",
      ")",
      space("0.18em"),
      power("E", upright("T")),
      "+",
      "b",
      ")",
    ),
  ],
  gpt: () => [
    formula(
      "y i depends on the tokens x 1 to x i",
      "y_i",
      "=",
      "Decoder",
      "(",
      "x_1",
      ",",
      "…",
      ",",
      "x_i",
      ")",
    ),
    formula(
      "The probabilities of x i plus 1 are the softmax of y i times E transposed",
      "p",
      "(",
      index("x", "i", "+", "1"),
      ")",
      "=",
      "softmax",
      "(",
      product("y_i", power("E", upright("T"))),
      ")",
    ),
  ],
  output: () => [
    formula("p equals softmax of y times E transposed", "p", "=", "softmax", "(", product("y", power("E", upright("T"))), ")"),
  ],
};
