"""Learning an exercise: the same few lines and the same budget for every model."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn, optim

from attendo.compare.probes.exercises import Exercise
from attendo.losses import cross_entropy
from attendo.models import Seq2Seq
from attendo.specials import IGNORE

LEARNING_RATE = 2e-3
WARM_UP = 20
"""Steps over which the learning rate rises."""

LARGEST_NORM = 1.0
"""Of a gradient; longer ones are shortened, without which recurrences explode now and then."""


@contextmanager
def seeded(seed: int) -> Iterator[torch.Generator]:
    """Let random weights depend on the seed alone; yields the generator to draw exercises from."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield torch.Generator().manual_seed(seed)


def answer(model: Seq2Seq, exercise: Exercise) -> Float[Tensor, "R T V"]:
    """Let a model say what it expects after each token of the target."""
    hidden = model.decode(exercise.target, model.encode(exercise.source))
    return model.logits(hidden)


def learn(
    model: Seq2Seq,
    draw: Callable[[], Exercise],
    n_steps: int,
    learning_rate: float = LEARNING_RATE,
    enough: float = 0.0,
) -> list[float]:
    """Learn from fresh exercises, a batch a step; returns the loss of each, in nats an answer.

    Learning ends early when the loss has come below what is enough.
    """
    device = next(model.parameters()).device
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = optim.Adam(learned, lr=learning_rate, betas=(0.9, 0.98))
    schedule = optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / WARM_UP))
    losses: list[float] = []
    model.train()
    with one_thread():
        while len(losses) < n_steps and min(losses, default=torch.inf) >= enough:
            exercise = draw().to(device)
            loss = cross_entropy(answer(model, exercise), exercise.answers)
            mean = loss.total / loss.n_labels
            optimizer.zero_grad()
            mean.backward()
            nn.utils.clip_grad_norm_(learned, LARGEST_NORM)
            optimizer.step()
            schedule.step()
            losses.append(mean.item())
    return losses


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one core: with models as small as these a second one costs more than it helps."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@torch.no_grad()
def is_right(model: Seq2Seq, exercise: Exercise) -> Bool[Tensor, "R T"]:
    """Tell which answers a model gets right."""
    model.eval()
    exercise = exercise.to(next(model.parameters()).device)
    with one_thread():
        said = answer(model, exercise).argmax(dim=-1)
    return (said == exercise.answers).cpu()


def share_right(model: Seq2Seq, exercise: Exercise) -> float:
    """Give the share of the answers that a model gets right."""
    is_asked = exercise.answers != IGNORE
    return is_right(model, exercise)[is_asked].double().mean().item()
