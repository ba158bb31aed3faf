"""The JSON of requests and responses: fields, meanings, limits, and an example of each.

The reference of the HTTP API is generated from here. Lists in examples are shortened.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

LONGEST_TEXT = 20_000
"""Most characters of a text."""

LONGEST_FILE = 4_000_000
"""Most characters of a file as a data URL: about 3 MB."""

Text = Annotated[str, Field(max_length=LONGEST_TEXT)]


def _check_length(source: str) -> str:
    if len(source) > LONGEST_TEXT and not source.startswith("data:"):
        raise ValueError(f"the text has {len(source):,} characters; the limit is {LONGEST_TEXT:,}")
    return source


TextOrFile = Annotated[str, Field(max_length=LONGEST_FILE), AfterValidator(_check_length)]
Beam = Annotated[int, Field(ge=1, le=16)]
Index = Annotated[int, Field(ge=0)]
Kind = Literal["encoder", "decoder", "cross"]
Matrix = list[list[float]]

SOURCE, TARGET = "The dog sleeps.", "Der Hund schläft."


def _example(**values: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [values]})


class Model(BaseModel):
    """Base of all: attribute docstrings are descriptions, unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class ErrorResponse(Model):
    """The body of every error."""

    model_config = _example(error="source: field required")

    error: str
    """What was wrong, what was expected and what to do, in one line."""


class ModelRequest(Model):
    """A text for one of the models."""

    model: str = ""
    """Name of a model, as in /api/models; empty for the first one."""
    source: Text
    """The text: of a translator, in the source language."""
    ablated: list[str] = Field(default=[], max_length=1000)
    """Attention heads to ablate, such as "cross.1.0": kind, layer and head, counted from 0."""


class TranslateRequest(ModelRequest):
    """A text to translate."""

    model_config = _example(source=SOURCE, beam=4)

    beam: Beam = 4
    """Beam size of the search."""


class LookRequest(ModelRequest):
    """A text to run through a model, and optionally its translation."""

    model_config = _example(source=SOURCE)

    source: TextOrFile
    """The text; for a model that reads files, the file as a URL, data:image/png;base64,..."""
    target: Text | None = None
    """Of a translator: the text in the target language; by default its own translation."""


class BeginningRequest(Model):
    """A document, of which a model reads the beginning."""

    model_config = _example(source="The dog sleeps. Two birds sing.")

    model: str = ""
    """Name of a model, as in /api/models; empty for the first one."""
    source: Text
    """The document."""


class LayerRequest(LookRequest):
    """One layer of one kind of attention."""

    model_config = _example(source=SOURCE, kind="cross", layer=1)

    kind: Kind
    """Encoder self-attention, decoder self-attention or cross-attention."""
    layer: Index
    """Layer, counted from 0."""


class HeadRequest(LayerRequest):
    """One attention head."""

    model_config = _example(source=SOURCE, kind="cross", layer=1, head=0)

    head: Index
    """Head, counted from 0."""


class ChecksRequest(LookRequest):
    """Which cross-attention weights to compare with other measurements."""

    model_config = _example(source=SOURCE, layer=1)

    kind: Literal["cross"] = "cross"
    """Cross-attention is the only kind that is compared."""
    layer: Index | None = None
    """Layer, counted from 0; by default the mean of all layers."""
    head: Index | None = None
    """Head, counted from 0; by default the mean of all heads."""


class GenerateRequest(ModelRequest):
    """A text for a language model to continue."""

    model_config = _example(model="walk-gpt", source="The old dog", tokens=10)

    tokens: int = Field(default=20, ge=1, le=500)
    """Most tokens to add."""
    seed: int | None = Field(default=None, ge=0, lt=2**31)
    """Random seed of a sample; by default the most probable token is added each time."""
    temperature: float = Field(default=1.0, ge=0.05, le=10)
    """Of a sample: below 1 the text is more probable, above 1 less."""


class BeamsRequest(ModelRequest):
    """A text, or a recording, whose beam search is recorded."""

    model_config = _example(source=SOURCE, beam=2)

    source: TextOrFile
    """The text in the source language; or a recording, as a URL: data:audio/wav;base64,..."""
    beam: Beam = 4
    """Beam size of the search."""


class WalkRequest(Model):
    """A sentence for the small model of the walk-through."""

    model_config = _example(source="The dog sees the cat.")

    source: Text
    """The sentence, at most 23 tokens."""
    target: Text | None = None
    """Its translation; by default the model's own."""


