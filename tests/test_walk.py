"""The walk-through: the numbers are the model's, and each change shows what it should."""

import json
from importlib.resources import files

import numpy as np
import pytest
import torch

import attendo
from attendo.data.packing import pad_grid
from attendo.engines import load_engine
from attendo.errors import DataError
from attendo.look.halves import Bert, Gpt, walk_bert, walk_gpt
from attendo.look.unmasked import compare, train_both
from attendo.look.walk import FUNCTION_WORDS, Walker, code, compare_order, walk
from attendo.reference import paper
from small_runs import small_run

SOURCE, TARGET = "The dog sees the cat.", "Der Hund sieht die Katze."


@pytest.fixture(scope="module")
def walker(tmp_path_factory) -> Walker:
    folder = tmp_path_factory.mktemp("walk") / "run"
    settings = {"model.encoder_layers": 2, "model.decoder_layers": 2, "model.norm_order": "post"}
    small_run(folder, settings)
    return Walker.of(attendo.load(folder, "cpu"))


def test_the_numbers_at_the_stations_are_those_of_the_model(walker):
    seen = walk(walker, SOURCE, TARGET)
    recording, pair = walker.translator.record(SOURCE, TARGET)
    encoder, decoder = seen["encoder"], seen["decoder"]
    first = recording.encoder.attention[0]
    pairs = [
        (encoder["entered"], recording.encoder.hidden_states[0]),
        (encoder["queries"], first.queries),
        (encoder["keys"], first.keys),
        (encoder["values"], first.values),
        (encoder["scores"], first.scores),
        (encoder["weights"], first.weights),
        (encoder["heads"], first.heads),
        (encoder["left"], recording.encoder.hidden_states[1]),
        (encoder["stack"][2], recording.encoder.hidden_states[2]),
        (decoder["weights"], recording.decoder.attention[0].weights),
        (decoder["scores"], recording.decoder.attention[0].scores),
        (decoder["cross_weights"], recording.decoder.cross[0].weights),
        (decoder["stack"][2], recording.decoder.hidden_states[2]),
    ]
    for shown, recorded in pairs:
        np.testing.assert_allclose(shown, recorded[0].numpy(), atol=1e-4)
    probabilities = recording.logits[0].softmax(-1)
    said = probabilities[range(len(pair.labels)), pair.labels]
    shown = [step["probability"] for step in seen["steps"]]
    np.testing.assert_allclose(shown, said.numpy(), atol=1e-4)


def test_the_stations_lead_to_one_another(walker):
    seen = {
        name: np.array(value) for name, value in walk(walker, SOURCE, TARGET)["encoder"].items()
    }
    close = {"atol": 1e-3}
    np.testing.assert_allclose(seen["embedded"] + seen["positions"], seen["entered"], **close)
    np.testing.assert_allclose(
        seen["queries"] @ seen["keys"].swapaxes(1, 2), seen["products"], **close
    )
    np.testing.assert_allclose(seen["products"] / np.sqrt(8), seen["scores"], **close)
    np.testing.assert_allclose(seen["weights"] @ seen["values"], seen["heads"], **close)
    np.testing.assert_allclose(np.concatenate(seen["heads"], axis=-1), seen["joined"], **close)
    np.testing.assert_allclose(seen["entered"] + seen["projected"], seen["sum"], **close)
    for name in ("weights", "weights_without_scaling"):
        np.testing.assert_allclose(seen[name].sum(-1), 1, **close)
    assert (seen["hidden"] >= 0).all()


