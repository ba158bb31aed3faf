"""Parsing as in section 6.3 of the paper: words in, brackets out, by any `Seq2Seq` model.

The brackets are those of Vinyals et al. 2015: (S (NP XX XX )NP (VP XX )VP )S, with a placeholder for
each word, or its part of speech. Search considers well-formed brackets only, with as many
placeholders as words, so that every answer is a tree over the given words.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attendo.config import AnyModelConfig, DecodingConfig
from attendo.data.batches import Shaped
from attendo.data.corpus import Ragged
from attendo.data.packing import pad_grid
from attendo.data.readers import Record
from attendo.data.treebanks import ParsedSentence
from attendo.decoding import Request, search
from attendo.decoding.brackets import BracketRules
from attendo.errors import DataError
from attendo.models import Model, Seq2Seq, build_model
from attendo.nn.grid import Grid
from attendo.specials import NAMES, Specials
from attendo.tasks.base import Example
from attendo.tasks.inspection import (
    LONGEST,
    Inspection,
    TokenizedText,
    check_finite,
    check_length,
)
from attendo.tasks.trees import Finished, Found, TreeTask
from attendo.text import Tokenizer
from attendo.text.trees import Tree, clean_tree, escape, parse_tree, split_words

BRACKETS_A_WORD = 6
"""Most brackets for each word of a sentence, opening and closing; real trees have about 1.7."""

MORE_BRACKETS = 20
"""So many more are allowed: short sentences may have long chains."""


class BracketVocabulary:
    """Ids of brackets and placeholders: special tokens, placeholders, opening and closing ones."""

    def __init__(self, labels: Sequence[str], tags: Sequence[str]) -> None:
        self.specials = Specials(0, 1, 2)
        self.first_word = len(self.specials)
        self.first_opening = self.first_word + len(tags)
        self.first_closing = self.first_opening + len(labels)
        openings, closings = (f"({label}" for label in labels), (f"){label}" for label in labels)
        self.names = (*NAMES, *tags, *openings, *closings)
        self.size = len(self.names)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the names of ids."""
        return [self.names[number] for number in ids]

    def encode(self, tree: Tree, labels: Mapping[str, int], tags: Sequence[int]) -> list[int]:
        """Return the ids of a tree, given the numbers of its labels, and of its tags in order."""
        return list(self._encode(tree, labels, iter(tags)))

    def _encode(self, tree: Tree, labels: Mapping[str, int], tags: Iterator[int]) -> Iterator[int]:
        if not tree.children:
            yield self.first_word + next(tags)
            return
        number = labels[tree.label]
        yield self.first_opening + number
        for child in tree.children:
            yield from self._encode(child, labels, tags)
        yield self.first_closing + number

    def decode(self, ids: Iterable[int]) -> Tree:
        """Return the tree of well-formed ids; its leaves have no words."""
        stack: list[list[Tree]] = [[]]
        for number in ids:
            name = self.names[number]
            if number < self.first_opening:
                stack[-1].append(Tree(name, (), ""))
            elif number < self.first_closing:
                stack.append([])
            else:
                children = tuple(stack.pop())
                stack[-1].append(Tree(name[1:], children))
        ((tree,),) = stack
        return tree