class BertRequest(Model):
    """A sentence for the small BERT of the walk-through."""

    model_config = _example(source="The dog sees the cat.", hidden=1)

    source: Text
    """The sentence, at most 23 tokens."""
    hidden: Index | None = None
    """The token that is hidden while attention is shown, counted from 0; the last one, if the
    number is larger. By default a word is hidden that is predicted well."""


class GptRequest(Model):
    """A sentence for the small GPT of the walk-through."""

    model_config = _example(source="The dog sees the cat.")

    source: Text
    """The sentence, at most 23 tokens."""


class OrderRequest(Model):
    """Two sentences with the same words in a different order."""

    model_config = _example(
        first="The dog sees the cat.", second="The cat sees the dog.", positions=False
    )

    first: Text
    """The first sentence."""
    second: Text
    """The second sentence."""
    positions: bool = True
    """Whether the positional encoding is added."""


class CheatRequest(Model):
    """A sentence for two models, one trained with and one without the look-ahead mask."""

    model_config = _example(source="The dog sees the cat.")

    source: Text = "The dog sees the cat."
    """The sentence that both translate."""


class ModelInfo(Model):
    """One of the models that are served."""

    name: str
    """Name of its run folder; numbered if several are equal."""
    task: str
    """What it was trained for, such as "translation" or "language-model"."""
    mask: str
    """How a hidden word is written in a text, such as "<mask>"; empty if none can be hidden."""
    reads: str
    """What it reads: "text", or files: "image" or "recording"."""
    languages: str
    """Language pair of a translator, such as "en → de"; empty if unknown."""
    architecture: str
    """Name of the architecture, such as "Transformer"."""
    encoder_layers: int
    """Number of encoder layers."""
    decoder_layers: int
    """Number of decoder layers."""
    n_heads: int
    """Attention heads of each layer; 0 without attention."""
    parameters: int
    """Number of parameters."""
    bleu: float | None
    """BLEU on the test pairs of its run; null if it has not been measured."""
    score: str
    """The score on the test set of its run as text; empty if it has not been evaluated."""
    about: str
    """What it was trained on; empty if unknown."""
    examples: list[str]
    """Texts to try."""


class ModelsResponse(Model):
    """The models that are served."""

    model_config = _example(
        models=[
            {
                "name": "demo",
                "task": "translation",
                "mask": "",
                "reads": "text",
                "languages": "English → German",
                "architecture": "Transformer",
                "encoder_layers": 3,
                "decoder_layers": 3,
                "n_heads": 4,
                "parameters": 1447680,
                "bleu": 99.4,
                "score": "BLEU 99.4",
                "about": "Trained on the built-in corpus: 60,000 generated sentence pairs.",
                "examples": ["The animal did not cross the street because it was too tired."],
            }
        ],
        longest_text=LONGEST_TEXT,
        longest_file=LONGEST_FILE,
    )

    models: list[ModelInfo]
    """The first one is used where a request names none."""
    longest_text: int
    """Most characters of a text in a request."""
    longest_file: int
    """Most characters of a file in a request, as a data URL."""


class TextSegment(Model):
    """A part of the text that was translated on its own."""

    source: str
    """The part of the source."""
    translation: str
    """Its translation."""
    gap: str
    """White space after it."""


class TranslateResponse(Model):
    """A translation."""

    model_config = _example(
        translation=TARGET,
        score=-0.0015,
        segments=[{"source": SOURCE, "translation": TARGET, "gap": ""}],
        unknown=[],
        milliseconds=21.4,
    )

    translation: str
    """The text in the target language."""
    score: float
    """Log-probability of the translation given the source."""
    segments: list[TextSegment]
    """The segments; joined with their gaps, the sources are the text."""
    unknown: list[str]
    """Words of the text that are not in the training data."""
    milliseconds: float
    """Time the model took."""


class GenerateResponse(Model):
    """A continued text."""

    model_config = _example(continuation=" sleeps in the house.", milliseconds=9.8)

    continuation: str
    """What follows the text, without the text."""
    milliseconds: float
    """Time the model took."""


class AttentionMap(Model):
    """Attention weights of one layer, packed."""

    shape: list[int]
    """Heads, rows (queries), columns (keys)."""
    data: str
    """Little-endian unsigned 16-bit integers in base64; an attention weight is integer / 65535."""


class Candidate(Model):
    """A token and its probability."""

    token: str
    """The token."""
    probability: float
    """Its probability."""


class Step(Candidate):
    """The prediction of one target token."""

    candidates: list[Candidate]
    """The most probable tokens at this position."""


