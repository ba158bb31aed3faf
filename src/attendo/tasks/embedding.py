"""Embeddings of texts, images and recordings: the mean of the last hidden states of an encoder."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32
from torch.nn import functional

from attendo.config import DecodingConfig
from attendo.errors import DataError
from attendo.models import Encoder
from attendo.nn.grid import segment_means
from attendo.tasks.base import Done
from attendo.tasks.predicting import encode_rows, finite
from attendo.text import Tokenizer


def embed(
    model: Encoder,
    task: Any,
    texts: Sequence[str],
    options: DecodingConfig,
    *,
    done: Done = lambda n: None,
) -> Float32[np.ndarray, "N D"]:
    """Return a vector of length 1 for each text or file; texts longer than a row are cut."""
    if not texts:
        raise DataError("no text to embed: give at least one")
    device = next(model.parameters()).device
    rows: Iterable[Any]
    if task.reads_files:
        rows, pad = map(task.row, texts), 0
    else:
        rows, pad = _rows(task.tokenizer, texts, task.max_length), task.tokenizer.specials.pad
    found: dict[int, Float32[np.ndarray, " D"]] = {}
    for numbers, memory in encode_rows(model, rows, pad, options.batch_size, device):
        with torch.inference_mode():
            means = finite(segment_means(memory.hidden, memory.segments)[:, 0])
            vectors = functional.normalize(means.float(), dim=-1).cpu().numpy()
        found.update(zip(numbers, vectors, strict=True))
        done(len(numbers))
    return np.stack([found[number] for number in range(len(texts))])


def _rows(tokenizer: Tokenizer, texts: Sequence[str], max_length: int) -> list[list[int]]:
    specials = tokenizer.specials
    return [
        [specials.bos, *ids[: max_length - 2], specials.eos]
        for ids in tokenizer.encode_batch(list(texts))
    ]
