"""What the parsers have in common: treebanks, labels, answers and scores.

A task of this kind says how a sentence becomes rows of ids and how its model finds a tree. Reading,
vocabulary, evaluation and the answers follow.
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch

from attendo.config import DataConfig, DecodingConfig, ParsingConfig, Recipe
from attendo.data.builtin import Sentence
from attendo.data.builtin.trees import tree_of
from attendo.data.readers import Record
from attendo.data.treebanks import ParsedSentence
from attendo.errors import DataError
from attendo.runs import LABELS, read_labels, read_tokenizer, write_labels
from attendo.tasks.base import Done, Example, Metric, Records, learn_tokenizer
from attendo.tasks.inspection import first_sentence
from attendo.tasks.predicting import PredictingTask
from attendo.tasks.tree_scores import TreeScores, score_trees
from attendo.text import Tokenizer
from attendo.text.trees import TOP, Tree, draw_tree, parse_tree, split_words, unescape

NO_TAG = "XX"
"""Stands for a word in brackets where parts of speech are not predicted."""

Words = list[str]

Found = tuple[Tree, float]
"""A tree and its log-probability."""

Finished = Callable[[Sequence[int]], None]
"""Called with the numbers of the rows that are finished."""


class Parse(NamedTuple):
    """The tree of a sentence."""

    tree: Tree
    probability: float
    """Of this tree among all trees of the sentence, by the model."""

    def to_text(self) -> str:
        """Return the tree in brackets, in one line; nothing for an empty text."""
        return str(self.tree) if self.tree.children else ""

    def to_drawing(self) -> str:
        """Return the tree drawn with characters."""
        return draw_tree(self.tree) if self.tree.children else ""

    def to_dict(self) -> dict[str, Any]:
        """Return words, tags, brackets, constituents and the nested tree by name."""
        leaves = list(self.tree.leaves()) if self.tree.children else []
        return {
            "words": [leaf.word for leaf in leaves],
            "tags": [leaf.label for leaf in leaves],
            "brackets": self.to_text(),
            "constituents": [span._asdict() for span in self.tree.spans()],
            "tree": self.tree.to_dict(),
            "probability": self.probability,
        }


class TreeTask(PredictingTask):
    """Sentences to constituency trees."""

    models: ClassVar[str] = "parsers"
    record_type: ClassVar[type[Any]] = ParsedSentence
    metric: ClassVar[Metric] = Metric("f1", "bracketing F1", higher_is_better=True)
    command: ClassVar[tuple[str, ...]] = ("predict", "RUN", "The cat sat .")
    most_words: ClassVar[int] = 10_000
    """Of a sentence in training."""
    examples: ClassVar[tuple[str, ...]] = (
        "The old dog that the farmer sees sleeps in the big house .",
        "The animal did not cross the street because it was too tired .",
    )

    def __init__(
        self,
        tokenizer: Tokenizer,
        labels: Sequence[str],
        tags: Sequence[str],
        data: DataConfig,
        parsing: ParsingConfig,
    ) -> None:
        self.tokenizer = tokenizer
        self.tokenizers = {"tokenizer": tokenizer}
        self.labels = tuple(labels)
        """Of constituents; which, is for each kind of model to say."""
        self.tags = tuple(tags)
        """Parts of speech; only `NO_TAG` if they are not predicted."""
        self.max_length = data.max_length
        self.parsing = parsing
        self.label_numbers = {label: number for number, label in enumerate(self.labels)}
        self.tag_numbers = {tag: number for number, tag in enumerate(self.tags)}

    def beginning(self, text: str) -> str:
        """Return the first sentence of a document."""
        return first_sentence(text)

    # -- what a task of this kind says

    @classmethod
    @abstractmethod
    def labels_of(cls, tree: Tree) -> Iterable[str]:
        """Return the labels that a model needs for a tree."""

    @abstractmethod
    def encode_tree(self, words: list[list[int]], tree: Tree) -> Example:
        """Return a tree as columns of the corpus, given the tokens of its words."""

    @abstractmethod
    def parse_rows(
        self,
        model: Any,
        rows: Sequence[list[list[int]]],
        options: DecodingConfig,
        device: torch.device,
        finished: Finished,
    ) -> list[Found]:
        """Return a tree for the tokens of the words of each sentence, and its log-probability.

        The words of its leaves do not matter.
        """

    # -- vocabulary

    @classmethod
    def convert(cls, sentence: Sentence) -> Record:
        """Return the tree of the English side."""
        return ParsedSentence.of(tree_of(sentence))

    @classmethod
    def learn(cls, recipe: Recipe, records: Records) -> "TreeTask":
        """Learn the vocabulary from the words, or load it; and collect labels and tags."""
        labels: Counter[str] = Counter()
        tags: Counter[str] = Counter()
        for record in records():
            tree = parse_tree(record.tree)
            labels.update(cls.labels_of(tree))
            tags.update(tree.tags() if recipe.parsing.tags else [NO_TAG])
        texts = (plain_text(record.text.split()) for record in records())
        tokenizer = learn_tokenizer(recipe, texts, recipe.tokenizer.path)
        return cls(tokenizer, sorted(labels), sorted(tags), recipe.data, recipe.parsing)

    @classmethod
    def load(cls, folder: Path, recipe: Recipe) -> "TreeTask":
        """Load tokenizer, labels and tags of a run folder."""
        labels, tags = read_labels(folder, "labels", "tags")
        tokenizer = read_tokenizer(folder / "tokenizer.json")
        return cls(tokenizer, labels, tags, recipe.data, recipe.parsing)

    def files(self) -> dict[str, str]:
        """Return tokenizer, labels and tags."""
        labels = write_labels(labels=self.labels, tags=self.tags)
        return {"tokenizer.json": self.tokenizer.to_json(), LABELS: labels}

    def covers(self, records: Iterable[Record]) -> bool:
        """Return whether all labels and tags are known."""
        return all(self.knows(parse_tree(record.tree)) for record in records)

    def knows(self, tree: Tree) -> bool:
        """Return whether all labels and tags of a tree are known."""
        has_tags = self.tags == (NO_TAG,) or all(tag in self.tag_numbers for tag in tree.tags())
        return has_tags and all(label in self.label_numbers for label in self.labels_of(tree))

    # -- data

    def tokenize(self, sentences: Sequence[Words]) -> list[list[list[int]]]:
        """Return the tokens of each word of each sentence."""
        spaced = [
            f" {word}" if at else word
            for words in sentences
            for at, word in enumerate(map(unescape, words))
        ]
        encoded = iter(self.tokenizer.encode_batch(spaced))
        # Of a word without tokens, such as a control character, something has to be read.
        end = [self.tokenizer.specials.eos]
        return [[next(encoded) or end for _ in words] for words in sentences]

    def encode(
        self, records: Sequence[Record], data: DataConfig, dropped: Counter[str]
    ) -> Iterator[tuple[Record, Example]]:
        """Encode trees, without those that a row cannot hold."""
        rows = self.tokenize([record.text.split() for record in records])
        for record, words in zip(records, rows, strict=True):
            tree = parse_tree(record.tree)
            if not self.knows(tree):
                dropped["label that no training tree has"] += 1
                continue
            example = self.encode_tree(words, tree) if len(words) <= self.most_words else None
            if example is None or max(map(len, example)) > data.max_length - 2:  # <s> and </s>
                dropped[f"longer than data.max_length = {data.max_length} tokens"] += 1
            else:
                yield record, example

    def tag_number(self, tag: str) -> int:
        """Return the number of a part of speech; 0 where they are not predicted."""
        return self.tag_numbers.get(tag, 0)

    # -- use

    def predict(
        self,
        model: Any,
        texts: Sequence[str | Sequence[str]],
        options: DecodingConfig,
        device: torch.device,
        *,
        done: Done = lambda n: None,
    ) -> list[Parse]:
        """Return the tree of each text; what is longer than a row is parsed in parts."""
        sentences = [split_words(self.parse(text)[0]) for text in texts]
        return self.parse_words(model, sentences, options, device, done=done)

    def parse_words(
        self,
        model: Any,
        sentences: Sequence[Words],
        options: DecodingConfig,
        device: torch.device,
        *,
        done: Done = lambda n: None,
    ) -> list[Parse]:
        """Return the tree of each sentence, given its words."""
        parts = [list(self._parts(words)) for words in self.tokenize(sentences)]
        owners = [number for number, some in enumerate(parts) for _ in some]
        done(len(sentences) - len(set(owners)))  # the empty ones
        left = Counter(owners)

        def finished(rows: Sequence[int]) -> None:
            chosen = [owners[row] for row in rows]
            left.subtract(chosen)
            done(sum(not left[owner] for owner in set(chosen)))

        rows = [part for some in parts for part in some]
        found = iter(self.parse_rows(model, rows, options, device, finished))
        return [
            _joined([next(found) for _ in some], words)
            for some, words in zip(parts, sentences, strict=True)
        ]

    def _parts(self, words: list[list[int]]) -> Iterator[list[list[int]]]:
        """Cut a sentence between words so that each part has room in a row."""
        room = self.max_length - 2
        part: list[list[int]] = []
        size = 0
        for word in words:
            tokens = word[:room]
            if part and size + len(tokens) > room:
                yield part
                part, size = [], 0
            part.append(tokens)
            size += len(tokens)
        if part:
            yield part

    def evaluate(
        self,
        model: Any,
        records: Sequence[Record],
        options: DecodingConfig,
        device: torch.device,
        *,
        done: Done = lambda n: None,
    ) -> TreeScores:
        """Measure bracketing F1, and what is beside it."""
        if not records:
            raise DataError("no trees to score: give at least one")
        sentences = [record.text.split() for record in records]
        found = self.parse_words(model, sentences, options, device, done=done)
        expected = [parse_tree(record.tree) for record in records]
        return score_trees(expected, [one.tree for one in found])

    @classmethod
    def describe(cls, scores: Mapping[str, Any]) -> dict[str, str]:
        """Return the scores as text."""
        low, high = scores["f1_interval"]
        return {
            "F1": f"{scores['f1']:.2f}  (95 % confidence: {low:.2f} to {high:.2f})",
            "precision": f"{scores['precision']:.2f}",
            "recall": f"{scores['recall']:.2f}",
            "exact": f"{scores['exact']:.2f} %",
            "tags": f"{scores['tag_accuracy']:.2f} %",
            "well-formed": f"{scores['well_formed']:.2f} %",
            "sentences": f"{scores['sentences']:,}",
        }


def plain_text(words: Words) -> str:
    """Return words as other texts have them: what a tokenizer is learned from."""
    return " ".join(map(unescape, words))


def _joined(parts: list[Found], words: Words) -> Parse:
    """Return the tree of a whole sentence; the parts of a long one side by side."""
    if not parts:
        return Parse(Tree(TOP), 1.0)
    trees, scores = zip(*parts, strict=True)
    whole = trees[0] if len(trees) == 1 else Tree(TOP, trees)
    leaves = zip(whole.leaves(), words, strict=True)
    spoken = whole.with_leaves(leaf._replace(word=word) for leaf, word in leaves)
    probability = torch.tensor(sum(scores)).exp().clamp(max=1.0)
    return Parse(spoken, round(float(probability), 6))
