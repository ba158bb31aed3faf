"""Trees by the scores of spans: Kitaev and Klein's head on an encoder, as a random field.

Between two words is a fencepost: the first half of the hidden state before it and the second half
of the one after it. A span is the difference of its two fenceposts, and a small network scores it
for every label. A binary tree has the sum of the scores of its spans as its score, and a
probability among all trees of the sentence (Zhang et al. 2020). Label 0 is for spans that are no
constituents: those that a constituent of more than two parts is divided into.
"""

from collections import OrderedDict
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from attendo.models.base import Encoder, HeadedEncoder, Memory
from attendo.nn.chart import best_tree, log_partition
from attendo.nn.grid import Sequences
from attendo.nn.numerics import Dropout

HIDDEN = 256
"""Inner width of the network that scores spans."""


class ScoredSpans(NamedTuple):
    """The K spans of N sentences, each with a score for each label."""

    scores: Float[Tensor, "K C"]
    places: Int[Tensor, "N F F"]
    """Number of the span between two gaps; 0 where there is none."""
    n_words: Int[Tensor, " N"]

    def chart(self) -> Float[Tensor, "N F F"]:
        """Return the score of each span over all labels together."""
        return self.scores.logsumexp(-1)[self.places]

    def best_chart(self) -> Float[Tensor, "N F F"]:
        """Return the score of each span with its best label."""
        return self.scores.amax(-1)[self.places]


class Nodes(NamedTuple):
    """Constituents as tensors."""

    sentences: Int[Tensor, " M"]
    starts: Int[Tensor, " M"]
    ends: Int[Tensor, " M"]
    labels: Int[Tensor, " M"]


class SpanParser(HeadedEncoder):
    """Scores the labels of all spans; `output` scores the parts of speech of words."""

    def __init__(
        self, body: Encoder, d_model: int, n_labels: int, n_tags: int, p_drop: float = 0.0
    ) -> None:
        super().__init__(body)
        self.output = nn.Linear(d_model, n_tags)
        self.spans = nn.Sequential(
            OrderedDict(
                inner=nn.Linear(d_model, HIDDEN),
                norm=nn.LayerNorm(HIDDEN),
                activation=nn.ReLU(),
                dropout=Dropout(p_drop),
                outer=nn.Linear(HIDDEN, n_labels),
            )
        )
        for linear in (self.output, self.spans.inner, self.spans.outer):
            assert isinstance(linear, nn.Linear)
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def parts(self) -> list[nn.Module]:
        """Return nothing to compile: the number of spans is another one in every batch."""
        return []

    def score(self, memory: Memory, begins_word: Bool[Tensor, "R T"]) -> ScoredSpans:
        """Score all spans of all sentences.

        Args:
            memory: The encoded sentences, each between <s> and </s>.
            begins_word: The positions of the first token of each word.
        """
        hidden, segments = memory
        is_last = functional.pad(segments.diff(dim=1) != 0, (0, 1), value=True)
        is_gap = (begins_word | is_last) & (segments != 0)
        sentences = Sequences.of(segments * is_gap)
        half = hidden.shape[-1] // 2
        before = functional.pad(hidden[:, :-1, :half], (0, 0, 1, 0))
        gaps = sentences.separate(torch.cat((before, hidden[..., half:]), dim=-1))
        n_words = sentences.lengths - 1
        columns = torch.arange(gaps.shape[1], device=gaps.device)
        is_span = (columns[:, None] < columns) & (columns <= n_words[:, None, None])
        rows, starts, ends = is_span.nonzero(as_tuple=True)
        scores = self.spans(gaps[rows, ends] - gaps[rows, starts]).float()
        # The root is a constituent.
        is_root = (starts == 0) & (ends == n_words[rows])
        none = functional.one_hot(torch.zeros_like(starts), scores.shape[1]).bool()
        scores = scores.masked_fill(is_root[:, None] & none, -torch.inf)
        numbers = torch.zeros_like(is_span, dtype=torch.long)
        numbers[is_span] = torch.arange(len(rows), device=rows.device)
        return ScoredSpans(scores, numbers, n_words)


def tree_losses(scored: ScoredSpans, trees: Nodes) -> Float[Tensor, " N"]:
    """Return minus the log-probability of a binary tree of each sentence, given by its nodes."""
    spans = scored.places[trees.sentences, trees.starts, trees.ends]
    scores = scored.scores[spans, trees.labels]
    totals = scores.new_zeros(len(scored.n_words)).index_add(0, trees.sentences, scores)
    return log_partition(scored.chart(), scored.n_words) - totals


def best_nodes(scored: ScoredSpans) -> Nodes:
    """Return the nodes of the best binary tree of each sentence."""
    is_node = best_tree(scored.best_chart(), scored.n_words) > 0.5
    sentences, starts, ends = is_node.nonzero(as_tuple=True)
    labels = scored.scores[scored.places[sentences, starts, ends]].argmax(-1)
    return Nodes(sentences, starts, ends, labels)
