"""Small models of `transformers` with random parameters and real tokenizers, as published."""

import json
from collections.abc import Callable
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import sentencepiece
import tokenizers
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    MarianConfig,
    MarianMTModel,
)

from attendo.data.builtin import sentences

PAIRS = list(islice(sentences(seed=3), 1500))
ENGLISH, GERMAN = tuple(one.source for one in PAIRS), tuple(one.target for one in PAIRS)

ODD = ["", "  two  spaces ", "Tab\there.", "日本 🙂", "ﬁne ½ …", "e\u0301", "A " * 30, "x" * 70]
LINES = [*ENGLISH[1000:1200], *ODD]

LENGTH = 48
"""Number of positions."""


class Published(NamedTuple):
    folder: Path
    model: Any


def train_sentencepiece(lines: tuple[str, ...], **options: Any) -> bytes:
    content = BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines[:1000]), model_writer=content, minloglevel=2,
        **{"vocab_size": 270, **options},
    )  # fmt: skip
    return content.getvalue()


def pieces_of(content: bytes) -> list[str]:
    model = sentencepiece.SentencePieceProcessor(model_proto=content)
    return [model.id_to_piece(number) for number in range(3, model.get_piece_size())]


def noisy(model: Any) -> Any:
    """Add noise to all parameters: new biases are 0 and new gains 1, which hides mistakes."""
    for name, parameter in model.named_parameters():
        if "embed_positions" not in name:
            parameter.data.add_(torch.randn_like(parameter), alpha=0.2)
    return model.eval()


def marian(folder: Path, *, two_vocabularies: bool = False, **changes: Any) -> Published:
    """Write a model such as opus-mt's."""
    source, target = train_sentencepiece(ENGLISH, vocab_size=290), train_sentencepiece(GERMAN)
    (folder / "source.spm").write_bytes(source)
    (folder / "target.spm").write_bytes(target)
    sides = [pieces_of(source), pieces_of(target)]
    if not two_vocabularies:
        sides = [sides[0] + [piece for piece in sides[1] if piece not in sides[0]] + [">>deu<<"]]
    vocabularies = [["</s>", "<unk>", *pieces, "<pad>"] for pieces in sides]
    for name, tokens in zip(("vocab.json", "target_vocab.json"), vocabularies, strict=False):
        ids = {token: number for number, token in enumerate(tokens)}
        (folder / name).write_text(json.dumps(ids), encoding="utf-8")
    pad = len(vocabularies[-1]) - 1
    config = MarianConfig(
        vocab_size=len(vocabularies[0]), decoder_vocab_size=len(vocabularies[-1]), d_model=40,
        encoder_layers=2, decoder_layers=3, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=56, decoder_ffn_dim=56, max_position_embeddings=LENGTH,
        activation_function="swish", scale_embedding=True, init_std=0.2,
        pad_token_id=pad, eos_token_id=0, decoder_start_token_id=pad, forced_eos_token_id=None,
        share_encoder_decoder_embeddings=not two_vocabularies, **changes,
    )  # fmt: skip
    model = noisy(MarianMTModel(config))
    model.final_logits_bias.normal_(std=0.1)
    model.save_pretrained(folder)
    return Published(folder, model)


def gpt2(folder: Path, **changes: Any) -> Published:
    """Write a model such as GPT-2."""
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        ENGLISH[:1000], 400, show_progress=False, special_tokens=["<|endoftext|>"]
    )
    tokenizer.save_model(str(folder))  # vocab.json and merges.txt
    config = GPT2Config(
        vocab_size=tokenizer.get_vocab_size(), n_embd=40, n_layer=3, n_head=4, n_positions=LENGTH,
        bos_token_id=0, eos_token_id=0, initializer_range=0.2, **changes,
    )  # fmt: skip
    model = noisy(GPT2LMHeadModel(config))
    model.save_pretrained(folder)
    return Published(folder, model)


def _bert(kind: type[Any], folder: Path, **changes: Any) -> Published:
    tokenizer = tokenizers.BertWordPieceTokenizer()
    tokenizer.train_from_iterator(ENGLISH[:1000], 400, show_progress=False)
    tokenizer.save_model(str(folder))  # vocab.txt
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=40, num_hidden_layers=3,
        num_attention_heads=4, intermediate_size=56, max_position_embeddings=LENGTH,
        initializer_range=0.2, **changes,
    )  # fmt: skip
    model = noisy(kind(config))
    model.save_pretrained(folder)
    return Published(folder, model)


def bert(folder: Path, **changes: Any) -> Published:
    """Write an encoder such as MiniLM."""
    return _bert(BertModel, folder, **changes)


def masked_bert(folder: Path, **changes: Any) -> Published:
    """Write a model such as BERT."""
    return _bert(BertForMaskedLM, folder, **changes)


KINDS: dict[str, Callable[..., Published]] = {
    "MarianMTModel": marian,
    "GPT2LMHeadModel": gpt2,
    "BertModel": bert,
    "BertForMaskedLM": masked_bert,
}
