"""Parsing by spans: every span of a sentence is scored, and the best tree is found by CKY.

A tree is made binary: a constituent of more than two parts is divided from the left into spans with
an empty label, and constituents over the same words share one span, with a joined label (S+VP).
Then each gap between two words is where exactly one span is divided, which makes a tree a column of
as many ids as there are words.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, pairwise
from operator import itemgetter
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attendo.config import AnyModelConfig, DecodingConfig
from attendo.data.batches import Batch, Shaped
from attendo.data.corpus import Ragged
from attendo.data.packing import pad_grid
from attendo.data.readers import Record
from attendo.data.treebanks import ParsedSentence
from attendo.errors import ConfigError
from attendo.losses import Loss, count_labels, cross_entropy, linear_cross_entropy
from attendo.models import Encoder, Memory, Recording, build_model
from attendo.models.spans import Nodes, SpanParser, best_nodes, tree_losses
from attendo.nn.grid import Grid, Sequences
from attendo.nn.stack import nothing_recorded
from attendo.specials import IGNORE
from attendo.tasks.base import Example
from attendo.tasks.inspection import (
    LONGEST,
    Inspection,
    TokenizedText,
    check_finite,
    check_length,
    refuse_target,
)
from attendo.tasks.predicting import encode_rows, finite
from attendo.tasks.trees import Finished, Found, TreeTask
from attendo.text.trees import Span, Tree, escape, split_words

NONE = ""
"""Label of spans that are no constituents."""

JOIN = "+"

MOST_WORDS = 1024
"""A longer sentence has no place in the ids of nodes."""

SPANS_AT_ONCE = 1 << 17
"""Spans that are scored together when sentences are parsed."""


class Division(NamedTuple):
    """A tree over n words as the nodes of a binary tree."""

    nodes: list[Span]
    """For each word but the first, the span that is divided before it; the first has none."""
    leaves: list[str]
    """For each word, the label of the span that has only this word."""


class SpanParsing(TreeTask):
    """Sentences to trees, by the scores of spans on an encoder."""

    name: ClassVar[str] = "parsing-spans"
    columns: ClassVar[tuple[str, ...]] = ("text", "tags", "nodes", "leaves")
    most_words: ClassVar[int] = MOST_WORDS - 1

    @classmethod
    def labels_of(cls, tree: Tree) -> Iterable[str]:
        """Return the labels of all spans of the binary tree."""
        nodes, leaves = divide(tree)
        return {NONE, *leaves, *(node.label for node in nodes)}

    def encode_tree(self, words: list[list[int]], tree: Tree) -> Example:
        """Return tokens, tags from 1 at the first token of each word, and the binary tree."""
        nodes, leaves = divide(tree)
        tags = [
            [1 + self.tag_number(tag), *[0] * (len(tokens) - 1)]
            for tag, tokens in zip(tree.tags(), words, strict=True)
        ]
        return (
            [token for tokens in words for token in tokens],
            [tag for some in tags for tag in some],
            [self._node_id(node) for node in nodes],
            [self.label_numbers[label] for label in leaves],
        )

    def _node_id(self, node: Span) -> int:
        place = node.start * MOST_WORDS + node.end
        return place * len(self.labels) + self.label_numbers[node.label]

    def decode(self, example: Example) -> Record:
        """Decode ids to words and a tree."""
        ids, tags, nodes, leaves = example
        starts = [place for place, tag in enumerate(tags) if tag]
        words = [
            escape(self.tokenizer.decode(ids[start:end]).strip().replace(" ", "_") or "_")
            for start, end in pairwise([*starts, len(ids)])
        ]
        spans = [self._node(number) for number in nodes[1:]]
        spans += [Span(self.labels[leaf], at, at + 1) for at, leaf in enumerate(leaves)]
        tagged = [
            Tree(self.tags[tags[start] - 1], (), word)
            for start, word in zip(starts, words, strict=True)
        ]
        return ParsedSentence.of(assemble(spans, tagged))

    def _node(self, number: int) -> Span:
        place, label = divmod(number, len(self.labels))
        return Span(self.labels[label], *divmod(place, MOST_WORDS))

    @property
    def sizes(self) -> dict[str, int]:
        """Return the number of different ids of each column."""
        n_labels = len(self.labels)
        return {
            "text": self.tokenizer.size,
            "tags": 1 + len(self.tags),
            "nodes": MOST_WORDS**2 * n_labels,
            "leaves": n_labels,
        }

    def shape(self, columns: Mapping[str, Ragged], chance: np.random.Generator) -> Shaped:
        """Add <s> and </s> to the text; the labels are tags, at the first tokens of words."""
        specials, (ids, offsets) = self.tokenizer.specials, columns["tags"]
        labels = Ragged(np.where(ids, ids - 1, IGNORE), offsets)
        text = columns["text"].begun_with(specials.bos).ended_with(specials.eos)
        inputs = {"text": text, "nodes": columns["nodes"], "leaves": columns["leaves"]}
        return Shaped(inputs, labels.begun_with(IGNORE).ended_with(IGNORE))

    @property
    def pads(self) -> dict[str, int]:
        """Return the ids that fill rows."""
        return {"text": self.tokenizer.specials.pad, "nodes": 0, "leaves": 0}

    # -- model

    def build(self, config: AnyModelConfig) -> SpanParser:
        """Build an encoder with a head that scores spans and tags."""
        sizes = {"text": self.tokenizer.size, "label": len(self.labels), "tag": len(self.tags)}
        return self.outline(config, sizes)

    @classmethod
    def outline(cls, config: AnyModelConfig, sizes: Mapping[str, int]) -> SpanParser:
        """Build the same for a vocabulary and labels of these sizes."""
        encoder = build_model(config, sizes["text"], promise=Encoder)
        n_labels, n_tags = sizes["label"], sizes.get("tag", sizes["label"])
        p_drop = getattr(config, "p_drop", 0.0)
        return SpanParser(encoder, config.d_model, n_labels, n_tags, p_drop)

    def hidden(self, model: SpanParser, inputs: Mapping[str, Grid]) -> Float[Tensor, "R T D"]:
        """Return the hidden states of all positions."""
        return model.encode(inputs["text"]).hidden

    def loss(
        self,
        model: SpanParser,
        batch: Batch,
        smoothing: float,
        agreement: float = 0.0,
        criterion: Callable[..., Loss] = linear_cross_entropy,
    ) -> Loss:
        """Return minus the log-probability of the trees, and of the tags; counted in words."""
        if agreement:
            raise ConfigError("training.r_drop cannot be used for this task; leave it out")
        memory = model.encode(batch.inputs["text"])
        begins_word = batch.labels != IGNORE
        total = memory.hidden.sum() * 0.0
        if begins_word.any():  # a part of a batch may have empty rows only
            logits = model.logits(memory.hidden[begins_word][None])
            total = cross_entropy(logits, batch.labels[begins_word][None], smoothing).total
            trees = self._nodes_of(batch.inputs)
            total = total + tree_losses(model.score(memory, begins_word), trees).sum()
        return Loss(total, count_labels(batch.labels))

    def _nodes_of(self, inputs: Mapping[str, Grid]) -> Nodes:
        """Return all nodes of the trees of a batch."""
        sequences = Sequences.of(inputs["nodes"].segments)
        nodes, leaves = (inputs[name].ids[sequences.is_token] for name in ("nodes", "leaves"))
        is_node = sequences.places > 0
        places = nodes[is_node] // len(self.labels)
        return Nodes(
            torch.cat((sequences.numbers[is_node], sequences.numbers)),
            torch.cat((places // MOST_WORDS, sequences.places)),
            torch.cat((places % MOST_WORDS, sequences.places + 1)),
            torch.cat((nodes[is_node] % len(self.labels), leaves)),
        )

    # -- use

    def parse_rows(
        self,
        model: SpanParser,
        rows: Sequence[list[list[int]]],
        options: DecodingConfig,
        device: torch.device,
        finished: Finished,
    ) -> list[Found]:
        """Return the best tree of each sentence."""
        specials = self.tokenizer.specials
        ids = [[specials.bos, *chain.from_iterable(words), specials.eos] for words in rows]
        found: dict[int, Found] = {}
        for numbers, memory in encode_rows(model, ids, specials.pad, options.batch_size, device):
            n_rows = max(1, SPANS_AT_ONCE // memory.hidden.shape[1] ** 2)
            for start in range(0, len(numbers), n_rows):
                few = numbers[start : start + n_rows]
                part = Memory(*(one[start : start + n_rows] for one in memory))
                trees = self._best(model, part, [rows[number] for number in few])
                found.update(zip(few, trees, strict=True))
            finished(numbers)
        return [found[number] for number in range(len(rows))]

    def _best(
        self, model: SpanParser, memory: Memory, rows: Sequence[list[list[int]]]
    ) -> list[Found]:
        begins_word = _begins_word(rows, memory)
        with torch.inference_mode():
            scored = model.score(memory, begins_word)
            nodes = best_nodes(scored)
            scores = finite(-tree_losses(scored, nodes)).tolist()
            tags = finite(model.logits(memory.hidden[begins_word])).argmax(-1).tolist()
        spans = self._spans(nodes)
        leaves = iter(Tree(self.tags[tag], (), "") for tag in tags)
        return [
            (assemble(spans[number], [next(leaves) for _ in words]), scores[number])
            for number, words in enumerate(rows)
        ]

    def _spans(self, nodes: Nodes) -> dict[int, list[Span]]:
        """Return the spans of each sentence."""
        columns = zip(*(column.tolist() for column in nodes), strict=True)
        return {
            sentence: [Span(self.labels[label], start, end) for _, start, end, label in some]
            for sentence, some in groupby(columns, key=itemgetter(0))
        }

    def inspect(
        self,
        model: SpanParser,
        text: str,
        options: DecodingConfig,
        device: torch.device,
        *,
        target: str | None = None,
    ) -> Inspection:
        """Record a sentence; the logits are those of the tags of its words."""
        refuse_target(self.name, target)
        words = split_words(text)
        (row,) = self.tokenize([words])
        specials = self.tokenizer.specials
        ids = [specials.bos, *chain.from_iterable(row), specials.eos]
        check_length("text", len(ids) - 2, min(LONGEST, self.max_length - 2), "take a part of it")
        (parsed,) = self.parse_words(model, [words], options, device)
        _, tags, nodes, leaves = self.encode_tree(row, parsed.tree)
        labels = torch.tensor([IGNORE, *(tag - 1 if tag else IGNORE for tag in tags), IGNORE])
        columns = {"text": (ids, specials.pad), "nodes": (nodes, 0), "leaves": (leaves, 0)}
        grids = {
            name: pad_grid([column], pad).to(device) for name, (column, pad) in columns.items()
        }
        with torch.inference_mode():
            memory, encoder = model.record(grids["text"])
            logits = model.logits(memory.hidden[:, (labels != IGNORE).to(device)])
        tokens = self.tokenizer.tokens(ids)
        recording = Recording(encoder, nothing_recorded(), logits, source_tokens=tuple(tokens))
        check_finite(recording)
        tokenized = TokenizedText(grids, labels.to(device), tokens, [])
        brackets = parsed.to_text()
        return Inspection(
            " ".join(words), brackets, tokenized, recording, self._tag_names, brackets
        )

    def _tag_names(self, numbers: Sequence[int]) -> list[str]:
        return [self.tags[number] for number in numbers]


def divide(tree: Tree) -> Division:
    """Make a tree binary: from the left, with joined labels for constituents over the same words.

    >>> from attendo.text.trees import parse_tree
    >>> nodes, leaves = divide(parse_tree("(S (NP (PRP I)) (VP (VBP see) (NP (PRP it))) (. .))"))
    >>> [tuple(node) for node in nodes]
    [('', 0, 0), ('', 0, 3), ('VP', 1, 3), ('S', 0, 4)]
    >>> leaves
    ['NP', '', 'NP', '']
    """
    n_words = sum(1 for _ in tree.leaves())
    found = Division([Span(NONE, 0, 0)] * n_words, [NONE] * n_words)
    _divide(tree, 0, found)
    return found


def _divide(tree: Tree, start: int, found: Division) -> int:
    names = []
    while tree.children:
        names.append(tree.label)
        if len(tree.children) > 1:
            break
        tree = tree.children[0]
    label = JOIN.join(names)
    if not tree.children:
        found.leaves[start] = label
        return start + 1
    end = _divide(tree.children[0], start, found)
    for number, child in enumerate(tree.children[1:], start=2):
        gap, end = end, _divide(child, end, found)
        is_whole = number == len(tree.children)
        found.nodes[gap] = Span(label if is_whole else NONE, start, end)
    return end


def assemble(spans: Iterable[Span], leaves: Sequence[Tree]) -> Tree:
    """Return the tree of some spans over words; it is what `divide` was given.

    Spans without a label are left out. The longest span must have one.
    """
    outer_first = sorted((span.start, -span.end, span.label) for span in spans if span.label)
    waiting = iter([Span(label, start, -end) for start, end, label in outer_first])
    root = next(waiting)
    tree, after = _grow(root, next(waiting, None), waiting, leaves)
    assert after is None, "the spans are within each other, and all in the first"
    return tree


def _grow(
    span: Span, following: Span | None, waiting: Iterator[Span], leaves: Sequence[Tree]
) -> tuple[Tree, Span | None]:
    """Build a constituent from the spans inside it; return it with the next span after it."""
    children: list[Tree] = []
    place = span.start
    while place < span.end:
        if following is not None and following.start == place:
            inner = following
            child, following = _grow(inner, next(waiting, None), waiting, leaves)
            place = inner.end
        else:
            child, place = leaves[place], place + 1
        children.append(child)
    *outer, label = span.label.split(JOIN)
    tree = Tree(label, tuple(children))
    for name in reversed(outer):
        tree = Tree(name, (tree,))
    return tree, following


def _begins_word(rows: Sequence[list[list[int]]], memory: Memory) -> Tensor:
    """Return at which positions of a batch a word begins."""
    found = torch.zeros(memory.segments.shape, dtype=torch.bool)
    for row, words in enumerate(rows):
        lengths = [len(tokens) for tokens in words]
        found[row, 1 + np.cumsum([0, *lengths[:-1]])] = True
    return found.to(memory.segments.device)
