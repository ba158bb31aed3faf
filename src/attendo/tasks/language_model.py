"""Language modelling: predict the next token of a text, and continue a text."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attendo.config import AnyModelConfig, DataConfig, DecodingConfig
from attendo.data.batches import Shaped
from attendo.data.corpus import Ragged
from attendo.data.packing import pad_grid
from attendo.data.readers import Document
from attendo.decoding import Request, search
from attendo.models import CausalLM, Recording, build_model
from attendo.models.maps import shown_tokens
from attendo.nn.grid import Grid
from attendo.nn.stack import nothing_recorded
from attendo.tasks.base import Done, Example, Metric
from attendo.tasks.documents import DocumentTask
from attendo.tasks.inspection import (
    LONGEST,
    Inspection,
    TokenizedText,
    check_finite,
    check_length,
    refuse_target,
)

N_NEXT = 5
"""Next tokens in the summary of an inspection."""


@dataclass(frozen=True, slots=True)
class LanguageModelScores:
    """How well the next token of unseen text is predicted; lower is better."""

    perplexity: float
    """The exponential of the mean loss of a token."""
    bits_per_byte: float
    """Bits that are needed for a byte of UTF-8 text, whatever the tokenizer."""
    tokens: int
    documents: int

    def to_dict(self) -> dict[str, Any]:
        """Return the scores by name."""
        return asdict(self)


class LanguageModel(DocumentTask):
    """Text alone, by any model that keeps the promise `CausalLM`."""

    name: ClassVar[str] = "language-model"
    models: ClassVar[str] = "language models"
    metric: ClassVar[Metric] = Metric("perplexity", "perplexity", higher_is_better=False)
    command: ClassVar[tuple[str, ...]] = ("generate", "RUN", "some text")
    examples: ClassVar[tuple[str, ...]] = (
        "The old dog",
        "The brothers want to",
        "The animal did not cross the street because",
        "She gives the",
    )

    def encode(
        self, records: Sequence[Document], data: DataConfig, dropped: Counter[str]
    ) -> Iterator[tuple[Document, Example]]:
        """Split texts into examples that fit into a row."""
        return self.split(records, data.max_length - 1, dropped)  # one is for <s> or </s>

    def shape(self, columns: Mapping[str, Ragged], chance: np.random.Generator) -> Shaped:
        """Add <s> before the input and </s> after the labels."""
        specials, text = self.tokenizer.specials, columns["text"]
        return Shaped({"text": text.begun_with(specials.bos)}, text.ended_with(specials.eos))

    def build(self, config: AnyModelConfig) -> CausalLM:
        """Build a decoder without a source."""
        return build_model(config, self.tokenizer.size, promise=CausalLM)

    def hidden(self, model: CausalLM, inputs: Mapping[str, Grid]) -> Float[Tensor, "R T D"]:
        """Return the hidden states of all positions."""
        return model.decode(inputs["text"])

    def evaluate(
        self,
        model: CausalLM,
        records: Sequence[Document],
        options: DecodingConfig,
        device: torch.device,
        *,
        done: Done = lambda n: None,
    ) -> LanguageModelScores:
        """Measure perplexity and bits per byte."""
        total, count = 0.0, 0
        with torch.inference_mode():
            for batch in self.batches(records, device, done):
                loss = self.loss(model, batch, 0.0)
                total, count = total + float(loss.total), count + batch.n_labels
        mean = total / max(1, count)
        n_bytes = sum(len(record.text.encode()) + 1 for record in records)  # with the line end
        return LanguageModelScores(
            perplexity=round(math.exp(min(mean, 700.0)), 4),
            bits_per_byte=round(total / math.log(2) / n_bytes, 4),
            tokens=count,
            documents=len(records),
        )

    @classmethod
    def describe(cls, scores: Mapping[str, Any]) -> dict[str, str]:
        """Return perplexity and bits per byte as text."""
        return {
            "perplexity": f"{scores['perplexity']:.2f}",
            "bits/byte": f"{scores['bits_per_byte']:.3f}",
            "tokens": f"{scores['tokens']:,}",
            "documents": f"{scores['documents']:,}",
        }

    def generate(
        self,
        model: CausalLM,
        prompts: Sequence[str],
        options: DecodingConfig,
        device: torch.device,
        *,
        n_tokens: int,
    ) -> list[str]:
        """Continue texts by up to `n_tokens` tokens; prompts are not part of the result."""
        encoded = self.tokenizer.encode_batch(list(prompts))
        found = []
        for number, prompt in enumerate(encoded):
            with torch.inference_mode():
                state = model.start(1)
            request = Request(
                step=model.step,
                state=state,
                max_lengths=[len(prompt) + n_tokens],
                numbers=[number],
                specials=self.tokenizer.specials,
                device=device,
                prefixes=[prompt],
            )
            best = search(request, options, 1)[0][0]
            whole = self.tokenizer.decode(best.ids)
            found.append(whole[len(self.tokenizer.decode(prompt)) :])
        return found

    def inspect(
        self,
        model: CausalLM,
        text: str,
        options: DecodingConfig,
        device: torch.device,
        *,
        target: str | None = None,
    ) -> Inspection:
        """Record a text; its summary has its perplexity and the most probable next tokens."""
        refuse_target(self.name, target)
        tokenized = self.read(text, device)
        with torch.inference_mode():
            logits, decoder = model.record(tokenized.inputs["text"])
        tokens = tuple(tokenized.target_tokens)
        recording = Recording(nothing_recorded(), decoder, logits, target_tokens=tokens)
        check_finite(recording)
        summary = self._summary(recording, tokenized)
        return Inspection("", text, tokenized, recording, self.tokenizer.tokens, summary)

    def read(self, text: str, device: torch.device) -> TokenizedText:
        """Turn a text into the input of a model: <s> and its tokens, to predict them and </s>."""
        specials, ids = self.tokenizer.specials, self.tokenizer.encode(text)
        longest = min(LONGEST, self.max_length - 1)
        check_length("text", len(ids), longest, "take a part of it")
        labels = [*ids, specials.eos]
        return TokenizedText(
            inputs={"text": pad_grid([[specials.bos, *ids]], specials.pad).to(device)},
            labels=torch.tensor(labels, device=device),
            source_tokens=[],
            target_tokens=self.tokenizer.tokens(labels),
        )

    def _summary(self, recording: Recording, tokenized: TokenizedText) -> str:
        log_probs = recording.logits[0].float().log_softmax(-1)
        mean = -float(log_probs.gather(-1, tokenized.labels[:, None]).mean())
        perplexity, n_tokens = math.exp(min(mean, 700.0)), len(tokenized.labels)
        best = log_probs[-1].exp().topk(min(N_NEXT, log_probs.shape[1]))
        _, *tokens = shown_tokens(["<s>", *self.tokenizer.tokens(best.indices.tolist())])
        found = zip(tokens, best.values.tolist(), strict=True)
        listed = ", ".join(f"{token} {probability:.4f}" for token, probability in found)
        return f"perplexity: {perplexity:.4f} ({n_tokens} tokens with </s>)\nnext token: {listed}"