def test_the_numbers_are_what_the_shown_code_returns(walker):
    seen = walk(walker, SOURCE, TARGET)
    encoder = {name: np.array(value) for name, value in seen["encoder"].items()}
    first, ids = walker.weights.encoder[0], np.array(seen["source_ids"])
    memory = paper.encode(ids, walker.weights, walker.n_heads)
    exact = {"rtol": 0, "atol": 6e-6}  # the numbers are rounded to five digits
    np.testing.assert_allclose(encoder["memory"], memory, **exact)
    x = paper.embed(ids, walker.weights.source_embedding)
    x = x + paper.positional_encoding(*x.shape)
    attended, weights = paper.multi_head_attention(x, x, x, first.self_attention, walker.n_heads)
    np.testing.assert_allclose(encoder["weights"], weights, **exact)
    np.testing.assert_allclose(encoder["projected"], attended, **exact)
    np.testing.assert_allclose(paper.masked_softmax(encoder["scores"]), weights, atol=1e-4)
    w_o, b_o = first.self_attention.w_o, first.self_attention.b_o
    np.testing.assert_allclose(encoder["joined"] @ w_o + b_o, attended, atol=1e-3)
    feed = first.feed_forward
    np.testing.assert_allclose(encoder["hidden"] @ feed.w_2 + feed.b_2, encoder["fed"], atol=1e-3)
    np.testing.assert_allclose(encoder["left"], encoder["stack"][1], **exact)
    decoder = walk(walker, SOURCE, TARGET)["decoder"]
    hidden = paper.decode(np.array(seen["target_ids"]), memory, walker.weights, walker.n_heads)
    np.testing.assert_allclose(decoder["stack"][-1], hidden, **exact)


@pytest.fixture(scope="module")
def shipped() -> Walker:
    return Walker.of(attendo.load(str(files("attendo") / "shipped" / "walk"), "cpu"))


@pytest.mark.parametrize(
    "text",
    [
        "The brothers want to sell the car.",
        "The dog sees the cat.",
        "The old farmer sells the car.",
        "The animal did not cross the street because it was too tired.",
    ],
)
def test_the_first_head_and_query_attend_to_a_content_word(shipped, text):
    seen = walk(shipped, text)
    source, start = seen["source_tokens"], seen["start"]
    content = [
        at
        for at, token in enumerate(source)
        if token.strip("▁").isalpha() and token.strip("▁").lower() not in FUNCTION_WORDS
    ]
    weights = np.array(seen["encoder"]["weights"])
    row = weights[start["encoder"]["head"], start["encoder"]["row"]]
    query = start["encoder"]["row"]
    assert query in content
    whole = [at for at in content if not source[at + 1].isalpha() and source[at].startswith("▁")]
    found = max(
        weights[head, one, other]
        for head in range(len(weights))
        for one in whole
        for other in whole
        if source[one] != source[other]
    )
    assert row[[at for at in whole if source[at] != source[query]]].max() == found
    removed = np.array(seen["decoder"]["weights_without_mask"])
    removed = removed[start["decoder"]["head"], start["decoder"]["row"]]
    assert removed[start["decoder"]["row"] + 1 :].sum() > 0.2, "the mask removes something"
    cross = np.array(seen["decoder"]["cross_weights"])[start["cross"]["head"]]
    step = start["cross"]["row"]
    assert seen["target_inputs"][step].strip("▁").isalpha()
    assert seen["target_tokens"][step].strip("▁").isalpha()
    assert cross[step][content].max() > 0.5, "the source word, not the full stop or </s>"
    probabilities = [one["probability"] for one in seen["steps"]]
    assert probabilities[start["output"]["row"]] == min(probabilities)


def test_the_first_sentence_has_whole_words_and_a_head_worth_showing(shipped):
    seen = walk(shipped, "The brothers want to sell the car.")
    start = seen["start"]["encoder"]
    row = seen["encoder"]["weights"][start["head"]][start["row"]]
    assert seen["source_tokens"][start["row"]] == "▁want"
    assert seen["source_tokens"][int(np.argmax(row))] == "▁sell"
    assert all(token.startswith("▁") for token in seen["source_tokens"][:-2])


