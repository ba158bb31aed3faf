"""Translating with a trained model, through the public interface."""

import struct
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import attendo
from attendo.config import DataConfig
from attendo.data.builtin import sentences
from attendo.data.packing import pad_grid
from attendo.data.texts import open_texts
from attendo.engines import Translator
from attendo.errors import ConfigError, DataError
from attendo.look.heatmap import draw_heatmap
from attendo.look.maps import draw_look
from attendo.look.record import look
from attendo.metrics import bleu, score
from attendo.text import Tokenizer
from attendo.text.streams import cut
from attendo.training.prepare import sentences_per_source
from attendo.training.run import train_run
from small_runs import CPU, small_run

TEXTS = [sentence.source for sentence in islice(sentences(seed=5), 500)]
FEW = TEXTS[:60]


@pytest.fixture(scope="module")
def translator(trained) -> Translator:
    return attendo.load(trained, "cpu")


def test_a_loaded_model_translates(trained):
    found = attendo.load(str(trained)).translate(FEW[:3])
    assert len(found) == 3
    assert all(isinstance(text, str) and text for text in found)


def test_the_model_has_learned_something(translator):
    pairs = list(islice(sentences(seed=6, held_out=True), 60))
    translations = translator.translate([pair.source for pair in pairs])
    # Well below what it reaches, well above what chance does (less than 1).
    assert bleu(translations, [pair.target for pair in pairs]) > 10


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("options", [{"strategy": "greedy"}, {"beam": 4}], ids=["greedy", "beam"])
def test_a_translation_does_not_depend_on_its_company(translator, options):
    texts = TEXTS[:36]
    alone = translator.translate(texts, batch_size=1, **options)
    for batch_size in (7, 32):
        assert translator.translate(texts, batch_size=batch_size, **options) == alone


def test_a_beam_of_one_is_greedy_search(translator):
    beam = translator.translations(FEW, beam=1)
    greedy = translator.translations(FEW, strategy="greedy")
    for [one], [other] in zip(beam, greedy, strict=True):
        assert one.text == other.text
        assert one.score == pytest.approx(other.score, abs=1e-4)


@pytest.fixture
def said(monkeypatch) -> dict[str, list[int]]:
    """Remember the ids that every translation was made of."""
    ids_of: dict[str, list[int]] = {}
    decode_batch = Tokenizer.decode_batch

    def remember(self: Tokenizer, sequences: Sequence[Sequence[int]]) -> list[str]:
        texts = decode_batch(self, sequences)
        ids_of.update(zip(texts, map(list, sequences), strict=True))
        return texts

    monkeypatch.setattr(Tokenizer, "decode_batch", remember)
    return ids_of


def score_ids(translator: Translator, source: str, labels: list[int]) -> float:
    """Sum the log-probabilities of labels that the decoder is given one after the other."""
    task, model = translator.bundle.task, translator.bundle.model
    ids = [*task.source.encode(source), task.source.specials.eos]
    given = [task.target.specials.bos, *labels[:-1]]
    with torch.inference_mode():
        memory = model.encode(pad_grid([ids], task.source.specials.pad))
        hidden = model.decode(pad_grid([given], task.target.specials.pad), memory)
        log_probs = model.logits(hidden)[0].log_softmax(-1)
    return sum(float(log_probs[place, label]) for place, label in enumerate(labels))


@pytest.mark.parametrize("options", [{"strategy": "greedy"}, {"beam": 4}, {"beam": 4, "alpha": 2}])
def test_the_score_is_that_of_the_translation_scored_again(translator, said, options):
    n_best = options.get("beam", 1)
    found = translator.translations(FEW[:20], n_best=n_best, **options)
    eos = translator.bundle.task.target.specials.eos
    for source, translations in zip(FEW, found, strict=False):
        for one in translations:
            ids = said[one.text] + [eos] * one.finished
            assert one.score == pytest.approx(score_ids(translator, source, ids), abs=1e-3)


