"""Recipes: complete and consistent when read, the same after writing, clear when wrong."""

import math
import tomllib
from functools import reduce
from operator import getitem
from typing import Any, Literal, get_args, get_origin

import pytest
from annotated_types import Ge, Gt, Le, Lt, MultipleOf
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

import attendo
from attendo.config import (
    FAMILIES,
    DecodingConfig,
    Paths,
    Recipe,
    TransformerConfig,
    change_decoding,
    choose,
    load_recipe,
    make_recipe,
    parse_overrides,
    presets,
    write_recipe,
)
from attendo.errors import ConfigError
from attendo.training.kinds import FAMILY_KINDS
from attendo.training.kinds import KINDS as OTHER_KINDS
from small_runs import small_run

KINDS = OTHER_KINDS | FAMILY_KINDS["transformer"]


def leaves(section: type[BaseModel] = Recipe, prefix: str = "") -> dict[str, FieldInfo]:
    found: dict[str, FieldInfo] = {}
    for name, field in section.model_fields.items():
        inner = TransformerConfig if name == "model" else field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            found |= leaves(inner, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = field
    return found


# A new key is a promise to keep: this list makes it a decision.
KEYS = {
    "data": "source target pairs files valid_source valid_target valid_pairs valid_files "
    "test_source test_target test_pairs test_files builtin hold_out max_length max_ratio layout "
    "remember",
    "tokenizer": "kind vocabulary lossless shared path target_path dropout sample",
    "masking": "share whole_words",
    "noise": "caps title typos punctuation spaces",
    "parsing": "tags reads_words",
    "image": "size channels patch stem",
    "audio": "rate window hop n_mels frames",
    "augmentation": "shift rotation scale shear elastic erasing mixup speed noise silence warp "
    "equalizer time_mask band_mask join gap softer",
    "model": "kind d_model d_ff n_heads encoder_layers decoder_layers p_drop p_drop_attention "
    "p_drop_inner attention attention_pattern reversible logit_cap "
    "positions max_positions feed_forward norm norm_epsilon norm_order tied pooling "
    "scale_embedding embedding_norm token_types separator output_bias initialisation "
    "query_key_norm p_drop_embedding vocabulary_multiple",
    "model.window": "reach n_global",
    "model.chunks": "size overlap",
    "model.lsh": "reach n_buckets n_rounds",
    "model.favor": "n_features",
    "training": "steps seconds seed batch_tokens accumulate activation_checkpointing optimizer "
    "learning_rate beta_1 beta_2 epsilon weight_decay schedule warmup_steps label_smoothing r_drop "
    "clip_norm precision residual compile deterministic log_every validate_every save_every "
    "patience select validation_bleu average ema tensorboard",
    "finetuning": "encoder_only frozen frozen_layers layer_decay lora_rank lora_alpha "
    "lora_projections",
    "decoding": "strategy beam alpha max_extra temperature top_k top_p no_repeat_ngram max_loops "
    "batch_size seed stride sentences",
}


def test_the_keys_of_a_recipe_are_these_and_no_others():
    keys = {f"{section}.{key}" for section, names in KEYS.items() for key in names.split()}
    assert leaves().keys() == keys | {"description", "task", "name", "auto", "start"}


@pytest.mark.parametrize("key", leaves())
def test_every_key_has_a_default_and_a_sentence_about_it(key):
    field = leaves()[key]
    assert not field.is_required()
    assert field.description
    assert field.description.endswith(".")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_key_of_a_family_has_a_default_and_a_sentence(family):
    assert FAMILIES[family]().kind == family
    for field in FAMILIES[family].model_fields.values():
        assert field.description
    for key, table in FAMILY_KINDS.get(family, {}).items():
        field = FAMILIES[family].model_fields[key.removeprefix("model.")]
        assert field.default in table
        assert all(kind in (field.description or "") for kind in table)


@pytest.mark.parametrize("key", KINDS)
def test_the_sentence_about_a_kind_names_all_kinds(key):
    for kind in KINDS[key]:
        assert kind in leaves()[key].description


@pytest.mark.parametrize("key", KINDS)
def test_the_default_kind_exists(key):
    assert leaves()[key].default in KINDS[key]


@pytest.mark.parametrize("name", presets())
def test_every_preset_loads_and_says_what_it_is_for(name):
    recipe = load_recipe(name)
    assert recipe.description == presets()[name] != ""
    assert make_recipe(tomllib.loads(write_recipe(recipe))) == recipe


def test_what_auto_leaves_open_is_still_open_after_writing():
    recipe = load_recipe("auto", {"model.d_model": 96, "data.pairs": "a.tsv"})
    again = make_recipe(tomllib.loads(write_recipe(recipe)))
    assert again == recipe
    assert again.model_dump(exclude_unset=True) == recipe.model_dump(exclude_unset=True)
    assert again.model.model_fields_set == {"d_model"}


def test_a_written_recipe_of_another_kind_is_complete():
    values = tomllib.loads(write_recipe(load_recipe("demo")))
    for section, names in KEYS.items():
        found = reduce(getitem, section.split("."), values)
        keys = {key for key, value in found.items() if not isinstance(value, dict)}
        assert keys == set(names.split()) - {"path", "target_path"}


def test_options_of_attention_in_older_recipes_get_their_sections():
    older = {"window": 7, "n_global": 2, "overlap": 3, "n_buckets": 8, "n_rounds": 5}
    model = make_recipe({"model": {"attention": "lsh", **older}}).model
    assert (model.window.reach, model.window.n_global) == (7, 2)
    assert (model.chunks.size, model.chunks.overlap) == (7, 3)
    assert (model.lsh.reach, model.lsh.n_buckets, model.lsh.n_rounds) == (7, 8, 5)
    assert load_recipe("demo-longformer", {"model.window": 9}).model.window.reach == 9


LIMITS = {
    Ge: lambda limit: {"min_value": limit.ge},
    Gt: lambda limit: {"min_value": limit.gt, "exclude_min": True},
    Le: lambda limit: {"max_value": limit.le},
    Lt: lambda limit: {"max_value": limit.lt, "exclude_max": True},
    MultipleOf: lambda limit: {},
}

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def values_of(field: FieldInfo) -> st.SearchStrategy[Any]:
    """Draw any value that a key by itself allows."""
    kind, limits = field.annotation, {}
    if get_origin(kind) is tuple and get_origin(choices := get_args(kind)[0]) is Literal:
        return st.lists(st.sampled_from(get_args(choices)), min_size=1, max_size=3)
    for limit in field.metadata:
        limits |= LIMITS[type(limit)](limit)
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if kind == Paths:
        return st.lists(words, max_size=3)
    strategies: dict[Any, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        int: st.integers(**{"max_value": 2**31, **limits}) if kind is int else st.nothing(),
        float: st.floats(allow_nan=False, allow_infinity=False, **limits)
        if kind is float
        else st.nothing(),
        str: words,
        str | None: words,
    }
    return strategies[kind]


changes = st.lists(st.sampled_from(sorted(leaves())), min_size=1, max_size=4, unique=True).flatmap(
    lambda keys: st.fixed_dictionaries({key: values_of(leaves()[key]) for key in keys})
)


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(sorted(presets())), changes=changes)
def test_reading_what_was_written_gives_the_same_recipe(name, changes):
    try:
        recipe = load_recipe(name, changes)
    except ConfigError:
        reject()  # the values do not go together
    again = make_recipe(tomllib.loads(write_recipe(recipe)))
    assert again == recipe
    for key, value in changes.items():
        *sections, last = key.split(".")
        part: Any = again
        for section in sections:
            part = getattr(part, section)
        assert getattr(part, last) == (tuple(value) if isinstance(value, list) else value)