def test_a_text_without_words_can_be_shown_too(shipped):
    start = walk(shipped, "1 2 3 .", "")["start"]
    assert start == {
        name: {"head": 0, "row": 0} for name in ("encoder", "decoder", "cross", "output")
    }


def test_a_mask_is_a_triangle_and_without_it_the_future_is_seen(walker):
    decoder = walk(walker, SOURCE, TARGET)["decoder"]
    mask = np.array(decoder["mask"])
    assert (mask == np.tri(len(mask), dtype=bool)).all()
    assert (np.array(decoder["weights"])[:, ~mask] == 0).all()
    assert (np.array(decoder["weights_without_mask"])[:, ~mask] > 0).all()


def test_without_a_target_the_models_own_translation_is_walked_with(walker):
    seen = walk(walker, SOURCE)
    said = walker.translator.translate([SOURCE], strategy="greedy")[0]
    assert seen["target"].split() == said.split()
    json.dumps(seen)


def test_without_positions_the_order_of_words_is_lost(walker):
    sentences = "The dog sees the man.", "The man sees the dog."
    without = compare_order(walker, *sentences, positions=False)
    assert without["largest"] < 1e-9
    with_positions = compare_order(walker, *sentences, positions=True)
    assert with_positions["largest"] > 0.1
    assert sorted(pair["there"] for pair in without["pairs"]) == list(range(len(without["pairs"])))


def test_only_the_same_words_can_be_compared(walker):
    with pytest.raises(DataError, match="enter the same words in another order"):
        compare_order(walker, "The dog sees.", "The cat sees.", positions=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the sentence is empty: enter at least one word"),
        ("dog " * 99, "tokens, at most 24 can be shown: enter a shorter one"),
    ],
)
def test_a_text_that_cannot_be_shown_is_refused(walker, text, message):
    with pytest.raises(DataError, match=message):
        walk(walker, text)


def test_the_code_that_is_shown_is_that_of_the_reference():
    shown = code()
    assert (
        "scores = query @ key.swapaxes(-1, -2) / math.sqrt(d_k)"
        in (shown["scaled_dot_product_attention"])
    )
    assert all(text.startswith(f"def {name}(") for name, text in shown.items())
    assert not any('"""' in text for text in shown.values())
    for text in shown.values():
        compile(text, "shown", "exec")


def test_both_models_begin_alike_and_only_one_has_the_mask(walker):
    both = train_both(walker.translator.bundle.task, n_steps=0)
    masked, unmasked = both.with_mask[1], both.without_mask[1]
    initial = unmasked.state_dict()
    assert all(torch.equal(values, initial[name]) for name, values in masked.state_dict().items())
    pair = walker.translator.bundle.task.tokenize_pair(SOURCE, TARGET, torch.device("cpu"))
    rows = {
        name: model.record(pair.source, pair.target).decoder.attention[0].weights[0, 0, 0]
        for name, model in (("masked", masked), ("unmasked", unmasked))
    }
    assert (rows["masked"][1:] == 0).all()
    assert (rows["unmasked"] > 0).all()


@pytest.mark.usefixtures("unchecked")
def test_without_the_mask_the_loss_falls_but_generation_fails(walker):
    found = compare(train_both(walker.translator.bundle.task, n_steps=90), SOURCE)
    assert found["without_mask"][-1] < 0.7 * found["with_mask"][-1]
    assert found["translations"]["with_mask"] != found["translations"]["without_mask"]


@pytest.fixture(scope="module")
def gpt() -> Gpt:
    return Gpt.of(load_engine(files("attendo") / "shipped" / "walk-gpt", "cpu"))


@pytest.fixture(scope="module")
def bert() -> Bert:
    return Bert.of(load_engine(files("attendo") / "shipped" / "walk-bert", "cpu"))


