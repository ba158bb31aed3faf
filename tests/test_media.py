"""Images and recordings: files, spectrograms, patches, augmentation, and their three tasks."""

import gzip
import io
import json
import os
import struct
import sys
from base64 import b64encode
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from selenium.webdriver.support.wait import WebDriverWait
from torch import nn

from attendo.bundle import load_bundle
from attendo.cli import app, main
from attendo.config import (
    AudioConfig,
    AugmentationConfig,
    DecodingConfig,
    ImageConfig,
    Recipe,
    load_recipe,
)
from attendo.data.corpus import CorpusWriter, MemorySide, Vectors, open_corpus, ragged
from attendo.data.media.drawn import SHAPES, draw_image, draw_sound
from attendo.data.media.images import LabelledImage, parse_idx, read_image
from attendo.data.media.recordings import (
    LabelledRecording,
    parse_wav,
    read_recording,
    resample,
    write_wav,
)
from attendo.data.packing import lay_grid, pad_grid
from attendo.data.readers import ReadReport, RecordFiles, read_records
from attendo.engines import load_engine
from attendo.errors import BundleError, ConfigError, DataError
from attendo.metrics import count_word_errors, edit_distance
from attendo.nn.augmentation import augment_images, draw_mixture
from attendo.nn.grid import Grid
from attendo.nn.patches import ImageEmbedding, to_images, to_patches
from attendo.nn.spectrogram import (
    FLOOR,
    SPREAD,
    AudioEmbedding,
    LogMel,
    equalize,
    mel_filters,
    warp,
)
from attendo.tasks import ImageClassification, SpeechRecognition
from attendo.tasks.audio_classification import add_silence
from servers import DRIVER, browsing, emulate, send, serving
from small_runs import CPU, overflowing

GREY = ImageConfig(size=28, channels=1, patch=4)
AUDIO = AudioConfig()

TINY = {
    "model.d_model": 16,
    "model.d_ff": 32,
    "model.n_heads": 2,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "training.warmup_steps": 2,
    "training.validation_bleu": 0,
    "training.ema": 0,
}