class LookCandidate(Candidate):
    """A token with its log-probability."""

    log_prob: float
    """Natural logarithm of the probability."""


class LookStep(LookCandidate):
    """The prediction of one token, or of a label, at any temperature.

    At the temperature T the probability of a candidate is exp(log_prob / T - normalizer).
    """

    position: int
    """Position in the tokens that the model reads, counted from 0."""
    normalizers: list[float]
    """The normalizer for each of the temperatures."""
    candidates: list[LookCandidate]
    """The most probable tokens at this position."""


class HeadSummary(Model):
    """What an attention head does with this sentence."""

    name: str
    """Where most of its attention goes, such as "previous token"; empty if nothing stands out."""
    share: float
    """Share of its attention that goes there."""
    entropy: float
    """Mean entropy of its rows, in bits."""
    distance: float
    """Mean distance of attended tokens, in tokens."""


class Picture(Model):
    """An image, or the spectrogram of a recording."""

    data: str
    """PNG file, as a data URL."""
    rows: int
    """Positions from top to bottom; 1 for a spectrogram."""
    columns: int
    """Positions from left to right."""
    n_before: int
    """Positions before those of the picture: the class token."""


EXAMPLE_MAP = {"shape": [4, 5, 6], "data": "IO3LEg8AAQACAAIAqB5h4M4ADAATAAgA…"}


class BeginningResponse(Model):
    """What a model reads of a document."""

    model_config = _example(source="The dog sleeps. Two birds sing.")

    source: str
    """Of a translator the whole document, of a parser the first sentence, of a model of pairs the
    first line; else as many sentences as can be inspected."""


class LookResponse(Model):
    """Attention and predictions for one text, or one pair of source and target."""

    model_config = _example(
        model="",
        task="translation",
        mask="",
        source=SOURCE,
        picture=None,
        target=TARGET,
        unknown=[],
        ablated=[],
        source_tokens=["▁The", "▁dog", "▁sleeps", ".", "</s>"],
        target_tokens=["▁Der", "▁Hund", "▁schläft", ".", "</s>"],
        target_inputs=["<s>", "▁Der", "▁Hund", "▁schläft", "."],
        encoder_layers=3,
        decoder_layers=3,
        n_heads=4,
        can_ablate=True,
        missing="",
        temperatures=[0.5, 1.0, 2.0],
        steps=[
            {
                "token": "▁Der",
                "probability": 0.999958,
                "log_prob": -4e-05,
                "position": 0,
                "normalizers": [-8e-05, 0.0, 0.04],
                "candidates": [{"token": "▁Der", "probability": 0.999958, "log_prob": -4e-05}],
            }
        ],
        maps={"encoder": [EXAMPLE_MAP], "decoder": [EXAMPLE_MAP], "cross": [EXAMPLE_MAP]},
        heads={
            "encoder": [[{"name": "", "share": 0.28, "entropy": 2.29, "distance": 2.15}]],
            "decoder": [[{"name": "first token", "share": 0.6, "entropy": 0.6, "distance": 1.3}]],
            "cross": [[{"name": "alignment", "share": 0.82, "entropy": 1.0, "distance": 1.3}]],
        },
        rollout={"encoder": EXAMPLE_MAP, "cross": EXAMPLE_MAP},
        norms={"encoder": [[16.2, 18.9]], "decoder": [[16.7, 19.9]]},
        states=None,
    )

    model: str
    """The model, as requested."""
    task: str
    """What it was trained for."""
    mask: str
    """How a hidden word is written in a text; empty if none can be hidden."""
    source: str
    """The text that an encoder reads; empty for a model without one."""
    picture: Picture | None
    """The file that an encoder reads, for display; null for a text."""
    target: str
    """The text that a decoder predicts, given or translated; or the prediction of an encoder."""
    unknown: list[str]
    """Words of the text that are not in the training data."""
    ablated: list[str]
    """The ablated heads."""
    source_tokens: list[str]
    """Tokens that the encoder reads."""
    target_tokens: list[str]
    """Tokens that the decoder predicts."""
    target_inputs: list[str]
    """Tokens that the decoder reads: the target shifted by one."""
    encoder_layers: int
    """Layers with encoder self-attention."""
    decoder_layers: int
    """Layers with decoder self-attention."""
    n_heads: int
    """Attention heads of each layer; 0 without attention."""
    can_ablate: bool
    """Whether the model has heads that can be ablated."""
    missing: str
    """Which kinds of attention the model does not have, in a sentence; empty if it has all."""
    temperatures: list[float]
    """Temperatures of the normalizers in the steps."""
    steps: list[LookStep]
    """The prediction at each position that has one."""
    maps: dict[Kind, list[AttentionMap | None]]
    """Attention weights by kind and layer; null if large: request /api/layer."""
    heads: dict[Kind, list[list[HeadSummary]]]
    """Summaries by kind, layer and head."""
    rollout: dict[str, AttentionMap] | None
    """Attention rollout of a stack, and from target to source; null without self-attention."""
    norms: dict[str, Matrix]
    """Norms of the hidden states by stack, layer and token."""
    states: dict[str, Matrix] | None
    """Hidden states of the last layers, for models without attention; otherwise null."""


