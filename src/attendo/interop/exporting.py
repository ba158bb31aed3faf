"""A run folder becomes a folder for `transformers`, which is loaded back and compared."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import tokenizers
import torch
from tokenizers.processors import TemplateProcessing

from attendo.bundle import (
    TARGET_TOKENIZER,
    TOKENIZER,
    Bundle,
    find_device,
    load_bundle,
    parameters_of,
    write_tensors,
)
from attendo.config import TransformerConfig
from attendo.errors import BundleError, ConfigError
from attendo.files import write_folder, write_json, write_text
from attendo.interop.base import Architecture, Template, full_config
from attendo.interop.bert import BertForMaskedLM
from attendo.interop.folders import CONFIG, GENERATION, TENSORS, check_new
from attendo.interop.gpt2 import Gpt2
from attendo.interop.marian import Marian
from attendo.interop.names import to_theirs
from attendo.text import Tokenizer

EXPORTS: dict[str, Architecture] = {one.task: one for one in (Marian(), BertForMaskedLM(), Gpt2())}
"""What a run of a task becomes."""

TOLERANCE = 1e-4
"""Largest difference of logits, for each unit of the largest logit."""

SENTENCES = (
    ("The old dog sleeps.", "Der alte Hund schläft."),
    ("She gave him 25 euros, and he said: thank you!", "Sie gab ihm 25 Euro, und er sagte: danke!"),
    ("What is it?", "Was ist das?"),
    ("Tomorrow we will travel to Zürich by train.", "Morgen fahren wir mit dem Zug nach Zürich."),
)
"""What is compared, in two languages for models with a source and a target."""


class Comparison(NamedTuple):
    """How a model of ours and its export differ."""

    architecture: str
    n_sentences: int
    n_tokens: int
    difference: float
    """Largest difference of two logits."""
    largest: float
    """Largest logit."""

    def __str__(self) -> str:
        """Return one line for people."""
        return (
            f"compared with {self.architecture} of transformers on {self.n_sentences} sentences, "
            f"{self.n_tokens} tokens: the same ids; the largest difference of two logits is "
            f"{self.difference:.1e} (the largest logit is {self.largest:.1f})"
        )


def export_model(run: Path, out: Path) -> Comparison:
    """Write a run for `transformers`, load it there, and compare; nothing is left if they differ.

    Raises:
        AttendoError: `transformers` has no such model, or computes something else.
    """
    import transformers  # noqa: F401 -- if it is missing, say so before any work

    check_new(out)
    bundle = load_bundle(run, find_device("cpu"))
    architecture = EXPORTS.get(bundle.recipe.task)
    if architecture is None:
        raise ConfigError(
            f"runs of the task {bundle.recipe.task!r} cannot be exported to huggingface; "
            f"expected one of: {', '.join(EXPORTS)}"
        )
    if not isinstance(bundle.recipe.model, TransformerConfig):
        raise ConfigError(
            f"model.kind = {bundle.recipe.model.kind!r} cannot be exported; expected transformer"
        )
    compared: list[Comparison] = []

    def fill(folder: Path) -> None:
        write_export(bundle, architecture, folder)
        compared.append(compare(bundle, architecture, folder))

    write_folder(out, fill)
    return compared[0]


def write_export(bundle: Bundle, architecture: Architecture, folder: Path) -> None:
    """Write all files that `transformers` needs."""
    task = bundle.task
    model, parameters = architecture.equivalent(
        cast(TransformerConfig, bundle.recipe.model), parameters_of(bundle.model), task.max_length
    )
    config = full_config(architecture, bundle, model)
    write_json(folder / CONFIG, config)
    write_tensors(
        folder / TENSORS, to_theirs(architecture.names(model), parameters), {"format": "pt"}
    )
    if generation := architecture.generation(bundle):
        write_json(folder / GENERATION, generation)
    template = architecture.template(task)
    first, *others = dict.fromkeys(task.tokenizers.values())
    write_text(folder / TOKENIZER, _framed(first, template))
    for other in others:
        write_text(folder / TARGET_TOKENIZER, other.to_json())
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": task.max_length,
            "model_input_names": list(template.inputs),
            "clean_up_tokenization_spaces": False,
            **template.special,
        },
    )


def _framed(tokenizer: Tokenizer, template: Template) -> str:
    """Return a tokenizer.json that frames texts as `transformers` expects."""
    backend = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    names = {part.partition(":")[0] for part in template.single} - {"$A"}
    special = [(name, backend.token_to_id(name)) for name in sorted(names)]
    pair = template.pair or [*template.single[:-1], "$B", *template.single[-1:]]
    if special:
        backend.post_processor = TemplateProcessing(template.single, pair, special)
    else:
        values = {**json.loads(backend.to_str()), "post_processor": None}
        backend = tokenizers.Tokenizer.from_str(json.dumps(values))
    text: str = backend.to_str(pretty=False)
    return text


def compare(bundle: Bundle, architecture: Architecture, folder: Path) -> Comparison:
    """Load an export with `transformers`, and compare ids and logits.

    Raises:
        BundleError: They differ.
    """
    with _quiet():
        theirs, tokenizer = _load(architecture, folder)
    n_tokens, difference, largest = 0, 0.0, 0.0
    for source, target in SENTENCES:
        ids = architecture.ids(bundle.task, source, target)
        if (read := tokenizer(source)["input_ids"]) != ids[0]:
            raise BundleError(
                f"not exported: transformers encodes {source!r} as {read}, not as {ids[0]}"
            )
        ids = ids[0][: bundle.task.max_length], ids[1][: bundle.task.max_length]
        with torch.inference_mode():
            own = architecture.outputs(bundle.model, ids)
            other = architecture.their_outputs(theirs, ids)
        n_tokens += own.shape[1]
        difference = max(difference, float((own - other).abs().max()))
        largest = max(largest, float(own.abs().max()))
    if not difference <= TOLERANCE * max(1.0, largest):
        raise BundleError(
            f"not exported: the logits of transformers differ by up to {difference:.1e} "
            f"(the largest logit is {largest:.1f}); expected at most {TOLERANCE:.0e} of it"
        )
    return Comparison(architecture.name, len(SENTENCES), n_tokens, difference, largest)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep `transformers` from printing: what is wrong with an export is found by comparing."""
    from transformers import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        logging.enable_progress_bar()


def _load(architecture: Architecture, folder: Path) -> tuple[Any, Any]:
    import transformers

    model, info = getattr(transformers, architecture.name).from_pretrained(
        folder, local_files_only=True, use_safetensors=True, output_loading_info=True
    )
    wrong = [*info["unexpected_keys"], *info["mismatched_keys"], *info["missing_keys"]]
    if wrong:
        raise BundleError(f"not exported: transformers does not load {wrong[0]!r}")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return model.eval(), tokenizer
