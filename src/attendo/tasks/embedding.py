"""Embeddings of texts: the mean of the last hidden states of an encoder."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float32
from torch.nn import functional

from attendo.config import DecodingConfig
from attendo.errors import DataError
from attendo.models import Encoder
from attendo.nn.grid import segment_means
from attendo.tasks.base import Done
from attendo.tasks.predicting import encode_rows
from attendo.text import Tokenizer


def embed(
    model: Encoder,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    max_length: int,
    options: DecodingConfig,
    *,
    done: Done = lambda n: None,
) -> Float32[np.ndarray, "N D"]:
    """Return a vector of length 1 for each text; texts longer than a row are cut at the end."""
    if not texts:
        raise DataError("no text to embed: give at least one")
    specials, device = tokenizer.specials, next(model.parameters()).device
    rows = [
        [specials.bos, *ids[: max_length - 2], specials.eos]
        for ids in tokenizer.encode_batch(list(texts))
    ]
    found: dict[int, Float32[np.ndarray, " D"]] = {}
    for numbers, memory in encode_rows(model, rows, specials.pad, options.batch_size, device):
        with torch.inference_mode():
            means = segment_means(memory.hidden, memory.segments)[:, 0]
            vectors = functional.normalize(means.float(), dim=-1).cpu().numpy()
        found.update(zip(numbers, vectors, strict=True))
        done(len(numbers))
    return np.stack([found[number] for number in range(len(rows))])