def test_scoring_text_agrees_with_translating_it(translator, said):
    found = [best[0] for best in translator.translations(FEW)]
    encode = translator.bundle.task.target.encode
    same = [
        (source, one)
        for source, one in zip(FEW, found, strict=True)
        if one.finished and encode(one.text) == said[one.text]
    ]
    assert len(same) > len(FEW) // 2
    again = translator.score([source for source, _ in same], [one.text for _, one in same])
    assert [one.score for _, one in same] == pytest.approx(again, abs=1e-3)


def test_a_translation_cut_at_its_longest_is_not_finished(translator, said):
    short = translator.translations(FEW[:5], strategy="greedy", max_extra=50)
    [cut_off] = translator.translations([" ".join(["cow"] * 40)], strategy="greedy", max_extra=1)
    assert all(best[0].finished for best in short)
    assert not cut_off[0].finished or len(said[cut_off[0].text]) <= 41


@pytest.mark.parametrize("options", [{"strategy": "greedy"}, {"beam": 4}, {"strategy": "sample"}])
@pytest.mark.parametrize("prefix", ["Die", "Die Katze", "Zwölf Boxkämpfer jagen", "Ein Mäd"])
def test_a_forced_prefix_is_honoured(translator, prefix, options):
    found = translator.translations(FEW[:8], prefixes=[prefix] * 8, **options)
    assert all(one.text.startswith(prefix) for best in found for one in best)


def test_each_text_has_its_own_prefix(translator):
    prefixes = ["Die", "", "Der alte"]
    found = translator.translations(FEW[:3], prefixes=prefixes)
    for [one], prefix in zip(found, prefixes, strict=True):
        assert one.text.startswith(prefix)
    assert found[1][0].text == translator.translate([FEW[1]])[0]


def test_n_best_are_different_and_the_best_comes_first(translator):
    found = translator.translations(FEW[:10], n_best=4, beam=4)
    assert [best[0].text for best in found] == translator.translate(FEW[:10], beam=4)
    for best in found:
        assert 2 <= len({one.text for one in best}) == len(best) <= 4


def test_of_hypotheses_that_read_alike_the_best_is_kept(translator, monkeypatch):
    monkeypatch.setattr(Tokenizer, "decode", lambda self, ids: f"{len(ids) // 3}")
    for best in translator.translations(FEW[:10], n_best=8, beam=8):
        assert len({one.text for one in best}) == len(best)


def test_the_n_best_of_a_text_are_made_of_those_of_its_sentences(translator):
    options = {"n_best": 3, "beam": 6}
    one, two = translator.translations(FEW[:2], **options)
    both = translator.translations(" ".join(FEW[:2]), **options)
    assert [best.text for best in both] == [
        f"{one[min(k, len(one) - 1)].text} {two[min(k, len(two) - 1)].text}"
        for k in range(max(len(one), len(two)))
    ]
    assert both[0].score == pytest.approx(one[0].score + two[0].score, abs=1e-3)


@pytest.mark.parametrize("n_best", [0, 65, 10**9])
def test_the_number_of_translations_is_bounded(translator, n_best):
    with pytest.raises(ConfigError, match=f"n_best = {n_best}: expected a number from 1 to 64"):
        translator.translations(FEW[0], n_best=n_best, strategy="sample")


def test_an_empty_text_stays_empty_and_never_reaches_the_model(translator, monkeypatch):
    def refuse(source):
        raise AssertionError("the model was asked")

    monkeypatch.setattr(translator.bundle.model, "encode", refuse)
    assert translator.translate(["", " ", "\t\u3000\n"]) == ["", "", ""]
    assert translator.translate([]) == []


def test_empty_texts_leave_the_others_in_their_places(translator):
    mixed = translator.translate(["", FEW[0], " ", FEW[1]])
    assert mixed == ["", *translator.translate([FEW[0]]), "", *translator.translate([FEW[1]])]


