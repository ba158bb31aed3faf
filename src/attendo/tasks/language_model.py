"""Language modelling: predict the next token of a text, and continue a text."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attendo.config import AnyModelConfig, DataConfig, DecodingConfig
from attendo.data.batches import Batch, Shaped, once, stream_rows
from attendo.data.corpus import Corpus, MemorySide, Ragged, ragged
from attendo.data.packing import pad_grid
from attendo.data.readers import Document
from attendo.decoding import Request, search_all
from attendo.errors import DataError
from attendo.models import CausalLM, Model, Recording, build_model
from attendo.models.maps import shown_tokens
from attendo.nn.grid import Grid
from attendo.nn.stack import nothing_recorded
from attendo.tasks.base import Done, Example, Metric
from attendo.tasks.documents import NO_TOKENS, TOKENS, DocumentTask, split
from attendo.tasks.inspection import (
    LONGEST,
    Inspection,
    TokenizedText,
    check_finite,
    check_length,
    refuse_target,
)
from attendo.text import Continuation, Stop, Tokenizer

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
    metric: ClassVar[Metric] = Metric(
        "perplexity", "perplexity", higher_is_better=False, is_loss=True
    )
    promise: ClassVar[type[Model]] = CausalLM
    command: ClassVar[tuple[str, ...]] = ("generate", "RUN", "some text")
    examples: ClassVar[tuple[str, ...]] = (
        "The old dog",
        "The brothers want to",
        "The animal did not cross the street because",
        "She gives the",
    )

    def __init__(self, tokenizer: Tokenizer, data: DataConfig) -> None:
        super().__init__(tokenizer, data)
        self.is_stream = data.layout == "stream"
        specials = tokenizer.specials
        # In a stream one token separates two texts, so that it is also what a text begins with.
        self.specials = specials._replace(bos=specials.eos) if self.is_stream else specials

    def encode(
        self, records: Sequence[Document], data: DataConfig, dropped: Counter[str]
    ) -> Iterator[tuple[Document, Example]]:
        """Split texts into examples that fit into a row; a stream takes them whole, with </s>."""
        room = data.max_length - 1  # one position is for <s> or </s>
        for record, ids in zip(records, self.encode_texts(records), strict=True):
            if not ids:
                dropped[NO_TOKENS] += 1
            elif self.is_stream:
                yield record, (ids if record.goes_on else [*ids, self.specials.eos],)
            else:
                for part in split(ids, room):
                    yield record, (part,)

    def shape(self, columns: Mapping[str, Ragged], chance: np.random.Generator) -> Shaped:
        """Add <s> before the input and </s> after the labels."""
        specials, text = self.tokenizer.specials, columns["text"]
        return Shaped({"text": text.begun_with(specials.bos)}, text.ended_with(specials.eos))

    def build(self, config: AnyModelConfig) -> CausalLM:
        """Build a decoder without a source."""
        return self.outline(config, self.sizes)

    @classmethod
    def outline(cls, config: AnyModelConfig, sizes: Mapping[str, int]) -> CausalLM:
        """Build the same for a vocabulary of this size."""
        return build_model(config, sizes["text"], promise=CausalLM)

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
        if not records:
            raise DataError("no text to score: give at least one line")
        ids = [example[0] for _, example in self.encode(records, self.data, Counter())]
        total, count, finished = 0.0, 0, 0.0
        a_label = len(records) / max(1, sum(map(len, ids)))
        with torch.inference_mode():
            for batch in self._scored(ids, options):
                loss = self.loss(model, batch.to(device), 0.0)
                total, count = total + float(loss.total), count + batch.n_labels
                before, finished = finished, min(len(records), finished + a_label * batch.n_labels)
                done(round(finished) - round(before))
        if not count:
            raise DataError("no text to score: it has no tokens")
        mean = total / count
        # Each text with its line end, which a part of a longer text has already.
        n_bytes = sum(len(one.text.encode()) + (not one.goes_on) for one in records)
        return LanguageModelScores(
            perplexity=round(math.exp(min(mean, 700.0)), 4),
            bits_per_byte=round(total / math.log(2) / n_bytes, 4),
            tokens=count,
            documents=sum(not one.goes_on for one in records),
        )

    def _scored(self, ids: list[list[int]], options: DecodingConfig) -> Iterator[Batch]:
        """Yield batches in which every token of some texts is predicted once."""
        layout = self.layout(self.data, max(TOKENS, self.max_length))
        if not self.is_stream:
            return once(Corpus({"text": MemorySide(ragged(ids))}, len(ids)), layout)
        whole = MemorySide(ragged([[self.specials.bos], *ids]))
        stride = min(options.stride or self.max_length // 2, self.max_length)
        return stream_rows(whole, layout, stride)

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
        prompt: str,
        options: DecodingConfig,
        device: torch.device,
        *,
        n_tokens: int,
        stops: Sequence[str | Stop] = (),
        emit: Callable[[str], None] = lambda text: None,
    ) -> str:
        """Continue a text by up to `n_tokens` tokens; the prompt is not part of the result.

        Where the text grows longer than the model was trained for, it continues from the last half
        of what it could read.

        Args:
            model: The model, in evaluation mode.
            prompt: The beginning of the text.
            options: How to search.
            device: Device of the model.
            n_tokens: Most tokens to add.
            stops: What ends the result; it is cut before these texts.
            emit: Called with every part of the result as soon as it is known.
        """
        written = Continuation(self.tokenizer, self.tokenizer.encode(prompt), stops, emit)
        while (n_left := n_tokens - written.n_new) > 0:
            context = written.ids
            if len(context) >= self.max_length - 1:
                context = context[-(self.max_length // 2) :]
            n_before = written.n_new
            with torch.inference_mode():
                request = Request(
                    step=model.step,
                    state=model.start(1),
                    max_lengths=[min(self.max_length - 1, len(context) + n_left)],
                    numbers=[n_before],
                    specials=self.specials,
                    device=device,
                    prefixes=[context],
                    on_token=lambda sentence, token: written.add(token),
                )
                ((best,),) = next(search_all([request], options, 1, model.pools)).values()
            for token in best.ids[len(context) + written.n_new - n_before :]:
                written.add(token)  # those of a beam
            if best.finished or written.is_stopped:
                break
        return written.finish()

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

    def check_inspectable(self, source: str) -> None:
        """Refuse texts that are too long to be inspected."""
        longest = min(LONGEST, self.max_length - 1)
        check_length("text", len(self.tokenizer.encode(source)), longest, "take a part of it")

    def read(self, text: str, device: torch.device) -> TokenizedText:
        """Turn a text into the input of a model: <s> and its tokens, to predict them and </s>."""
        self.check_inspectable(text)
        specials, ids = self.specials, self.tokenizer.encode(text)
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
