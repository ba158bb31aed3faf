"""Checks: do the attention weights show what the translation depends on?

Attention is not explanation (Jain and Wallace 2019): a token can have a large weight and not
matter. So the weights are compared with two measurements that do not use them, and heads are
ablated.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attendo.look.heads import ablate, all_heads
from attendo.models import Model, Seq2Seq
from attendo.nn.grid import Grid
from attendo.tasks import Task, TokenizedText

LOGITS_AT_ONCE = 2**25

Importance = Float[Tensor, "T S"]
"""How much each source token matters for each target token."""


def occlusion(model: Seq2Seq, pair: TokenizedText) -> Importance:
    """Measure how much less likely each target token is when one source token is left out.

    The token keeps its position but is masked.
    """
    n_source = pair.source.ids.shape[1]
    n_logits = len(pair.labels) * model.output.out_features
    rows_at_once = max(1, LOGITS_AT_ONCE // n_logits)
    with torch.inference_mode():
        whole = label_log_probs(model, pair.source, pair)
        hidden = [
            label_log_probs(model, _hide(pair.source, places), pair)
            for places in torch.arange(n_source).split(rows_at_once)
        ]
    return (whole - torch.cat(hidden)).T.cpu()


def _hide(source: Grid, places: Tensor) -> Grid:
    """Repeat a sentence, each time with another token masked."""
    repeated = source.map(lambda tensor: torch.cat([tensor] * len(places)))
    repeated.segments[torch.arange(len(places)), places] = 0
    return repeated


def label_log_probs(model: Seq2Seq, source: Grid, pair: TokenizedText) -> Float[Tensor, "R T"]:
    """Compute the log-probability of each target token, for each of several sources."""
    n_rows = len(source.ids)
    target = pair.target.map(lambda tensor: tensor.repeat(n_rows, 1))
    logits = model.logits(model.decode(target, model.encode(source)))
    labels = pair.labels.repeat(n_rows, 1)[..., None]
    return logits.float().log_softmax(dim=-1).gather(-1, labels)[..., 0]


def gradient_times_input(model: Seq2Seq, pair: TokenizedText) -> Importance:
    """Measure how much each target token depends on each source token to first order.

    The gradient of its log-probability, times the input of the encoder at that token.
    """
    # The kernels of cuDNN have no backward pass for recurrent cells in evaluation mode.
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        recording = model.record(pair.source, pair.target)
        entered = recording.encoder.hidden_states[0]
        log_probs = recording.logits[0].float().log_softmax(dim=-1)
        chosen = log_probs.gather(-1, pair.labels[:, None])[:, 0]
        rows = []
        for number in range(len(chosen)):
            (slope,) = torch.autograd.grad(chosen[number], entered, retain_graph=True)
            rows.append((slope * entered)[0].sum(dim=-1).detach())
    return torch.stack(rows).cpu()


def ablation(
    task: Task, model: Model, tokenized: TokenizedText
) -> tuple[float, dict[str, list[list[float]]]]:
    """Measure the loss per label, and how it changes when one head is ablated, for every head."""
    batch = tokenized.batch

    def loss_of(model: Model) -> float:
        return float(task.loss(model, batch, smoothing=0.0).total) / batch.n_labels

    with torch.inference_mode():
        loss = loss_of(model)
        changes: dict[str, list[list[float]]] = {
            kind: [[] for _ in attentions] for kind, attentions in model.attentions().items()
        }
        for head in all_heads(model):
            changes[head.kind][head.layer].append(loss_of(ablate(model, [head])) - loss)
    return loss, changes


def agreement(weights: Importance, importance: Importance) -> float | None:
    """Compute the rank correlation of two matrices, averaged over their rows.

    1 is the same order of source tokens, 0 no relation, -1 the reverse. Constant rows do not count.
    """
    from scipy.stats import rankdata

    left = torch.from_numpy(rankdata(weights.numpy(), axis=1))
    right = torch.from_numpy(rankdata(importance.numpy(), axis=1))
    left, right = left - left.mean(1, keepdim=True), right - right.mean(1, keepdim=True)
    sizes = left.norm(dim=1) * right.norm(dim=1)
    has_order = sizes > 0
    if not has_order.any():
        return None
    return float(((left * right).sum(dim=1)[has_order] / sizes[has_order]).mean())


WITHOUT_ATTENTION = (
    "The model has no attention weights to compare. Both maps show which source tokens each target "
    "token depends on."
)


def in_words(occluded: float | None, graded: float | None) -> str:
    """Explain the correlations."""
    found = [value for value in (occluded, graded) if value is not None]
    if not found:
        return "There is nothing to compare: every source token matters equally."
    mean = sum(found) / len(found)
    verdicts = [
        (0.7, "agree well: here they show what the translation depends on"),
        (0.4, "agree fairly well: they are a hint at what the translation depends on"),
        (0.2, "agree only a little: many tokens with large weights hardly matter"),
        (-1, "hardly agree: do not read them as what the translation depends on"),
    ]
    verdict = next(words for least, words in verdicts if mean >= least or least == -1)
    numbers = [
        f"{value:.2f} with {name}"
        for value, name in ((occluded, "leaving out one token at a time"), (graded, "the gradient"))
        if value is not None
    ]
    return (
        f"The attention weights and the two measurements {verdict}. "
        f"Rank correlation: {' and '.join(numbers)} (1: same order of tokens, 0: no relation)."
    )