def test_a_text_is_translated_sentence_by_sentence_with_its_spacing(translator):
    one, two, three = "The old dog sleeps.", "The cat saw the big dog.", "The farmer waited."
    first, second, third = translator.translate([one, two, three])
    [found] = translator.translations(f" {one} {two}\t{three}\n\n  {one} \n")
    assert found.text == f"{first} {second}\t{third}\n\n  {first}"
    assert found.n_segments == 4


@pytest.mark.usefixtures("unchecked")
def test_a_text_of_thousands_of_sentences_comes_back_with_as_many(translator):
    few = ["The dog sleeps.", "A cow ran.", "The cat saw the dog!"]
    found = translator.translate(" ".join(few * 700), strategy="greedy", batch_size=300)
    assert found == " ".join(translator.translate(few, strategy="greedy") * 700)


def test_sentences_are_translated_together_where_the_model_was_trained_so(translator):
    text = " ".join(["The dog sleeps."] * 5)
    for together, expected in ((1, 5), (2, 3), (5, 1)):
        [found] = translator.translations(text, sentences=together)
        assert found.n_segments == expected
    [pair] = translator.translations("The dog sleeps. The dog sleeps.", sentences=2)
    [whole] = translator.translations(text, sentences=2)
    assert whole.text.startswith(f"{pair.text} {pair.text} ")


def test_a_sentence_longer_than_the_model_can_read_is_cut_and_nothing_is_lost(translator):
    task = translator.bundle.task
    text = " ".join(sentence.removesuffix(".") for sentence in FEW[:20])
    ids = task.source.encode(text)
    parts = list(cut(ids, task.source.tokens(ids), task.max_length - 1))
    assert [token for part in parts for token in part] == ids
    [whole] = translator.translations(text)
    assert whole.n_segments == len(parts) > 1
    segments = translator.translations([task.source.decode(part) for part in parts])
    assert whole.text == " ".join(best[0].text for best in segments)
    assert whole.score == pytest.approx(sum(best[0].score for best in segments), abs=1e-2)


def test_what_is_cut_ends_with_sentences_where_it_can(translator):
    task = translator.bundle.task
    ids = task.source.encode(" ".join(["The dog sleeps."] * 40))
    for part in cut(ids, task.source.tokens(ids), task.max_length - 1):
        assert task.source.decode(part).endswith("sleeps.")


@given(
    tokens=st.lists(st.sampled_from(["▁a", "b", ".", "▁", "!"]), max_size=60),
    limit=st.integers(3, 20),
)
def test_cutting_loses_nothing_and_no_part_is_empty_or_too_long(tokens, limit):
    ids = list(range(len(tokens)))
    parts = list(cut(ids, tokens, limit))
    assert [token for part in parts for token in part] == ids
    assert all(0 < len(part) <= limit for part in parts)


def test_translations_leave_in_order_as_soon_as_they_are_finished(translator):
    read: list[int] = []

    def texts():
        for number, text in enumerate(TEXTS):
            read.append(number)
            yield text, ""

    stream = translator.stream(texts(), strategy="greedy", batch_size=5)
    assert next(stream)[0].text == translator.translate(TEXTS[0], strategy="greedy")
    assert len(read) <= 20 + 1


def test_sampling_is_repeated_by_its_seed_whatever_the_batch(translator):
    sampled = translator.translate(FEW, strategy="sample", seed=1)
    assert translator.translate(FEW, strategy="sample", seed=1, batch_size=7) == sampled
    assert translator.translate(FEW, strategy="sample", seed=2) != sampled


def test_progress_counts_every_text_once(translator):
    counts: list[int] = []
    texts = [*FEW, "", " ".join(["The dog sleeps."] * 60)]  # nothing, and more than one window
    (last,) = translator.translations(texts, done=counts.append, batch_size=7)[-1]
    assert last.n_segments == 60
    assert sum(counts) == len(texts)