class LayerResponse(Model):
    """Attention weights of one layer."""

    model_config = _example(map=EXAMPLE_MAP)

    map: AttentionMap
    """The attention weights."""


class VectorsResponse(Model):
    """Vectors and scores of one attention head, rounded to 5 digits."""

    model_config = _example(
        queries=[[0.41, -1.2]], keys=[[0.77, 0.05]], values=[[-0.3, 0.9]], scores=[[0.18, None]]
    )

    queries: Matrix
    """One row for each query."""
    keys: Matrix
    """One row for each key."""
    values: Matrix
    """One row for each value."""
    scores: list[list[float | None]]
    """Scaled dot products of queries (rows) and keys (columns); null if masked."""


class ChecksResponse(Model):
    """Cross-attention beside two measurements that do not use attention weights."""

    model_config = _example(
        attention=[[0.85, 0.08]],
        occlusion=[[5.6, 8.27]],
        gradient=[[-0.0001, 0.0016]],
        agreement={"occlusion": 0.54, "gradient": 0.67},
        words="Rank correlation: 0.54 with hiding one word at a time and 0.67 with the gradient.",
    )

    attention: Matrix | None
    """Attention weights: target tokens (rows) by source tokens (columns); null without any."""
    occlusion: Matrix
    """How much less probable each target token is when a source token is hidden."""
    gradient: Matrix
    """Gradient of each target token's log-probability times the source embedding."""
    agreement: dict[str, float | None]
    """Rank correlation of the attention weights with each measurement; null if undefined."""
    words: str
    """The result in a sentence."""


class AblationResponse(Model):
    """The effect of removing each attention head."""

    model_config = _example(
        loss=0.0003,
        changes={"encoder": [[0.0001, 0.0855]], "decoder": [[0.0001]], "cross": [[0.0002]]},
    )

    loss: float
    """Mean loss of a target token with all heads."""
    changes: dict[Kind, list[list[float]]]
    """Change of the loss without a head, by kind, layer and head."""


class BeamNode(Model):
    """A hypothesis of the search, named by its last token."""

    id: int
    """Number of the node."""
    parent: int | None
    """The hypothesis it extends; null for the root."""
    token: str
    """Its last token."""
    score: float
    """Sum of the log-probabilities of its tokens."""
    step: int
    """Number of its tokens."""
    state: Literal["kept", "ended", "dropped"]
    """Whether the search extended, finished or pruned it."""


class BeamsResponse(Model):
    """The tree of a beam search."""

    model_config = _example(
        nodes=[
            {"id": 0, "parent": None, "token": "<s>", "score": 0.0, "step": 0, "state": "kept"},
            {"id": 1, "parent": 0, "token": "▁Der", "score": -4e-05, "step": 1, "state": "kept"},
        ],
        best=[0, 1],
    )

    nodes: list[BeamNode]
    """All nodes, parents first; of the pruned ones the best of each step."""
    best: list[int]
    """Nodes of the best hypothesis, from the root."""


class CodeResponse(Model):
    """Source code of the reference implementation."""

    model_config = _example(code={"softmax": "def softmax(scores: Array) -> Array:\n    …"})

    code: dict[str, str]
    """Source code by name of the function."""


class Selection(Model):
    """A head and a query."""

    head: int
    """Head, counted from 0."""
    row: int
    """Query: a row of the attention weights, counted from 0."""


