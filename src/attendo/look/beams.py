"""The tree of a beam search: hypotheses that were kept, dropped or ended."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attendo.config import change_decoding
from attendo.decoding import Step, search
from attendo.engines import Engine
from attendo.engines.base import check_text
from attendo.errors import ConfigError
from attendo.models import Seq2Seq

Path = tuple[int, ...]


class Node(NamedTuple):
    """A token that the search considered, at the end of a hypothesis."""

    path: Path
    """All tokens up to this one."""
    score: float
    """Sum of their log-probabilities."""
    state: str
    """kept: it was continued; ended: a complete translation; dropped: others were better."""


@dataclass
class _Watch:
    """Wraps the steps of a model and records them.

    The tokens so far travel with the model's state, which the search sorts and repeats.
    """

    model_step: Step[Any]
    n_considered: int
    """How many continuations of a hypothesis a beam search considers."""
    scores: dict[Path, float] = field(default_factory=lambda: {(): 0.0})
    """Of every hypothesis that was considered."""
    kept: set[Path] = field(default_factory=set)
    last: dict[Path, Float[Tensor, " V"]] = field(default_factory=dict)
    """Log-probabilities after each path of the last step."""

    def step(
        self, tokens: Int[Tensor, " R"], state: tuple[Any, Int[Tensor, "R T"]]
    ) -> tuple[Float[Tensor, "R V"], tuple[Any, Int[Tensor, "R T+1"]]]:
        inner, written = state
        written = torch.cat((written, tokens[:, None]), dim=1)
        logits, inner = self.model_step(tokens, inner)
        log_probs = logits.float().log_softmax(dim=-1).cpu()
        best = log_probs.topk(min(self.n_considered, logits.shape[1]), dim=-1)
        before, self.last = self.last, {}
        for row, beginning in enumerate(written[:, 1:].tolist()):  # without <s>
            path = tuple(beginning)
            if path not in self.scores:  # a rule of the search has chosen this one
                forced = float(before[path[:-1]][path[-1]])
                self.scores[path] = self.scores[path[:-1]] + forced
            self.kept.add(path)
            self.last[path] = log_probs[row]
            for value, token in zip(
                best.values[row].tolist(), best.indices[row].tolist(), strict=True
            ):
                self.scores.setdefault((*path, token), self.scores[path] + value)
        return logits, (inner, written)


def beam_tree(engine: Engine, source: str, n_beams: int) -> tuple[list[Node], Path]:
    """Run the beam search of a translator; return its tree, parents first, and the best path."""
    bundle = engine.bundle
    task, model = bundle.task, bundle.model
    if not isinstance(model, Seq2Seq):
        raise ConfigError(
            f"a beam search is for models that write a target, and this model was trained for the "
            f"task {task.name!r}"
        )
    check_text(source)
    task.check_inspectable(source)
    options = change_decoding(bundle.recipe.decoding, {"strategy": "beam", "beam": n_beams})
    request = task.request(model, source, options, engine.device)
    watch = _Watch(request.step, 2 * n_beams)
    nothing = torch.zeros(1, 0, dtype=torch.long, device=engine.device)
    watched = replace(request, step=watch.step, state=(request.state, nothing))
    (found,) = search(watched, options, n_best=n_beams)
    eos = request.specials.eos
    whole = [(*one.ids, eos) if one.finished else tuple(one.ids) for one in found]
    for path, one in zip(whole, found, strict=True):
        watch.scores.setdefault(path, one.score)  # if a rule has ended it
    ended = {path for path, one in zip(whole, found, strict=True) if one.finished}
    best = whole[0]
    return list(_grow(watch, ended, n_beams)), best


def _grow(watch: _Watch, ended: set[Path], n_dropped: int) -> Iterator[Node]:
    """List the nodes step by step; of the dropped ones, the best few of each step."""
    steps: dict[int, list[Node]] = defaultdict(list)
    for path, score in watch.scores.items():
        state = "ended" if path in ended else "kept" if path in watch.kept else "dropped"
        steps[len(path)].append(Node(path, score, state))
    for step in sorted(steps):
        nodes = sorted(steps[step], key=lambda node: -node.score)
        dropped = [node for node in nodes if node.state == "dropped"]
        yield from (node for node in nodes if node.state != "dropped")
        yield from dropped[:n_dropped]