class Parsing(TreeTask):
    """Sentences to trees in brackets, token by token."""

    name: ClassVar[str] = "parsing"
    columns: ClassVar[tuple[str, ...]] = ("source", "target")
    promise: ClassVar[type[Model]] = Seq2Seq

    def __init__(
        self, tokenizer: Tokenizer, labels: Sequence[str], tags: Sequence[str], max_length: int
    ) -> None:
        super().__init__(tokenizer, labels, tags, max_length)
        self.target = BracketVocabulary(self.labels, self.tags)

    @classmethod
    def labels_of(cls, tree: Tree) -> Iterable[str]:
        """Return the labels of all constituents."""
        return {node.label for node in tree.nodes()}

    def encode_tree(self, words: list[list[int]], tree: Tree) -> Example:
        """Return the tokens of the words, and the brackets."""
        tags = [self.tag_number(tag) for tag in tree.tags()]
        return _flat(words), self.target.encode(tree, self.label_numbers, tags)

    def decode(self, example: Example) -> Record:
        """Decode ids to words and a tree."""
        ids, target = example
        tree = self.target.decode(target)
        words = [escape(word) for word in self.tokenizer.decode(ids).split()]
        n_words = len(tree.words())
        # Where the tokenizer has lost the limits of words, only their number can be kept.
        words = [*words, *["_"] * n_words][:n_words]
        given = iter(words)
        tagged = [leaf._replace(word=next(given)) for leaf in tree.leaves()]
        return ParsedSentence.of(_with_leaves(tree, iter(tagged)))

    @property
    def sizes(self) -> dict[str, int]:
        """Return the sizes of the vocabularies."""
        return {"source": self.tokenizer.size, "target": self.target.size}

    def shape(self, columns: Mapping[str, Ragged], chance: np.random.Generator) -> Shaped:
        """Add </s> after sources and labels, and <s> before the inputs of the decoder."""
        source, target = columns["source"], columns["target"]
        inputs = {
            "source": source.ended_with(self.tokenizer.specials.eos),
            "target": target.begun_with(self.target.specials.bos),
        }
        return Shaped(inputs, target.ended_with(self.target.specials.eos))

    @property
    def pads(self) -> dict[str, int]:
        """Return the ids of <pad>."""
        return {"source": self.tokenizer.specials.pad, "target": self.target.specials.pad}

    def build(self, config: AnyModelConfig) -> Seq2Seq:
        """Build an encoder and a decoder."""
        return self.outline(config, self.sizes)

    @classmethod
    def outline(cls, config: AnyModelConfig, sizes: Mapping[str, int]) -> Seq2Seq:
        """Build the same for vocabularies of these sizes; they have nothing in common."""
        if config.tied == "all":
            config = config.model_copy(update={"tied": "output"})
        return build_model(config, sizes["source"], sizes["target"])

    def hidden(self, model: Seq2Seq, inputs: Mapping[str, Grid]) -> Float[Tensor, "R T D"]:
        """Return the hidden states of the target."""
        return model.decode(inputs["target"], model.encode(inputs["source"]))

    # -- use

    def parse_rows(
        self,
        model: Seq2Seq,
        rows: Sequence[list[list[int]]],
        options: DecodingConfig,
        device: torch.device,
        finished: Finished,
    ) -> list[Found]:
        """Search for the brackets of each sentence, those of similar length together."""
        options = _without_rules_of_text(options)
        order = sorted(range(len(rows)), key=lambda number: len(_flat(rows[number])))
        found: dict[int, Found] = {}
        for start in range(0, len(order), options.batch_size):
            numbers = order[start : start + options.batch_size]
            request = self._request(model, [rows[number] for number in numbers], numbers, device)
            for number, (best, *_) in zip(numbers, search(request, options), strict=True):
                found[number] = (self.target.decode(best.ids), best.score)
            finished(numbers)
        return [found[number] for number in range(len(rows))]

    def _request(
        self,
        model: Seq2Seq,
        rows: Sequence[list[list[int]]],
        numbers: Sequence[int],
        device: torch.device,
    ) -> Request[Any]:
        specials, target = self.tokenizer.specials, self.target
        sources = pad_grid([[*_flat(words), specials.eos] for words in rows], specials.pad)
        with torch.inference_mode():
            state = model.start(model.encode(sources.to(device)))
        limits = [(1 + BRACKETS_A_WORD) * len(words) + MORE_BRACKETS for words in rows]
        rules = BracketRules(
            eos=target.specials.eos,
            first_word=target.first_word,
            first_opening=target.first_opening,
            first_closing=target.first_closing,
            end=target.size,
            n_words=torch.tensor([len(words) for words in rows], device=device),
            limits=torch.tensor(limits, device=device),
        )
        return Request(
            step=model.step,
            state=state,
            max_lengths=limits,
            numbers=numbers,
            specials=target.specials,
            device=device,
            allow=rules,
        )

    def request(
        self, model: Seq2Seq, text: str, options: DecodingConfig, device: torch.device
    ) -> Request[Any]:
        """Return the search for the tree of one text, for inspection."""
        return self._request(model, self.tokenize([split_words(text)]), [0], device)

    def check_inspectable(self, source: str, target: str | None = None) -> None:
        """Refuse sentences that are too long to be inspected."""
        (row,) = self.tokenize([split_words(source)])
        longest = min(LONGEST, self.max_length - 2)
        check_length("sentence", len(_flat(row)), longest, "take a part of it")

    def inspect(
        self,
        model: Seq2Seq,
        text: str,
        options: DecodingConfig,
        device: torch.device,
        *,
        target: str | None = None,
    ) -> Inspection:
        """Record a sentence with a tree in brackets, the model's own if none is given."""
        self.check_inspectable(text)
        words = split_words(text)
        (row,) = self.tokenize([words])
        if target is None:
            tree = self.parse_words(model, [words], options, device)[0].tree
        else:
            tree = self._given_tree(target, words)
        ids, brackets = self.encode_tree(row, tree)
        specials, wanted = self.tokenizer.specials, self.target.specials
        source, labels = [*ids, specials.eos], [*brackets, wanted.eos]
        check_length("tree", len(labels), 4 * LONGEST, "take a part of it")
        tokenized = TokenizedText(
            inputs={
                "source": pad_grid([source], specials.pad).to(device),
                "target": pad_grid([[wanted.bos, *brackets]], wanted.pad).to(device),
            },
            labels=torch.tensor(labels, device=device),
            source_tokens=self.tokenizer.tokens(source),
            target_tokens=self.target.tokens(labels),
        )
        with torch.inference_mode():
            recording = model.record(tokenized.source, tokenized.target)
        check_finite(recording)
        recording = recording._replace(
            source_tokens=tuple(tokenized.source_tokens),
            target_tokens=tuple(tokenized.target_tokens),
        )
        names = self.target.tokens
        return Inspection(" ".join(words), str(tree), tokenized, recording, names, str(tree))

    def _given_tree(self, text: str, words: list[str]) -> Tree:
        """Read a tree that is to be inspected; it must be over the words, with known labels."""
        try:
            tree = clean_tree(parse_tree(text))
        except ValueError as error:
            raise DataError(f"{text!r:.60} is no tree in brackets: {error}") from None
        if tree is None or tree.words() != words:
            raise DataError(f"{text!r:.60} is not a tree over the words {' '.join(words)!r:.60}")
        if not self.knows(tree):
            raise DataError(f"{text!r:.60} has labels or tags that the model does not know")
        return tree


def _without_rules_of_text(options: DecodingConfig) -> DecodingConfig:
    """Leave out what is only for texts: brackets may well repeat each other."""
    return options.model_copy(update={"no_repeat_ngram": 0, "max_loops": 0})


def _with_leaves(tree: Tree, leaves: Iterator[Tree]) -> Tree:
    if not tree.children:
        return next(leaves)
    return tree._replace(children=tuple(_with_leaves(child, leaves) for child in tree.children))


def _flat(words: list[list[int]]) -> list[int]:
    return [token for tokens in words for token in tokens]