def test_the_numbers_of_the_gpt_are_the_models(gpt):
    seen = walk_gpt(gpt, SOURCE)
    found = gpt.engine.inspect(SOURCE)
    labels = found.tokenized.labels
    expected = found.recording.logits[0].softmax(-1)[range(len(labels)), labels]
    shown = [step["probability"] for step in seen["steps"]]
    np.testing.assert_allclose(shown, expected.numpy(), atol=1e-5)
    for shown, record in zip(seen["weights"], found.recording.decoder.attention, strict=True):
        np.testing.assert_allclose(shown, record.weights[0].numpy(), atol=1e-4)
    assert [step["token"] for step in seen["steps"]] == found.tokenized.target_tokens
    assert (np.array(seen["mask"]) == np.tri(len(seen["tokens"]))).all()


def test_what_follows_changes_nothing_in_the_gpt(gpt):
    one, other = walk_gpt(gpt, "The dog sees the cat."), walk_gpt(gpt, "The dog sees no old car.")
    assert one["steps"][:3] == other["steps"][:3]
    assert one["steps"][3]["candidates"] == other["steps"][3]["candidates"]
    assert one["steps"][4]["candidates"] != other["steps"][4]["candidates"]


def test_the_numbers_of_the_bert_are_the_models(bert):
    seen = walk_bert(bert, SOURCE, hidden=1)
    tokenizer, model = bert.engine.bundle.task.tokenizer, bert.engine.bundle.model
    ids = [tokenizer.specials.bos, *tokenizer.encode(SOURCE), tokenizer.specials.eos]
    hidden = [tokenizer.mask if position == 2 else one for position, one in enumerate(ids)]
    with torch.inference_mode():
        memory, recorded = model.record(pad_grid([hidden], tokenizer.specials.pad))
        probabilities = model.logits(memory.hidden)[0, 2].softmax(-1)
    step = seen["steps"][1]
    assert step["token"] == "▁dog"
    assert step["probability"] == pytest.approx(float(probabilities[ids[2]]), abs=1e-5)
    best = probabilities.topk(len(step["candidates"]))
    assert [one["token"] for one in step["candidates"]] == tokenizer.tokens(best.indices.tolist())
    for shown, record in zip(seen["weights"], recorded.attention, strict=True):
        np.testing.assert_allclose(shown, record.weights[0].numpy(), atol=1e-4)
    assert seen["tokens"] == tokenizer.tokens(hidden)
    assert np.all(seen["mask"])


def test_the_bert_predicts_from_both_sides(bert):
    steps = walk_bert(bert, "The animal did not cross the street because it was too tired.")[
        "steps"
    ]
    other = walk_bert(bert, "The animal did not cross the street because it was too wide.")["steps"]
    assert steps[1]["candidates"] != other[1]["candidates"], "what follows matters"
    assert steps[-2]["candidates"] == other[-2]["candidates"], "the hidden word itself does not"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (" ", "the sentence is empty"),
        ("dog " * 40, "at most 24 can be shown"),
        ("dog \ud800", "is not Unicode text"),
    ],
)
def test_a_sentence_that_cannot_be_shown_is_refused(bert, gpt, text, message):
    with pytest.raises(DataError, match=message):
        walk_bert(bert, text)
    with pytest.raises(DataError, match=message):
        walk_gpt(gpt, text)


def test_a_choice_beyond_the_sentence_hides_its_last_token(bert):
    assert walk_bert(bert, SOURCE, hidden=23) == walk_bert(bert, SOURCE, hidden=5)


def test_the_first_choice_attends_to_a_content_word(bert, gpt):
    for seen in (walk_bert(bert, SOURCE), walk_gpt(gpt, SOURCE)):
        start = seen["start"]
        weights = np.array(seen["weights"])[start["layer"], start["head"], start["row"]]
        assert seen["tokens"][weights.argmax()] in ("▁dog", "▁sees", "▁cat")
    hidden = walk_bert(bert, SOURCE)["hidden"]
    assert walk_bert(bert, SOURCE)["start"]["row"] == hidden + 1