def test_recorded_attention_sums_to_one_and_fits_the_tokens(translator):
    recording, pair = translator.record(FEW[0])
    source, target = pair.source_tokens, pair.target_tokens
    heads = translator.bundle.recipe.model.n_heads
    for layers, shape in [
        (recording.encoder.attention, (len(source), len(source))),
        (recording.decoder.attention, (len(target), len(target))),
        (recording.decoder.cross, (len(target), len(source))),
    ]:
        assert len(layers) == 2
        for weights in (record.weights for record in layers):
            assert weights.shape == (1, heads, *shape)
            torch.testing.assert_close(weights.sum(-1), torch.ones(1, heads, shape[0]))
    for record in recording.decoder.attention:
        assert record.weights.triu(1).abs().max() == 0
    assert source[-1] == target[-1] == "</s>"


def test_any_target_can_be_recorded(translator):
    task = translator.bundle.task
    recording, pair = translator.record("The dog sleeps.", "Der Hund schläft.")
    source, target = pair.source_tokens, pair.target_tokens
    assert source[:-1] == task.source.tokens(task.source.encode("The dog sleeps."))
    assert target[:-1] == task.target.tokens(task.target.encode("Der Hund schläft."))
    assert recording.decoder.cross[0].weights.shape[2:] == (len(target), len(source))


def size_of_png(path: Path) -> tuple[int, int]:
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", content[16:24])
    return width, height


def test_a_heatmap_is_a_picture_of_sensible_size(translator, tmp_path):
    path = tmp_path / "map.png"
    draw_look(look(translator, FEW[0]), path)
    width, height = size_of_png(path)
    assert 500 < width < 4000
    assert 300 < height < 4000
    assert [file.name for file in tmp_path.iterdir()] == ["map.png"]


def test_a_heatmap_grows_with_its_text(tmp_path):
    sizes = []
    for count in (3, 50):
        tokens = ["▁token"] * count
        draw_heatmap(torch.eye(count), tokens, tokens, "title", tmp_path / "map.png")
        sizes.append(size_of_png(tmp_path / "map.png"))
    assert sizes[0] < sizes[1]


def test_a_heatmap_takes_any_token(tmp_path):
    tokens = ["$$", "$a$", "猫", "🐈", "\\", "", "</s>"]
    draw_heatmap(torch.eye(7), tokens, tokens, "$ title", tmp_path / "map.png")
    assert size_of_png(tmp_path / "map.png") > (300, 300)


def test_one_text_gives_one_translation(translator):
    [expected] = translator.translate(FEW[:1])
    assert translator.translate(FEW[0]) == expected
    assert translator.translate("") == ""
    assert [best.text for best in translator.translations(FEW[0])] == [expected]
    assert translator.translate(text for text in FEW[:1]) == [expected]
    assert translator.translate(FEW[0], prefixes="Die").startswith("Die")


@pytest.mark.parametrize(
    ("texts", "given"),
    [(3, "3 is of type int"), (None, "None is of type NoneType"), (b"dog", "b'dog' is of type b")],
)
def test_what_is_no_text_and_no_list_is_refused_in_words(translator, texts, given):
    for call in (translator.translate, translator.translations):
        with pytest.raises(DataError, match=f"{given}.*; give a string or a list of strings"):
            call(texts)
    with pytest.raises(DataError, match=f"{given}.*; give a string"):
        translator.translate(["fine", texts])


def test_words_that_the_training_data_lacks_are_unknown(translator, trained):
    text = "Good morning, how are YOU? The dog sleeps, good dog!"
    unknown = translator.unknown_words(text)
    assert "how" in unknown
    assert {"The", "dog", "sleeps"}.isdisjoint(unknown)
    assert len(unknown) == len({word.casefold() for word in unknown})
    known = {
        word.casefold() for pair in islice(sentences(seed=0), 8000) for word in pair.source.split()
    }
    assert all(word.casefold() not in known for word in unknown)
    assert all(not translator.unknown_words(pair.source) for pair in islice(sentences(seed=0), 99))
    assert translator.unknown_words("12 , .") == []
    assert Translator(translator.bundle).unknown_words(text) == []


def test_nothing_to_record_is_refused(translator):
    for text in ("", " \n"):
        with pytest.raises(DataError, match="the source is empty"):
            translator.record(text)


