"""Parsing as in section 6.3 of the paper: words in, brackets out, by any `Seq2Seq` model.

The brackets are those of Vinyals et al. 2015: (S (NP XX XX )NP (VP XX )VP )S, with a placeholder
for each word, or its part of speech. Search considers well-formed brackets only, with as many
placeholders as words, so that every answer is a tree over the given words.

A decoder that reads placeholders has to count them to know where it is, which takes many sentences
to learn. So it may read, for each placeholder, the word that comes next instead
(`parsing.reads_words`): which one that is, is known.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, ClassVar, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attendo.config import AnyModelConfig, DataConfig, DecodingConfig, ParsingConfig, Recipe
from attendo.data.batches import Shaped
from attendo.data.corpus import Ragged, ragged
from attendo.data.packing import pad_grid
from attendo.data.readers import Record
from attendo.data.treebanks import ParsedSentence
from attendo.decoding import Request, search
from attendo.decoding.brackets import BracketRules
from attendo.errors import DataError
from attendo.models import Model, Seq2Seq, build_model
from attendo.nn.embedding import BorrowingEmbedding
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

State = tuple[Any, Int[Tensor, " R"], Int[Tensor, "R N"]]
"""That of the model, the number of words written, and what is read for each of them."""

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
        # A model may have more outputs than there are names (model.vocabulary_multiple).
        return [self.names[number] if number < self.size else "" for number in ids]

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
    columns: ClassVar[tuple[str, ...]] = ("source", "target", "words")
    promise: ClassVar[type[Model]] = Seq2Seq

    def __init__(
        self,
        tokenizer: Tokenizer,
        labels: Sequence[str],
        tags: Sequence[str],
        data: DataConfig,
        parsing: ParsingConfig,
    ) -> None:
        super().__init__(tokenizer, labels, tags, data, parsing)
        self.target = BracketVocabulary(self.labels, self.tags)

    @classmethod
    def labels_of(cls, tree: Tree) -> Iterable[str]:
        """Return the labels of all constituents."""
        return {node.label for node in tree.nodes()}

    def encode_tree(self, words: list[list[int]], tree: Tree) -> Example:
        """Return all tokens, the brackets, and the first token of each word."""
        tags = [self.tag_number(tag) for tag in tree.tags()]
        brackets = self.target.encode(tree, self.label_numbers, tags)
        return [*chain.from_iterable(words)], brackets, [tokens[0] for tokens in words]

    def decode(self, example: Example) -> Record:
        """Decode ids to words and a tree."""
        ids, target, _ = example
        tree = self.target.decode(target)
        words = [escape(word) for word in self.tokenizer.decode(ids).split()]
        n_words = len(tree.words())
        # Where the tokenizer has lost the limits of words, only their number can be kept.
        words = [*words, *["_"] * n_words][:n_words]
        given = iter(words)
        tagged = [leaf._replace(word=next(given)) for leaf in tree.leaves()]
        return ParsedSentence.of(tree.with_leaves(iter(tagged)))

    @property
    def sizes(self) -> dict[str, int]:
        """Return the sizes of the vocabularies."""
        n_tokens = self.tokenizer.size
        return {"source": n_tokens, "target": self.target.size, "words": n_tokens}

    def shape(self, columns: Mapping[str, Ragged], chance: np.random.Generator) -> Shaped:
        """Add </s> after sources and labels, and <s> before the inputs of the decoder."""
        source, target = columns["source"], columns["target"]
        read = target.begun_with(self.target.specials.bos)
        if self.parsing.reads_words:
            # <s> is read as the first word, a placeholder as the next, and the last one as </s>.
            words = columns["words"].ended_with(self.tokenizer.specials.eos)
            ids = read.ids.copy()
            ids[self._is_word(ids)] = self.target.size + words.ids
            read = Ragged(ids, read.offsets)
        inputs = {"source": source.ended_with(self.tokenizer.specials.eos), "target": read}
        return Shaped(inputs, target.ended_with(self.target.specials.eos))

    def _is_word(self, ids: Any) -> Any:
        """Return which ids are placeholders, or <s>."""
        target = self.target
        is_placeholder = (ids >= target.first_word) & (ids < target.first_opening)
        return is_placeholder | (ids == target.specials.bos)

    @property
    def pads(self) -> dict[str, int]:
        """Return the ids of <pad>."""
        return {"source": self.tokenizer.specials.pad, "target": self.target.specials.pad}

    def build(self, config: AnyModelConfig) -> Seq2Seq:
        """Build an encoder and a decoder."""
        return _build(config, self.sizes, self.parsing)

    @classmethod
    def outline_of(cls, recipe: Recipe, sizes: Mapping[str, int]) -> Seq2Seq:
        """Build the same for vocabularies of these sizes."""
        return _build(recipe.model, sizes, recipe.parsing)

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
        order = sorted(range(len(rows)), key=lambda number: sum(map(len, rows[number])))
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
        sources = pad_grid(
            [[*chain.from_iterable(words), specials.eos] for words in rows], specials.pad
        )
        with torch.inference_mode():
            state = model.start(model.encode(sources.to(device)))
        if self.parsing.reads_words:
            state = self._start(state, rows, device)
        limits = [(1 + BRACKETS_A_WORD) * len(words) + MORE_BRACKETS for words in rows]
        rules = BracketRules(
            eos=target.specials.eos,
            first_word=target.first_word,
            first_opening=target.first_opening,
            first_closing=target.first_closing,
            n_words=torch.tensor([len(words) for words in rows], device=device),
            limits=torch.tensor(limits, device=device),
        )
        return Request(
            step=partial(self._step, model) if self.parsing.reads_words else model.step,
            state=state,
            max_lengths=limits,
            numbers=numbers,
            specials=target.specials,
            device=device,
            allow=rules,
        )

    def _start(self, state: Any, rows: Sequence[list[list[int]]], device: torch.device) -> State:
        """Return the state before the first token, with what is read for each word."""
        eos = self.tokenizer.specials.eos
        words = pad_grid([[*(tokens[0] for tokens in row), eos] for row in rows], eos)
        return state, torch.full((len(rows),), -1, device=device), words.ids.to(device)

    def _step(
        self, model: Seq2Seq, tokens: Int[Tensor, " R"], state: State
    ) -> tuple[Float[Tensor, "R V"], State]:
        """Add a token to every row, of which the decoder reads the next word if it is one."""
        inner, place, words = state
        is_word = self._is_word(tokens)
        # A beam without a hypothesis may hold any tokens, and more placeholders than words.
        place = (place + is_word).clamp(max=words.shape[1] - 1)
        following = words.gather(1, place[:, None]).squeeze(1)
        read = torch.where(is_word, self.target.size + following, tokens)
        logits, inner = model.step(read, inner)
        return logits, (inner, place, words)

    def request(
        self, model: Seq2Seq, text: str, options: DecodingConfig, device: torch.device
    ) -> Request[Any]:
        """Return the search for the tree of one text, for inspection."""
        return self._request(model, self.tokenize([split_words(text)]), [0], device)

    def check_inspectable(self, source: str, target: str | None = None) -> None:
        """Refuse sentences that are too long to be inspected."""
        (row,) = self.tokenize([split_words(source)])
        longest = min(LONGEST, self.max_length - 2)
        check_length("sentence", sum(map(len, row)), longest, "take a part of it")

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
        columns = zip(self.columns, self.encode_tree(row, tree), strict=True)
        shaped = self.shape(
            {name: ragged([ids]) for name, ids in columns}, np.random.default_rng(0)
        )
        labels = shaped.labels.ids.tolist()
        check_length("tree", len(labels), 4 * LONGEST, "take a part of it")
        grids = {name: pad_grid([ids.ids.tolist()], 0) for name, ids in shaped.inputs.items()}
        tokenized = TokenizedText(
            inputs={name: grid.to(device) for name, grid in grids.items()},
            labels=torch.tensor(labels, device=device),
            source_tokens=self.tokenizer.tokens(grids["source"].ids[0].tolist()),
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


def _build(config: AnyModelConfig, sizes: Mapping[str, int], parsing: ParsingConfig) -> Seq2Seq:
    """Build a model whose decoder writes brackets, and may read words as the encoder does."""
    if config.tied == "all":  # the vocabularies have nothing in common
        config = config.model_copy(update={"tied": "output"})
    model: Any = build_model(config, sizes["source"], sizes["target"])
    if parsing.reads_words:
        model.target_embedding = BorrowingEmbedding(
            model.target_embedding, sizes["target"], model.source_embedding
        )
    return cast(Seq2Seq, model)


def _without_rules_of_text(options: DecodingConfig) -> DecodingConfig:
    """Leave out what is only for texts: brackets may well repeat each other."""
    return options.model_copy(update={"no_repeat_ngram": 0, "max_loops": 0})