def test_a_recipe_file_is_read_like_a_preset(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(write_recipe(load_recipe("small", {"training.steps": 7})), encoding="utf-8")
    assert load_recipe(str(path)) == load_recipe("small", {"training.steps": 7})


def test_a_recipe_like_another_says_only_where_it_differs(tmp_path):
    path, next_path = tmp_path / "mine.toml", tmp_path / "next.toml"
    path.write_text('like = "small"\n[training]\nsteps = 7\n', encoding="utf-8")
    next_path.write_text(f'like = "{path}"\n[model]\nn_heads = 2\n', encoding="utf-8")
    expected = {"training.steps": 7, "model.n_heads": 2}
    assert load_recipe(str(next_path)) == load_recipe("small", expected)


def test_a_model_of_another_family_takes_nothing_from_the_recipe_it_is_like(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('like = "demo"\n[model]\nkind = "recurrent"\n', encoding="utf-8")
    assert load_recipe(str(path)).model == FAMILIES["recurrent"]()
    changes = {"model.d_model": 8, "model.kind": "recurrent"}
    assert load_recipe("demo", changes).model == FAMILIES["recurrent"](d_model=8)


def test_a_model_of_the_same_family_takes_all_from_the_recipe_it_is_like(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('like = "demo-lstm"\n[model]\nd_model = 8\n', encoding="utf-8")
    assert load_recipe(str(path)) == load_recipe("demo-lstm", {"model.d_model": 8})


def test_recipes_that_are_like_each_other_are_refused(tmp_path):
    here, there = tmp_path / "here.toml", tmp_path / "there.toml"
    here.write_text(f'like = "{there}"', encoding="utf-8")
    there.write_text(f'like = "{here}"', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"in a circle: .*here\.toml -> .*there\.toml -> "):
        load_recipe(str(here))
    here.write_text("like = 3", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"like = 3: expected the name of a recipe"):
        load_recipe(str(here))


@pytest.mark.parametrize("files", ["a.en", ["a.en"], ("a.en",)])
def test_one_file_is_a_list_of_one(files):
    recipe = load_recipe("tiny", {"data.source": files, "data.target": files})
    assert recipe.data.source == recipe.data.target == ("a.en",)


def test_a_recipe_cannot_be_changed_behind_the_checks():
    recipe = load_recipe("tiny")
    with pytest.raises(ValidationError, match="frozen"):
        recipe.model.d_model = 3


@pytest.mark.parametrize(
    ("setting", "key", "value"),
    [
        ("model.d_model=256", "model.d_model", 256),
        ("training.learning_rate=1e-3", "training.learning_rate", 1e-3),
        ("tokenizer.shared=false", "tokenizer.shared", False),
        ("tokenizer.kind=bpe", "tokenizer.kind", "bpe"),
        ('tokenizer.kind="bpe"', "tokenizer.kind", "bpe"),
        ("data.source=a.en", "data.source", "a.en"),
        ("data.source=a=b.en", "data.source", "a=b.en"),
        ('data.source=["a.en", "b.en"]', "data.source", ["a.en", "b.en"]),
        (" model.d_ff = 64", "model.d_ff", 64),
        ("description=", "description", ""),
        ("description=two words", "description", "two words"),
    ],
)
def test_a_setting_is_read_as_toml_where_it_is_and_else_as_text(setting, key, value):
    assert parse_overrides([setting]) == {key: value}


def test_of_two_settings_of_one_key_the_last_holds():
    assert parse_overrides(["a.b=1", "a.b=2"]) == {"a.b": 2}


@pytest.mark.parametrize("setting", ["model.d_model", "", "=", "=3"])
def test_what_is_no_setting_is_refused(setting):
    with pytest.raises(ConfigError, match="expected key=value"):
        parse_overrides([setting])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model.n_heads": 3}, r"n_heads = 3 does not divide d_model = 128"),
        ({"model.d_model": 5, "model.n_heads": 5}, r"even d_model, not 5"),
        (
            {"model.d_model": 6, "model.n_heads": 2, "model.positions": "rotary"},
            r"even head width, not d_model / n_heads = 3",
        ),
        ({"model.attention": "lsh", "model.positions": "alibi"}, r"alibi.*choose another kind"),
        (
            {"model.attention_pattern": ["dot", "lsh"], "model.positions": "alibi"},
            r"alibi.*attention = \"lsh\"",
        ),
        (
            {"model.attention": "favor", "model.p_drop_attention": 0.1},
            r"no attention weights to drop",
        ),
        ({"model.lsh.n_buckets": 5}, r"model\.lsh\.n_buckets = 5: input should be a multiple of 2"),
        ({"model.lsh.n_bucket": 4}, r"'model\.lsh\.n_bucket'; did you mean 'n_buckets'"),
        ({"model.reversible": True, "model.norm_order": "post"}, r"reversible = true needs"),
        ({"data.source": ["a", "b"], "data.target": "c"}, r"source names 2 files and target 1"),
        ({"data.builtin": 9, "data.pairs": "a.tsv"}, r"either builtin or your own files"),
        ({"tokenizer.shared": False}, r"model\.tied = \"all\" needs tokenizer\.shared = true"),
        ({"tokenizer.target_path": "a.json"}, r"target_path needs shared = false"),
        ({"training.learning_rate": float("nan")}, r"training\.learning_rate = nan"),
        ({"decoding.alpha": float("inf")}, r"decoding\.alpha = inf: .*finite"),
        ({"decoding": 3}, r"decoding = 3: decoding is a section"),
        ({"model.n_head": 3}, r"unknown key 'model\.n_head'; did you mean 'n_heads'\?"),
        ({"zzz": 3}, r"unknown key 'zzz'; choose from: audio, augmentation, auto, data, "),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(change, message):
    with pytest.raises(ConfigError, match=message):
        load_recipe("tiny", change)


def test_decoding_options_are_checked_like_a_recipe():
    assert change_decoding(DecodingConfig(), {"beam": 2}).beam == 2
    with pytest.raises(ConfigError, match=r"'decoding\.beem'; did you mean 'beam'\?"):
        change_decoding(DecodingConfig(), {"beem": 2})
    with pytest.raises(ConfigError, match=r"decoding\.beam = 65"):
        change_decoding(DecodingConfig(), {"beam": 65})


def test_a_kind_is_found_by_name_or_the_nearest_is_named():
    assert choose({"dot": 1}, "dot", "model.attention") == 1
    with pytest.raises(ConfigError, match=r"model\.attention = 'dots' .*did you mean 'dot'\?"):
        choose({"dot": 1}, "dots", "model.attention")


# -- extreme numbers -----------------------------------------------------------------------------

EXTREMES = (
    *(-(2**70), -(10**18), -1, 0, 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, 10**30),
    *(math.inf, -math.inf, math.nan, 1e308, -1e308, 1e20, 5e-324, -0.0, 0.5),
)

MODELS = {
    f"model.{name}": (family, field)
    for family, config in FAMILIES.items()
    for name, field in config.model_fields.items()
}
NUMERIC = {
    key: ("transformer", field)
    for key, field in leaves().items()
    if field.annotation in (int, float)
} | {
    key: (family, field)
    for key, (family, field) in MODELS.items()
    if field.annotation in (int, float)
}


@pytest.mark.parametrize("key", NUMERIC)
def test_every_number_has_bounds_on_both_sides(key):
    bounds = [type(bound) for bound in NUMERIC[key][1].metadata]
    assert {Ge, Gt} & {*bounds}
    assert {Le, Lt} & {*bounds}


@pytest.mark.parametrize("key", NUMERIC)
def test_an_extreme_number_is_refused_by_name_or_within_the_bounds(key):
    family, field = NUMERIC[key]
    *sections, name = key.split(".")
    for value in EXTREMES:
        values = {"model": {"kind": family}} if sections[0] == "model" else {}
        part = reduce(lambda part, section: part.setdefault(section, {}), sections, values)
        part[name] = value
        recipe, message = _made(values)
        if recipe is None:
            assert name in message
            assert "\n" not in message
            continue
        kept = reduce(getattr, [*sections, name], recipe)
        assert all(bound.ge <= kept for bound in field.metadata if isinstance(bound, Ge))
        assert all(kept <= bound.le for bound in field.metadata if isinstance(bound, Le))
        assert reduce(getitem, [*sections, name], tomllib.loads(write_recipe(recipe))) == kept


def _made(values: dict[str, Any]) -> tuple[Recipe | None, str]:
    try:
        return make_recipe(values), ""
    except ConfigError as error:
        return None, str(error)


@pytest.mark.parametrize("command", ["train", "translate"])
def test_numbers_at_their_bounds_do_not_surprise_the_code(command, tmp_path_factory):
    """One training with the extreme seeds and rates, and one search with the extreme options."""
    folder = tmp_path_factory.getbasetemp() / "bounds"
    if command == "train" or not folder.exists():
        extreme = {"training.seed": 2**63 - 1, "training.epsilon": 1.0, "training.clip_norm": 1e9}
        extreme |= {"training.learning_rate": 1e-12, "training.warmup_steps": 10**9}
        extreme |= {"training.patience": 10**9, "training.average": 1000, "data.max_ratio": 1e6}
        small_run(folder, {**extreme, "training.steps": 2}, resume=folder.exists())
    translator = attendo.load(folder, "cpu")
    for field, bounds in {
        "alpha": (0, 10),
        "temperature": (0.001, 1000),
        "top_k": (0, 10**6),
        "top_p": (1e-9, 1),
        "no_repeat_ngram": (0, 1000),
        "max_loops": (0, 1000),
        "seed": (0, 2**63 - 1),
        "batch_size": (1, 100_000),
    }.items():
        for value in bounds:
            for strategy in ("beam", "greedy", "sample"):
                options = {"strategy": strategy, field: value}
                assert len(translator.translate(["The dog sleeps."], **options)) == 1