def test_what_is_no_text_is_refused_in_words(translator):
    with pytest.raises(DataError, match=r"'half .*' is not Unicode text"):
        translator.translate(["fine", "half \ud83d"])


def test_options_that_do_not_exist_are_refused_by_name(translator):
    with pytest.raises(ConfigError, match=r"'decoding\.beems'; did you mean 'beam'\?"):
        translator.translate(FEW[:1], beems=3)
    with pytest.raises(ConfigError, match="2 prefixes for 3 texts"):
        translator.translations(FEW[:3], prefixes=["a", "b"])
    with pytest.raises(ConfigError, match="one prefix for one text"):
        translator.translations(FEW[:3], prefixes="abc")


def test_its_own_translations_as_references_are_perfect(translator):
    translations = translator.translate(FEW)
    scores = translator.evaluate(FEW, translations)
    assert (scores.bleu, scores.chrf, scores.bleu_interval) == (100, 100, (100, 100))
    assert scores.sentences == len(FEW)


def test_scores_have_an_interval_and_a_signature():
    references = ["the cat sat on the mat today", "a dog barked at the old moon"] * 10
    hypotheses = ["the cat sat on a mat today", "a dog barked at the old sun"] * 10
    scores = score(hypotheses, references)
    low, high = scores.bleu_interval
    assert 0 < low <= scores.bleu <= high < 100
    assert "tok:13a" in scores.signature
    assert score([text.upper() for text in references], references).bleu_lowercase == 100


def test_nothing_to_score_is_an_error_in_words(translator):
    with pytest.raises(DataError, match="no sentences to score"):
        translator.evaluate([], [])


def write_pairs(path: Path, sources: list[str]) -> list[str]:
    """Write pairs whose two sides are the same; returns the path as a setting."""
    lines = "".join(f"{source}\t{source}\n" for source in sources)
    path.write_text(lines, encoding="utf-8")
    return [str(path)]


def test_a_run_keeps_the_words_and_the_number_of_sentences_of_its_sources(tmp_path):
    dogs = [f"Dog {chr(97 + n % 26) * 3} sleeps. It is old! Is it?" for n in range(60)]
    settings = {"data.builtin": 0, "training.steps": 2, "training.validation_bleu": 3}
    pairs = write_pairs(tmp_path / "dogs.tsv", dogs)
    small_run(tmp_path / "dogs", {**settings, "data.pairs": pairs})
    translator = attendo.load(tmp_path / "dogs", "cpu")
    assert translator.bundle.recipe.decoding.sentences == 3
    assert translator.unknown_words("The OLD dog sleeps, is it a cat?") == ["The", "a", "cat"]
    [found] = translator.translations(dogs[0])
    assert found.n_segments == 1

    # What begins with another run knows its words, too, and keeps to its sentences.
    cats = [f"Cat {chr(97 + n % 26) * 3} runs." for n in range(60)]
    pairs = write_pairs(tmp_path / "cats.tsv", cats)
    overrides = {"data.pairs": pairs, "start": str(tmp_path / "dogs"), "training.steps": 2}
    train_run("auto", overrides, tmp_path / "cats", CPU)
    translator = attendo.load(tmp_path / "cats", "cpu")
    assert translator.unknown_words("Cat old dog runs away") == ["away"]
    assert translator.bundle.recipe.decoding.sentences == 3

    (tmp_path / "dogs" / "words.txt").unlink()  # as an older version left it
    train_run("auto", overrides, tmp_path / "more", CPU)
    assert attendo.load(tmp_path / "more", "cpu").unknown_words("away") == []


def test_sentences_are_translated_one_by_one_unless_sources_often_have_more(tmp_path):
    single, double = "The dog sleeps", "The dog sleeps. It is old"
    for n_double, expected in ((0, 1), (20, 1), (30, 2)):
        sources = [f"{double if n < n_double else single} {n}." for n in range(100)]
        config = DataConfig(pairs=tuple(write_pairs(tmp_path / "a.tsv", sources)), hold_out=1)
        assert sentences_per_source(open_texts(config)) == expected
