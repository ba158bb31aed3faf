"""Hugging Face's Marian: the same Transformer in the library most people take."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import transformers
from torch import Tensor, nn
from transformers import MarianConfig, MarianMTModel

from attendo.config import Recipe
from attendo.specials import Specials
from attendo.tasks import Translation
from attendo.text.streams import cut

# Marian would warn of every setting of its generation that is not its usual one.
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


class Marian(nn.Module):
    """Marian of a recipe's sizes with new parameters.

    It has the parameters that ours has, except that its two tables of positions are stored (not
    learned), and that it is post-norm whatever the recipe has: a pre-norm model of ours has one
    more norm at the end of either stack.
    """

    def __init__(self, recipe: Recipe, specials: Specials) -> None:
        super().__init__()
        self.specials = specials
        model = recipe.model
        config = MarianConfig(
            vocab_size=recipe.tokenizer.vocabulary,
            d_model=model.d_model,
            encoder_layers=model.encoder_layers,
            decoder_layers=model.decoder_layers,
            encoder_attention_heads=model.n_heads,
            decoder_attention_heads=model.n_heads,
            encoder_ffn_dim=model.d_ff,
            decoder_ffn_dim=model.d_ff,
            activation_function=model.feed_forward,
            dropout=model.p_drop,
            attention_dropout=model.p_drop_attention,
            activation_dropout=model.p_drop_inner,
            max_position_embeddings=2 * recipe.data.max_length,
            scale_embedding=True,
            pad_token_id=specials.pad,
            bos_token_id=specials.bos,
            eos_token_id=specials.eos,
            decoder_start_token_id=specials.bos,
            forced_eos_token_id=None,
            attn_implementation="sdpa",
        )
        self.model = MarianMTModel(config)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Compute logits (R, T, V) from ids (R, S) and (R, T)."""
        # A mask of four dimensions is taken as it is. One of two dimensions is made into such a
        # mask unless all of it is True, and to find that out Marian waits for the GPU.
        is_text = (source != self.specials.pad)[:, None, None, :]
        output = self.model(
            input_ids=source,
            attention_mask=is_text,
            decoder_input_ids=target,
            use_cache=False,
        )
        logits: Tensor = output.logits
        return logits

    def generate(self, source: Tensor, n_tokens: int, n_beams: int) -> Tensor:
        """Generate exactly `n_tokens` tokens for each source: (B, S) to (B, n_tokens)."""
        return self._search(source, n_beams, 1.0, min_new_tokens=n_tokens, max_new_tokens=n_tokens)

    def translate(
        self, source: Tensor, n_beams: int, length_penalty: float, max_extra: int
    ) -> Tensor:
        """Translate each source, with padding after </s>: (B, S) to (B, T)."""
        longest = source.shape[1] + max_extra
        n_positions = self.model.config.max_position_embeddings
        return self._search(
            source, n_beams, length_penalty, max_new_tokens=min(longest, n_positions - 1)
        )

    def _search(
        self, source: Tensor, n_beams: int, length_penalty: float, **lengths: int
    ) -> Tensor:
        found: Tensor = self.model.generate(
            input_ids=source,
            attention_mask=(source != self.specials.pad).long(),
            num_beams=n_beams,
            do_sample=False,
            early_stopping=n_beams > 1,
            length_penalty=length_penalty,
            **lengths,
        )
        return found[:, 1:]


def translate_batches(
    marian: Marian,
    sources: Sequence[list[int]],
    batch_size: int,
    n_beams: int,
    device: torch.device,
) -> None:
    """Translate ids to ids, like lengths together, each to one token more than it has, and an end.

    Marian continues all sentences of a batch until the longest is done, as it always does: so the
    others are longer than they should be, which costs the same and is not counted.
    """
    specials = marian.specials
    ordered = sorted(sources, key=len)
    for start in range(0, len(ordered), batch_size):
        batch = ordered[start : start + batch_size]
        width = len(batch[-1]) + 1
        found = marian.generate(_padded(batch, specials).to(device), width + 1, n_beams)
        assert found.shape == (len(batch), width + 1), (
            "Marian did not generate the required number of tokens"
        )
        found.tolist()


@dataclass(frozen=True, slots=True)
class Search:
    """How Marian translates text: as attendo does where its library allows it."""

    n_beams: int
    alpha: float
    """Exponent of the length by which a score is divided; attendo's is that of (5 + length) / 6."""
    max_extra: int
    """A translation is at most this many tokens longer than the longest source of its batch."""
    batch_size: int = 256


def translate_texts(
    marian: Marian, task: Translation, texts: Sequence[str], search: Search, device: torch.device
) -> list[str]:
    """Translate text to text, like lengths together; sources are cut where attendo cuts them."""
    segments: list[tuple[int, list[int]]] = []
    for number, ids in enumerate(task.source.encode_batch(texts)):
        parts = cut(ids, task.source.tokens(ids), task.max_length - 1)
        segments += [(number, part) for part in parts]
    order = sorted(range(len(segments)), key=lambda place: len(segments[place][1]))
    found: dict[int, str] = {}
    for start in range(0, len(order), search.batch_size):
        places = order[start : start + search.batch_size]
        source = _padded([segments[place][1] for place in places], marian.specials).to(device)
        said = marian.translate(source, search.n_beams, search.alpha, search.max_extra).tolist()
        found |= {place: task.target.decode(ids) for place, ids in zip(places, said, strict=True)}
    joined: list[list[str]] = [[] for _ in texts]
    for place, (number, _) in enumerate(segments):
        joined[number].append(found[place])
    return [" ".join(parts) for parts in joined]


def _padded(sources: Sequence[list[int]], specials: Specials) -> Tensor:
    """Return sources with </s> as padded rows: (B, S)."""
    width = max(map(len, sources)) + 1
    return torch.tensor(
        [[*ids, specials.eos] + [specials.pad] * (width - 1 - len(ids)) for ids in sources]
    )