def options(settings: dict[str, Any]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def call(*words: Any) -> None:
    app([*map(str, words), "--device", "cpu"], standalone_mode=False)


# Files


def wav_file(form: int, bits: int, channels: np.ndarray, *, extensible: bool = False) -> bytes:
    """Write a wav file by hand."""
    if form == 3:
        body = channels.astype(f"<f{bits // 8}").tobytes()
    elif bits == 8:
        body = (channels * 127 + 128).round().astype(np.uint8).tobytes()
    else:
        whole = (channels.astype(np.float64) * (2.0 ** (bits - 1) - 1)).round().astype("<i4")
        body = whole[..., None].view(np.uint8).reshape(-1, 4)[:, : bits // 8].tobytes()
    n = channels.shape[1]
    about = struct.pack("<HHIIHH", form, n, 8000, 1000 * n * bits, n * bits // 8, bits)
    if extensible:
        about = struct.pack("<H", 0xFFFE) + about[2:] + struct.pack("<HHIH", 22, bits, 0, form)
        about += bytes.fromhex("000000001000800000aa00389b71")
    chunks = b"".join(
        name + struct.pack("<I", len(one)) + one + bytes(len(one) % 2)
        for name, one in ((b"fmt ", about), (b"LIST", b"odd"), (b"data", body))
    )
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


@pytest.mark.parametrize(("form", "bits"), [(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64)])
@pytest.mark.parametrize("extensible", [False, True])
def test_wav_files_are_read_as_scipy_reads_them(form, bits, extensible):
    from scipy.io import wavfile

    channels = np.random.default_rng(0).uniform(-1, 1, (101, 2)).astype(np.float32)
    content = wav_file(form, bits, channels, extensible=extensible)
    rate, found = parse_wav(content)
    assert (rate, found.shape) == (8000, (101, 2))
    np.testing.assert_allclose(found, channels, atol=2.0 / 2 ** min(bits - 1, 23))
    _, theirs = wavfile.read(io.BytesIO(content))
    if bits == 8:
        theirs = theirs.astype(np.float64) - 128
    scale = {8: 2**7, 16: 2**15, 24: 2**31, 32: 2**31}[bits] if form == 1 else 1
    np.testing.assert_allclose(found, theirs / scale, atol=1e-6)


def test_wav_files_of_the_standard_library_are_read(tmp_path):
    samples = np.arange(-500, 500, dtype=np.int16)
    write_wav(tmp_path / "a.wav", samples, 8000)
    assert np.abs(read_recording(str(tmp_path / "a.wav"), 8000) - samples).max() <= 1


@pytest.mark.parametrize(("before", "after"), [(16000, 8000), (8000, 16000), (44100, 8000)])
def test_resampling_keeps_a_tone_and_is_that_of_scipy(before, after):
    from scipy.signal import resample as theirs

    tone = np.sin(2 * np.pi * 440 * np.arange(before // 4) / before).astype(np.float32)
    found = resample(tone, before, after)
    np.testing.assert_allclose(found, theirs(tone, after // 4), atol=1e-5)
    expected = np.sin(2 * np.pi * 440 * np.arange(after // 4) / after)
    assert np.abs(found - expected)[100:-100].max() < 0.01


@pytest.mark.parametrize(
    "content",
    [b"", b"RIFF0000WAVE", b"hello world, this is no sound", wav_file(7, 8, np.ones((4, 1)))],
)
def test_what_is_no_wav_is_refused_in_one_line(tmp_path, content):
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.wav is not a wav file that can be read") as refused:
        read_recording(str(tmp_path / "a.wav"), 8000)
    assert "\n" not in str(refused.value)


def idx(array: np.ndarray) -> bytes:
    return (
        bytes([0, 0, 8, array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


@pytest.fixture(scope="module")
def shapes(tmp_path_factory) -> Path:
    """Return a folder with the same images in every format."""
    folder = tmp_path_factory.mktemp("shapes")
    names = [f"{shape}-{number}" for number in range(6) for shape in SHAPES]
    images = np.stack([draw_image(name, 28) for name in names])
    labels = np.array([SHAPES.index(name.partition("-")[0]) for name in names], dtype=np.uint8)
    (folder / "train-images-idx3-ubyte").write_bytes(idx(images))
    (folder / "train-labels-idx1-ubyte").write_bytes(idx(labels))
    (folder / "x-images-idx3.gz").write_bytes(gzip.compress(idx(images)))
    (folder / "x-labels-idx1.gz").write_bytes(gzip.compress(idx(labels)))
    np.savez(folder / "all.npz", images=images, labels=labels)
    np.save(folder / "images.npy", images)
    np.save(folder / "labels.npy", labels)
    for name, image in zip(names, images, strict=True):
        place = folder / "folder" / name.partition("-")[0]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{name}.png")
    rows = (f"folder/{name.partition('-')[0]}/{name}.png\t{name[0]}" for name in names)
    (folder / "list.tsv").write_text("\n".join(rows) + "\n")
    return folder


@pytest.mark.parametrize(
    "name", ["train-images-idx3-ubyte", "x-images-idx3.gz", "all.npz", "images.npy"]
)
def test_files_of_many_images_hold_the_same(shapes, name):
    files = RecordFiles(files=(str(shapes / name),), record=LabelledImage)
    records = list(read_records(files, ReadReport()))
    assert len(records) == 24
    assert [record.label for record in records[:4]] == ["0", "1", "2", "3"]
    for record, shape in zip(records, SHAPES, strict=False):
        assert np.array_equal(read_image(record.image, GREY)[..., 0], draw_image(f"{shape}-0", 28))


def test_files_whose_names_are_not_utf8_are_left_out(tmp_path):
    for name in (b"cat/1.png", b"cat/\xff.png"):
        path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    report = ReadReport()
    found = list(read_records(RecordFiles(files=(str(tmp_path),), record=LabelledImage), report))
    assert [Path(one.image).name for one in found] == ["1.png"]
    assert report.dropped == {"file name that is not UTF-8": 1}


def test_folders_and_lists_name_the_same_images(shapes):
    folder, listed = (
        list(
            read_records(
                RecordFiles(files=(str(shapes / name),), record=LabelledImage), ReadReport()
            )
        )
        for name in ("folder", "list.tsv")
    )
    assert {record.label for record in folder} == set(SHAPES)
    assert sorted(record.image for record in listed) == sorted(record.image for record in folder)
    image = read_image(folder[0].image, GREY)
    assert np.array_equal(image[..., 0], draw_image("circle-0", 28))


def test_names_of_recordings_begin_with_their_label(tmp_path):
    for name in ("7_jackson_0", "3_theo_1"):
        write_wav(tmp_path / f"{name}.wav", np.ones(100, np.int16), 8000)
    files = RecordFiles(files=(str(tmp_path),), record=LabelledRecording)
    assert [record.label for record in read_records(files, ReadReport())] == ["3", "7"]


def test_images_are_scaled_to_a_square_and_upright(tmp_path):
    wide = Image.new("RGB", (80, 40), (255, 0, 0))
    wide.save(tmp_path / "wide.jpg", quality=95)
    pixels = read_image(str(tmp_path / "wide.jpg"), ImageConfig(size=20, channels=3, patch=4))
    assert pixels.shape == (20, 20, 3)
    assert pixels[10, 10, 0] > 240
    assert pixels[1].max() == 0, "black above and below"
    clear = Image.new("RGBA", (20, 20), (0, 0, 0, 0))
    clear.save(tmp_path / "clear.png")
    assert read_image(str(tmp_path / "clear.png"), ImageConfig(size=20, patch=4)).min() == 255


def test_wrong_images_are_refused_in_one_line(tmp_path, shapes):
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n but no more")
    for name, reason in (
        (str(tmp_path / "a.png"), "not an image that can be read"),
        (str(tmp_path / "none.png"), "no such file"),
        (str(tmp_path), "not a regular file"),
        (f"{shapes / 'all.npz'}#24", "has 24 images"),
        ("drawn:house-1", "cannot be drawn"),
        ("drawn:circle-²", "cannot be drawn"),
        (f"drawn:circle-{'9' * 5000}", "cannot be drawn"),
        ("data:image/png;base64,???", "not a data URL"),
    ):
        with pytest.raises(DataError, match=reason) as refused:
            read_image(name, GREY)
        assert "\n" not in str(refused.value)
    with pytest.raises(ValueError, match="expected 2 × 3"):
        parse_idx(idx(np.zeros((2, 3), np.uint8))[:-1])


def test_images_of_16_bits_are_scaled_not_cut_off(tmp_path):
    ramp = np.linspace(0, 255, 28 * 28).astype(np.uint8).reshape(28, 28)
    Image.fromarray(ramp).save(tmp_path / "8.png")
    Image.fromarray(ramp.astype(np.uint16) * 257).save(tmp_path / "16.png")
    for config in (GREY, ImageConfig(size=28, channels=3, patch=4)):
        eight, sixteen = (read_image(str(tmp_path / name), config) for name in ("8.png", "16.png"))
        assert np.array_equal(eight, sixteen)


def test_files_of_images_without_labels_can_be_predicted_but_not_trained_on(tmp_path, shapes):
    images = np.load(shapes / "images.npy")
    np.save(tmp_path / "pictures.npy", images)
    np.savez(tmp_path / "pictures.npz", images=images)
    for name, reason in (
        ("pictures.npy", "its labels cannot be found"),
        ("pictures.npz", "it has no labels; expected an array labels"),
    ):
        assert np.array_equal(read_image(f"{tmp_path / name}#3", GREY)[..., 0], images[3])
        with pytest.raises(DataError, match=reason):
            list(LabelledImage.list_items(str(tmp_path / name)))
    np.savez(tmp_path / "fewer.npz", images=images, labels=np.zeros(3))
    with pytest.raises(DataError, match=r"24 images, but labels of shape \[3\]"):
        list(LabelledImage.list_items(str(tmp_path / "fewer.npz")))


def test_damaged_files_of_images_are_refused(tmp_path, shapes):
    content = (shapes / "all.npz").read_bytes()
    middle = len(content) // 4
    changed = content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]
    array = (shapes / "images.npy").read_bytes()
    damaged = {"cut": content[:middle], "changed": changed, "array": array, "text": b"a text"}
    for name, bad in damaged.items():
        path = tmp_path / f"{name}.npz"
        path.write_bytes(bad)
        with pytest.raises(DataError, match=r"npz cannot be read: (?!.*allow_pickle)"):
            read_image(f"{path}#0", GREY)


def test_a_column_of_vectors_is_mapped_from_disk_as_it_was_written(tmp_path):
    chance = np.random.default_rng(0)
    sequences = [chance.integers(-9, 9, (n, 3)).astype(np.int16) for n in (4, 1, 6)]
    sizes = {"sound": Vectors(3, "<i2"), "label": 10}
    writer = CorpusWriter(tmp_path, sizes)
    writer.add([(one, [number]) for number, one in enumerate(sequences)])
    writer.close()
    corpus = open_corpus(tmp_path, sizes)
    numbers = np.array([2, 0])
    taken = corpus.columns["sound"].take(numbers, chance)
    expected = MemorySide(ragged(sequences)).take(numbers, chance)
    assert np.array_equal(taken.ids, expected.ids)
    assert taken.ids.dtype == np.int16
    assert np.array_equal(taken.offsets, [0, 6, 10])
    with pytest.raises(BundleError, match="no vectors of 4 numbers"):
        open_corpus(tmp_path, {"sound": Vectors(4, "<i2")})


# Spectrograms and patches


def test_the_spectrogram_is_that_of_transformers():
    from transformers.audio_utils import mel_filter_bank, spectrogram

    filters = mel_filter_bank(129, AUDIO.n_mels, 0, 4000, 8000, norm=None, mel_scale="htk")
    np.testing.assert_allclose(mel_filters(AUDIO).numpy(), filters, atol=1e-5)
    n_positions = 5
    samples = np.random.default_rng(0).normal(0, 0.1, n_positions * AUDIO.samples)
    given = torch.from_numpy(samples).float().view(1, n_positions, -1)
    found = LogMel(AUDIO).logarithms(given, torch.ones(1, n_positions, dtype=torch.long))
    around = np.pad(samples, (AUDIO.window - AUDIO.hop) // 2)
    theirs = spectrogram(
        around, np.hanning(AUDIO.window + 1)[:-1], AUDIO.window, AUDIO.hop, fft_length=256,
        power=2.0, center=False, mel_filters=filters, mel_floor=0.0,
    )  # fmt: skip
    np.testing.assert_allclose(
        found.flatten(0, 2).numpy(), np.log(theirs.T + FLOOR), atol=2e-3, rtol=1e-3
    )


def audio_embedding(**changes: Any) -> AudioEmbedding:
    torch.manual_seed(0)
    return AudioEmbedding(AUDIO, AugmentationConfig(**changes), 12)


def test_a_recording_is_embedded_alone_as_beside_others():
    chance = np.random.default_rng(1)
    sounds = [chance.integers(-3000, 3000, (n, AUDIO.samples)).astype(np.int16) for n in (3, 1, 4)]
    model = audio_embedding().eval()
    packed = model.embed(lay_grid(ragged(sounds), ragged([[0, 1, 2]]), 9, 0))[0]
    for start, sound in zip((0, 3, 4), sounds, strict=True):
        alone = model.embed(pad_grid([sound], 0))[0]
        torch.testing.assert_close(packed[start : start + len(sound)], alone, rtol=1e-4, atol=1e-5)


def test_silence_at_the_ends_of_a_recording_does_not_matter():
    places = np.arange(4 * AUDIO.samples)
    tone = 8000 * np.sin(places / 5) + 3000 * np.sin(places / 2)
    sound = tone.astype(np.int16).reshape(4, -1)
    silence = np.random.default_rng(1).integers(-3, 4, (3, AUDIO.samples)).astype(np.int16)
    model = LogMel(AUDIO)
    levels = []
    for content in (sound, np.concatenate((silence, sound, silence))):
        grid = pad_grid([content], 0)
        levels.append(model(grid.ids / 32768, grid.segments)[0])
    alone, within = levels[0][1:-1], levels[1][4:-4]  # frames at the ends reach into the silence
    # With a mean in which silence counts, they would differ by 2.5.
    assert float((alone - within).abs().max()) < 0.1


def test_an_equalizer_changes_the_bands_of_each_recording_in_its_own_way():
    segments = torch.tensor([[1, 1, 2, 0]])
    mels = torch.zeros(1, 4, 3, AUDIO.n_mels)
    torch.manual_seed(1)
    changed = equalize(mels, segments, 1.0)[0]
    assert torch.equal(changed[0], changed[1]), "the same all through a recording"
    assert not torch.allclose(changed[1], changed[2])
    assert float(changed[:3].diff(dim=-1).abs().max()) < 0.5 * float(changed[:3].std()), "smooth"
    deviations = [float(equalize(mels, segments, 2.0).std()) for _ in range(200)]
    assert 0.5 < np.mean(deviations) * SPREAD / 2.0 < 1.5
    assert torch.equal(equalize(mels, segments, 0.0), mels)


def test_warped_frequencies_are_moved_in_each_recording_by_its_own_factor():
    segments = torch.tensor([[1, 1, 2, 2, 3]])
    peak = torch.exp(-((torch.arange(AUDIO.n_mels) - 20.0) ** 2) / 8)
    mels = peak.expand(1, 5, 3, -1)
    torch.manual_seed(2)
    changed = warp(mels, segments, 0.3, AUDIO)[0]
    places = changed.argmax(-1)
    assert (places[0] == places[1]).all()
    assert (places[2] == places[3]).all()
    assert len({int(places[n, 0]) for n in (0, 2, 4)}) == 3
    assert float(changed.amax(-1).min()) > 0.9, "moved, not flattened"
    # From 0.7 to 1.3 times the frequency of band 20, whose centre is at 1,225 Hz.
    assert 15 <= int(places.min()) < int(places.max()) <= 26
    assert torch.equal(warp(mels, segments, 0.0, AUDIO), mels)


def test_volume_does_not_matter_and_augmentation_is_for_training():
    sound = np.random.default_rng(1).integers(-3000, 3000, (4, AUDIO.samples)).astype(np.int16)
    model = audio_embedding(noise=0.5, equalizer=1.0, time_mask=0.5, band_mask=0.5).eval()
    grid, louder = pad_grid([sound], 0), pad_grid([2 * sound], 0)
    torch.testing.assert_close(model.embed(grid), model.embed(louder), rtol=1e-3, atol=1e-3)
    model.train()
    torch.manual_seed(3)
    first, second = model.embed(grid), model.embed(grid)
    torch.manual_seed(3)
    assert torch.equal(model.embed(grid), first), "the same seed, the same changes"
    assert not torch.allclose(first, second)


def test_patches_are_those_of_a_convolution_as_large_as_its_step():
    image = ImageConfig(size=12, channels=3, patch=4)
    torch.manual_seed(0)
    embedding = ImageEmbedding(image, AugmentationConfig(), 7).eval()
    images = torch.randn(2, 3, 12, 12)
    assert torch.equal(to_images(to_patches(images, 4), image), images)
    linear = embedding.stem
    assert isinstance(linear, nn.Linear)
    kernel = linear.weight.view(7, 3, 4, 4)
    expected = nn.functional.conv2d(images, kernel, linear.bias, stride=4).flatten(2).mT
    torch.testing.assert_close(embedding(to_patches(images, 4)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("patch", [1, 2, 4])
def test_a_convolutional_stem_has_a_vector_for_each_patch(patch):
    image = ImageConfig(size=8, channels=1, patch=patch, stem="convolution")
    embedding = ImageEmbedding(image, AugmentationConfig(), 16, class_token=True).eval()
    pixels = torch.randint(256, (2, 1 + image.n_patches, patch**2), dtype=torch.uint8)
    ones = torch.ones(pixels.shape[:2], dtype=torch.long)
    embedded = embedding.embed(Grid(pixels, ones, ones))
    assert embedded.shape == (2, 1 + image.n_patches, 16)
    alone = embedding.embed(Grid(pixels[:1], ones[:1], ones[:1]))
    torch.testing.assert_close(embedded[:1], alone, rtol=1e-4, atol=1e-5)


def test_each_change_of_an_image_is_what_it_claims():
    images = torch.zeros(64, 1, 20, 20)
    images[:, :, 8:12, 8:12] = 1.0
    assert augment_images(images, AugmentationConfig()) is images
    torch.manual_seed(0)
    places = torch.arange(20.0)

    def centre(changed: torch.Tensor) -> torch.Tensor:
        return (changed.sum(2)[:, 0] * places).sum(1) / changed.sum((1, 2, 3))

    moved = augment_images(images, AugmentationConfig(shift=0.2))
    assert 3.0 < (centre(moved) - 9.5).abs().max() <= 4.01
    torch.testing.assert_close(moved.sum((1, 2, 3)), torch.full((64,), 16.0), rtol=0.01, atol=0.01)
    scaled = augment_images(images, AugmentationConfig(scale=0.5)).sum((1, 2, 3))
    assert scaled.max() > 24
    assert scaled.min() < 10
    for changes in ({"rotation": 45}, {"shear": 0.5}, {"elastic": 0.05}):
        changed = augment_images(images, AugmentationConfig(**changes))
        assert (changed - images).abs().max() > 0.1
        assert (centre(changed) - 9.5).abs().max() < 2.5
    erased = augment_images(torch.ones(64, 1, 20, 20).cumsum(2), AugmentationConfig(erasing=1))
    assert (erased.var(dim=2) > 0).all(), "never all of it"


def test_mixed_images_have_the_mixed_loss_of_their_labels():
    recipe = load_recipe("mnist", {**TINY, "augmentation.mixup": 1.0, "augmentation.elastic": 0})
    recipe = recipe.model_copy(update={"augmentation": AugmentationConfig(mixup=1.0)})
    task = ImageClassification(["a", "b", "c"], recipe)
    torch.manual_seed(0)
    model = task.build(recipe.model.model_copy(update={"p_drop": 0.0}))
    model.output.weight.data.normal_()
    chance = np.random.default_rng(0)
    rows = [chance.integers(256, size=(49, 16), dtype=np.uint8) for _ in range(6)]
    columns = {"image": ragged(rows), "label": ragged([[n % 3] for n in range(6)])}
    inputs, labels = task.shape(columns, chance)
    grid = pad_grid(list(inputs["image"].sequences()), 0)
    expected = torch.from_numpy(labels.ids).view(6, -1)
    from attendo.data.batches import Batch

    batch = Batch({"image": grid}, expected, 6, tuple(range(6)))
    model.train()
    torch.manual_seed(5)
    found = task.loss(model, batch, 0.1)
    torch.manual_seed(5)
    mixture = draw_mixture(6, 1.0, torch.device("cpu"))
    pixels = mixture.of(grid.ids.float() / 127.5 - 1)
    logits = model.logits(model.pool(model.encode(grid._replace(ids=pixels)))[:, 0])
    cross = partial(nn.functional.cross_entropy, logits, reduction="sum", label_smoothing=0.1)
    first, share = expected[:, 0], mixture.share
    by_hand = share * cross(first) + (1 - share) * cross(first[mixture.partners])
    torch.testing.assert_close(found.total, by_hand, rtol=1e-4, atol=1e-4)


# Word error rate


def test_known_word_error_rates():
    scores = count_word_errors(
        ["one three", "four", "", "5 5"], ["one two three", "four", "9", "5"]
    )
    assert scores.to_dict() == {
        "word_error_rate": 50.0, "correct": 25.0, "errors": 3, "words": 6, "recordings": 4,
    }  # fmt: skip
    with pytest.raises(DataError, match="no words to score"):
        count_word_errors(["a"], [""])


def slow_distance(left: tuple[str, ...], right: tuple[str, ...]) -> int:
    """Return the edit distance as it is defined."""
    if not left or not right:
        return len(left) + len(right)
    if left[0] == right[0]:
        return slow_distance(left[1:], right[1:])
    shorter = (left[1:], right), (left, right[1:]), (left[1:], right[1:])
    return 1 + min(slow_distance(*pair) for pair in shorter)


WORDS = st.lists(st.sampled_from("abc"), max_size=5)


@given(WORDS, WORDS)
def test_the_edit_distance_is_its_definition(left, right):
    assert edit_distance(left, right) == slow_distance(tuple(left), tuple(right))


# Joining recordings


def test_joined_recordings_have_their_texts_in_order_and_fit():
    changes = {"augmentation.speed": 0, "augmentation.softer": 0, "data.max_length": 20}
    recipe = load_recipe("spoken-digit-strings", {**TINY, **changes})
    task = SpeechRecognition.learn(recipe, lambda: iter([_transcribed("1 2 3")]))
    width = recipe.audio.samples
    recordings = [np.full((n, width), n * 1000, np.int16) for n in (1, 2, 3)]
    for n, recording in enumerate(recordings, 1):
        recording[0, :n] *= -1
    texts = [task.target.encode(str(n)) for n in (1, 2, 3)]
    columns = {"source": ragged(recordings), "target": ragged(texts)}
    counts = set()
    for seed in range(20):
        varied = task.vary(columns, np.random.default_rng(seed))
        sounds, found = varied["source"].sequences(), varied["target"].sequences()
        for sound, ids in zip(sounds, found, strict=True):
            loud = sound.reshape(-1)
            loud = loud[np.abs(loud) >= 1000]  # without the gaps
            said = [int(word) for word in task.target.decode(ids).split()]
            wanted = [recordings[n - 1].reshape(-1) // n * said[0] for n in said]  # of one volume
            assert np.array_equal(loud, np.concatenate(wanted))
            assert len(sound) <= 20
            counts.add(len(said))
    assert {1, 2, 3, 4} <= counts <= set(range(1, 8))


def test_joined_recordings_are_softer_by_up_to_so_many_decibels():
    changes = {"augmentation.speed": 0, "augmentation.softer": 6, "augmentation.silence": 0}
    recipe = load_recipe("spoken-digit-strings", {**TINY, **changes})
    task = SpeechRecognition.learn(recipe, lambda: iter([_transcribed("1")]))
    sound = np.full((1, recipe.audio.samples), 8000, np.int16)
    columns = {"source": ragged([sound] * 30), "target": ragged([task.target.encode("1")] * 30)}
    varied = task.vary(columns, np.random.default_rng(1))
    levels = np.concatenate([one.reshape(-1) for one in varied["source"].sequences()])
    found = np.unique(levels[levels > 1000])
    assert 4000 <= found.min() < 4400
    assert 7500 < found.max() <= 8000
    assert len(found) > 30, "each recording has its own"


def test_silence_is_added_at_both_ends_of_a_recording():
    sound = np.full((3, AUDIO.samples), 5000, np.int16)
    befores, afters = [], []
    for seed in range(50):
        changed = add_silence(sound, 0.2, 8000, np.random.default_rng(seed)).reshape(-1)
        loud = np.flatnonzero(changed == 5000)
        assert len(loud) == sound.size == loud[-1] + 1 - loud[0]
        befores.append(loud[0])
        afters.append(len(changed) - 1 - loud[-1])
    assert 1200 < max(befores) <= 1600
    assert 1200 < max(afters) < 1600 + AUDIO.samples, "and what fills the last position"
    assert min(befores) < 400


def test_a_silent_recording_makes_no_other_silent():
    recipe = load_recipe(
        "spoken-digit-strings", {**TINY, "augmentation.speed": 0, "augmentation.softer": 0}
    )
    task = SpeechRecognition.learn(recipe, lambda: iter([_transcribed("1 2")]))
    recordings = [np.full((2, recipe.audio.samples), volume, np.int16) for volume in (0, 3000)]
    columns = {
        "source": ragged(recordings),
        "target": ragged([task.target.encode(text) for text in "12"]),
    }
    for seed in range(5):
        varied = task.vary(columns, np.random.default_rng(seed))
        sounds, found = varied["source"].sequences(), varied["target"].sequences()
        for sound, ids in zip(sounds, found, strict=True):
            n_loud = task.target.decode(ids).split().count("2")
            assert (np.abs(sound) == 3000).sum() == n_loud * recordings[1].size


def _transcribed(text: str) -> Any:
    return SpeechRecognition.record_type("drawn:low-1", text)


# The command line


@pytest.fixture(scope="module")
def image_run(shapes, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "image"
    settings = {**TINY, "training.steps": 6, "training.validate_every": 3, "training.seconds": 0}
    call("train", "mnist", "--data", shapes / "folder", "--out", run,
         *options({**settings, "training.batch_tokens": 400, "data.hold_out": 3}))  # fmt: skip
    return run


def test_images_are_trained_on_predicted_scored_and_embedded(image_run, shapes, tmp_path, capsys):
    capsys.readouterr()
    file = shapes / "folder" / "circle" / "circle-0.png"
    call("predict", image_run, file, f"{shapes / 'all.npz'}#0", "--json")
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first["image"] == str(file)
    assert first["probabilities"] == second["probabilities"]
    assert set(first["probabilities"]) == set(SHAPES)
    call("evaluate", image_run, "--data", shapes / "folder", "--confusion", tmp_path / "map.png")
    assert "images" in capsys.readouterr().out
    assert (tmp_path / "map.png").stat().st_size > 1000
    call("embed", image_run, file, "--npy", tmp_path / "v.npy")
    assert np.linalg.norm(np.load(tmp_path / "v.npy")) == pytest.approx(1, abs=1e-5)


def test_a_recording_that_is_too_long_does_not_stop_a_training(tmp_path, capsys):
    for name, seconds in (("short", 1), ("long", 7)):
        write_wav(tmp_path / f"{name}.wav", np.zeros(8000 * seconds, np.int16), 8000)
    lines = ["short.wav\tone", "long.wav\ttwo", "none.wav\ttwo"]
    for name, some in (("train", lines[:1] * 20), ("valid", lines), ("test", lines)):
        (tmp_path / f"{name}.tsv").write_text("\n".join(some) + "\n")
    settings = {**TINY, "data.builtin": 0, "training.steps": 2, "training.batch_tokens": 512}
    settings |= {"training.validate_every": 1, "training.validation_bleu": 5}
    for part in ("valid", "test"):
        settings[f"data.{part}_files"] = [str(tmp_path / f"{part}.tsv")]
    call("train", "spoken-digit-strings", "--data", tmp_path / "train.tsv",
         "--out", tmp_path / "run", *options(settings))  # fmt: skip
    said = capsys.readouterr().err
    for part in ("validation", "test"):
        assert f"left out 1 {part} records: file that is missing or damaged" in said
        assert f"left out 1 {part} records: longer than data.max_length" in said
    assert json.loads((tmp_path / "run" / "scorecard.json").read_text())["recordings"] == 1


def test_attention_is_drawn_on_the_image(image_run, shapes, tmp_path, capsys):
    file = shapes / "folder" / "circle" / "circle-0.png"
    for name in ("map.png", "map.svg", "page.html"):
        call("look", image_run, file, "--out", tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    assert "data:image/png;base64," in (tmp_path / "page.html").read_text()
    assert str(shapes) not in (tmp_path / "page.html").read_text().replace(str(file), "")
    call("look", image_run, file, "--head", "2", "--out", tmp_path / "head.png")


def test_an_image_model_starts_another_one_with_other_labels(image_run, shapes, tmp_path, capsys):
    settings = {"training.steps": 2, "data.hold_out": 3, "training.batch_tokens": 400}
    call("train", "image-classification", "--from", image_run, "--data", shapes / "all.npz",
         "--out", tmp_path / "other", *options(settings))  # fmt: skip
    engine = load_engine(tmp_path / "other", "cpu")
    assert engine.bundle.task.labels == ("0", "1", "2", "3")
    assert engine.bundle.recipe.image == GREY.model_copy(update={"stem": "convolution"})
    with pytest.raises(ConfigError, match=r"image\.size = 24 does not fit"):
        call("train", "mnist", "--from", image_run, "--data", shapes / "all.npz",
             "--out", tmp_path / "no", "--set", "image.size=24")  # fmt: skip
    rows = (f"gone-{number}.png\t{'cat' if number % 2 else 'dog'}" for number in range(40))
    (tmp_path / "gone.tsv").write_text("\n".join(rows) + "\n")
    with pytest.raises(DataError, match=r"can be used: \d+ file that is missing or damaged"):
        call("train", "image-classification", "--from", image_run, "--data", tmp_path / "gone.tsv",
             "--out", tmp_path / "none")  # fmt: skip


def test_parameters_that_overflow_are_refused(image_run, shapes, tmp_path, command):
    run = overflowing(image_run, tmp_path / "run")
    for name in ("predict", "embed"):
        code, out, error = command(name, run, shapes / "folder" / "circle" / "circle-0.png")
        assert (code, out) == (2, "")
        assert "output is not finite" in error


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["predict", "RUN", "none.png"], "none.png cannot be read: no such file"),
        (["predict", "RUN", "WAV"], "is not an image that can be read"),
        (["train", "mnist", "--data", "nowhere", "--out", "OUT"], "or give a folder"),
        (["train", "mnist", "--data", "EMPTY", "--out", "OUT"], "a folder for each label"),
        (["train", "mnist", "--set", "image.patch=5", "--out", "OUT"], "does not divide size"),
    ],
)
def test_mistakes_are_one_line(words, reason, image_run, tmp_path, capsys, monkeypatch):
    write_wav(tmp_path / "a.wav", np.ones(400, np.int16), 8000)
    (tmp_path / "empty").mkdir()
    names = {
        "RUN": image_run, "WAV": tmp_path / "a.wav", "EMPTY": tmp_path / "empty",
        "OUT": tmp_path / "out",
    }  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["attendo", *(str(names.get(word, word)) for word in words)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    assert len(errors) == 1
    assert reason in errors[0]


def test_speech_is_recognised_from_a_file(tmp_path, capsys):
    settings = {**TINY, "data.builtin": 40, "data.hold_out": 4, "training.steps": 4}
    settings |= {"training.batch_tokens": 512, "training.validate_every": 2, "augmentation.join": 3}
    call("train", "spoken-digit-strings", "--out", tmp_path / "run", *options(settings))
    capsys.readouterr()
    sound = (32767 * draw_sound("low high-1", 16000)).astype(np.int16)
    write_wav(tmp_path / "a.wav", sound, 16000)
    call("predict", tmp_path / "run", tmp_path / "a.wav", "--json")
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"recording", "text", "score"}
    for name in ("map.png", "page.html"):
        call("look", tmp_path / "run", tmp_path / "a.wav", "--out", tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    # What is sampled does not depend on the batch that a recording is in.
    bundle = load_bundle(tmp_path / "run", CPU)
    names = [f"drawn:{words}-{seed}" for words in ("low", "low high buzz") for seed in range(6)]
    alone, together = (
        bundle.task.predict(bundle.model, names, options, CPU)
        for options in (DecodingConfig(strategy="sample", batch_size=n) for n in (1, 8))
    )
    assert [one.text for one in alone] == [one.text for one in together]
    long = tmp_path / "long.wav"
    write_wav(long, np.zeros(8000 * 9, np.int16), 8000)
    with pytest.raises(DataError, match=r"longer than 6\.4 seconds"):
        call("predict", tmp_path / "run", long)


# The server


def data_url(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{b64encode(content).decode()}"


@pytest.mark.skipif(not DRIVER, reason="chromedriver is not installed")
def test_a_file_on_the_page_is_classified_with_its_attention(image_run, shapes, tmp_path):
    file = shapes / "folder" / "cross" / "cross-1.png"
    (tmp_path / "no.png").write_text("not an image")
    with serving(image_run) as address, browsing() as driver:
        status, found, _ = send(
            address, "/api/look", {"source": data_url(file.read_bytes(), "image/png")}
        )
        assert status == 200
        assert found["target"] in SHAPES
        assert (found["picture"]["rows"], found["picture"]["columns"]) == (7, 7)
        for source, status in (
            (str(file), 400),
            ("data:image/png;base64,AAAA", 400),
            ("x" * 5_000_000, 413),
        ):
            found_status, answer, _ = send(address, "/api/look", {"source": source})
            assert found_status == status
            assert "\n" not in answer["error"]
        emulate(driver, 390, 844, "light")
        driver.get(address)
        wait = WebDriverWait(driver, 20)
        wait.until(lambda _: driver.find_elements("css selector", "input[type=file][accept]"))
        chooser = driver.find_element("css selector", "input[type=file]")
        chooser.send_keys(str(file))
        wait.until(lambda _: driver.find_element("css selector", ".result-text").text in SHAPES)
        wait.until(
            lambda _: driver.find_element("css selector", ".picture-frame img").is_displayed()
        )
        assert driver.execute_script("return document.documentElement.scrollWidth") == 390
        chooser.send_keys(str(tmp_path / "no.png"))
        wait.until(
            lambda _: "not an image" in driver.find_element("css selector", ".result-text").text
        )


def test_recipes_of_media_are_complete() -> None:
    for name in ("mnist", "spoken-digits", "spoken-digit-strings", "shapes"):
        assert isinstance(load_recipe(name), Recipe)