class WalkResponse(Model):
    """Every intermediate result of a small Transformer."""

    model_config = _example(
        source="The dog sees the cat.",
        target="Der Hund sieht die Katze.",
        source_tokens=["▁The", "▁dog"],
        source_ids=[21, 64],
        target_tokens=["▁Der", "▁Hund"],
        target_inputs=["<s>", "▁Der"],
        target_ids=[1, 30],
        sizes={"d_model": 32, "d_k": 8, "d_ff": 64, "n_heads": 4, "vocabulary": 400},
        position_table=[[0.0, 1.0]],
        encoder={"embedded": [[0.31, -0.7]], "stack": [[[0.31, 0.3]]]},
        decoder={"entered": [[0.5, 1.1]], "mask": [[True, False], [True, True]]},
        start={"encoder": {"head": 1, "row": 2}, "output": {"head": 0, "row": 3}},
        steps=[
            {
                "token": "▁Der",
                "probability": 0.9993,
                "candidates": [{"token": "▁Der", "probability": 0.9993}],
            }
        ],
    )

    source: str
    """The source sentence."""
    target: str
    """The target sentence."""
    source_tokens: list[str]
    """Tokens of the source."""
    source_ids: list[int]
    """Their ids."""
    target_tokens: list[str]
    """Tokens that are predicted."""
    target_inputs: list[str]
    """Tokens that the decoder reads."""
    target_ids: list[int]
    """Their ids."""
    sizes: dict[str, int]
    """Sizes of the model: d_model, d_k, d_ff, n_heads, vocabulary, layers."""
    position_table: Matrix
    """Positional encoding: positions (rows) by dimensions (columns)."""
    encoder: dict[str, list[Any]]
    """Arrays of the encoder by name: the first layer step by step, and the output of each."""
    decoder: dict[str, list[Any]]
    """Arrays of the decoder by name."""
    start: dict[str, Selection]
    """What each station shows first: the largest attention weight between content words."""
    steps: list[Step]
    """The prediction at each position of the target."""


class HalfStep(Step):
    """The prediction of one token."""

    position: int
    """Position in the tokens that the model reads, counted from 0."""


class LayerSelection(Selection):
    """A layer, a head and a query."""

    layer: int
    """Layer, counted from 0."""


class HalfResponse(Model):
    """One sentence in a small BERT or a small GPT."""

    model_config = _example(
        source="The dog sees the cat.",
        tokens=["<s>", "▁The", "<mask>"],
        hidden=1,
        steps=[
            {
                "token": "▁The",
                "probability": 0.9993,
                "position": 1,
                "candidates": [{"token": "▁The", "probability": 0.9993}],
            }
        ],
        mask=[[True, True], [True, True]],
        weights=[[[[0.9, 0.1], [0.4, 0.6]]]],
        sizes={"d_model": 64, "n_heads": 4, "layers": 3, "vocabulary": 900, "parameters": 157184},
        start={"layer": 1, "head": 0, "row": 2},
    )

    source: str
    """The sentence."""
    tokens: list[str]
    """Tokens that the model reads."""
    hidden: int | None
    """Of a BERT: the hidden token, counted from 0 without <s>; of a GPT null."""
    steps: list[HalfStep]
    """Of a BERT: each token, predicted while it alone is hidden; of a GPT: each next token."""
    mask: list[list[bool]]
    """Attention mask: queries (rows) by keys (columns); true: may attend."""
    weights: list[Any]
    """Attention weights: layers, heads, queries (rows), keys (columns)."""
    sizes: dict[str, int]
    """Sizes of the model: d_model, n_heads, layers, vocabulary, parameters."""
    start: LayerSelection
    """What is shown first: the largest attention weight on a content word."""


class TokenPair(Model):
    """A token in both sentences."""

    token: str
    """The token."""
    here: int
    """Its position in the first sentence."""
    there: int
    """Its position in the second sentence."""
    distance: float
    """Distance of its two hidden states."""


class OrderResponse(Model):
    """How far apart the encodings of two sentences are."""

    model_config = _example(
        tokens=[["▁The", "▁dog"], ["▁dog", "▁The"]],
        pairs=[{"token": "▁The", "here": 0, "there": 1, "distance": 0.0}],
        largest=0.0,
    )

    tokens: list[list[str]]
    """Tokens of both sentences."""
    pairs: list[TokenPair]
    """Each token of the first sentence with the same token of the second."""
    largest: float
    """The largest distance."""


class CheatResponse(Model):
    """Training with and without the look-ahead mask."""

    model_config = _example(
        with_mask=[6.0, 5.4],
        without_mask=[6.0, 4.1],
        source="The dog sees the cat.",
        translations={"with_mask": "Der Hund sieht die Katze.", "without_mask": "Kuh Kuh Kuh"},
    )

    with_mask: list[float]
    """Training loss by step, with the mask."""
    without_mask: list[float]
    """Training loss by step, without the mask."""
    source: str
    """The sentence."""
    translations: dict[str, str]
    """Its translation by both models."""
