"""The walk-through: the numbers are the model's, and each change shows what it should."""

import json

import numpy as np
import pytest

import attendo
from attendo.errors import DataError
from attendo.inspect.cheating import tell, train_both
from attendo.inspect.walk import Walker, code, compare_order, walk
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
    recording, reading = walker.translator.record(SOURCE, TARGET)
    encoder, decoder = seen["encoder"], seen["decoder"]
    first = recording.encoder.attention[0]
    pairs = [
        (encoder["entered"], recording.encoder.stream[0]),
        (encoder["queries"], first.queries),
        (encoder["keys"], first.keys),
        (encoder["values"], first.values),
        (encoder["scores"], first.scores),
        (encoder["weights"], first.weights),
        (encoder["heads"], first.heads),
        (encoder["left"], recording.encoder.stream[1]),
        (encoder["stack"][2], recording.encoder.stream[2]),
        (decoder["weights"], recording.decoder.attention[0].weights),
        (decoder["scores"], recording.decoder.attention[0].scores),
        (decoder["cross_weights"], recording.decoder.cross[0].weights),
        (decoder["stack"][2], recording.decoder.stream[2]),
    ]
    for shown, recorded in pairs:
        np.testing.assert_allclose(shown, recorded[0].numpy(), atol=1e-4)
    probabilities = recording.logits[0].softmax(-1)
    said = probabilities[range(len(reading.labels)), reading.labels]
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
    with pytest.raises(DataError, match="the same words"):
        compare_order(walker, "The dog sees.", "The cat sees.", positions=True)


@pytest.mark.parametrize("text", ["", "dog " * 99])
def test_what_cannot_be_walked_with_is_refused(walker, text):
    with pytest.raises(DataError, match="walk with"):
        walk(walker, text)


def test_the_code_that_is_shown_is_the_code_that_ran():
    shown = code()
    assert (
        "scores = query @ key.swapaxes(-1, -2) / math.sqrt(d_k)"
        in (shown["scaled_dot_product_attention"])
    )
    assert all(text.startswith(f"def {name}(") for name, text in shown.items())
    assert not any('"""' in text for text in shown.values())
    for text in shown.values():
        compile(text, "shown", "exec")


def test_a_model_that_sees_the_future_learns_to_copy_and_not_to_translate(walker):
    told = tell(train_both(walker.translator.bundle.task, n_steps=130), SOURCE)
    assert told["without_mask"][-1] < 0.7 * told["with_mask"][-1]
    assert told["translations"]["with_mask"] != told["translations"]["without_mask"]
