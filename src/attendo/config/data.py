"""Sections about what a model reads: data, tokens, masks, noise, trees, images and recordings."""

from typing import Literal

from pydantic import Field, model_validator

from attendo.config.base import MOST_TOKENS, Paths, Section


class DataConfig(Section):
    """Which sentence pairs are used, and where they come from."""

    source: Paths = ()
    """Text files with one source sentence per line (plain, .gz, .xz or .zst)."""
    target: Paths = ()
    """Text files with the translations, line by line."""
    pairs: Paths = ()
    """Files with both sides: .tsv (source TAB target) or .jsonl (keys "source" and "target")."""
    files: Paths = ()
    """Files with all columns of a task: .tsv or .jsonl; text alone: also .txt, .py, folders. Images
    and recordings: also folders with a folder for each label, IDX (MNIST) and NumPy files."""
    valid_source: Paths = ()
    """Source side of the validation pairs; if there are none, some training pairs are held out."""
    valid_target: Paths = ()
    """Target side of the validation pairs."""
    valid_pairs: Paths = ()
    """Validation pairs with both sides in one file."""
    valid_files: Paths = ()
    """Validation files with all columns of a task."""
    test_source: Paths = ()
    """Source side of the test pairs; if there are none, some training pairs are held out."""
    test_target: Paths = ()
    """Target side of the test pairs."""
    test_pairs: Paths = ()
    """Test pairs with both sides in one file."""
    test_files: Paths = ()
    """Test files with all columns of a task."""
    builtin: int = Field(0, ge=0, le=100_000_000)
    """Number of pairs to generate from the built-in English-German corpus, instead of files."""
    hold_out: int = Field(1000, ge=1, le=1_000_000)
    """Largest number of pairs to hold out for validation, and again for test (at most 5 % each)."""
    max_length: int = Field(128, ge=4, le=1_000_000)
    """Longest sentence to train on, in tokens of either side; also the row width of a batch."""
    max_ratio: float = Field(0.0, ge=0, le=1e6)
    """Leave out pairs whose sides differ in length by more than this factor (0: keep all)."""
    layout: Literal["packed", "padded", "stream"] = "packed"
    """packed: several texts per row; padded: one; stream: rows cut out of one endless text."""
    remember: float = Field(1.0, ge=0, le=1e6)
    """With a start: number of its training pairs to mix in for each new pair (0: none)."""

    @model_validator(mode="after")
    def _sides_go_together(self) -> "DataConfig":
        for prefix in ("", "valid_", "test_"):
            source, target = getattr(self, f"{prefix}source"), getattr(self, f"{prefix}target")
            if len(source) != len(target):
                raise ValueError(
                    f"{prefix}source names {len(source)} files and {prefix}target {len(target)}: "
                    "give one target file for each source file"
                )
        if self.builtin and (self.source or self.pairs or self.files):
            raise ValueError("builtin replaces files: give either builtin or your own files")
        return self


class TokenizerConfig(Section):
    """How text is split into tokens."""

    kind: str = "bpe"
    """Algorithm: bpe, byte-bpe, code-bpe (for programs), wordpiece, unigram, word or char."""
    vocabulary: int = Field(8000, ge=300, le=MOST_TOKENS)
    """Largest number of tokens in the vocabulary."""
    lossless: bool = False
    """Keep all white space and line ends (byte-bpe, word and char; needed for code-bpe)."""
    shared: Literal[True, False, "ids"] = True
    """One vocabulary for both languages; "ids": but each splits text in its own way (Marian)."""
    path: str | None = None
    """Existing tokenizer: tokenizer.json, vocab.txt (BERT), .model (SentencePiece) or GPT-2's."""
    target_path: str | None = None
    """Existing tokenizer for the target side (with shared = false)."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Probability of leaving out a BPE merge in training (BPE-dropout, subword regularisation)."""
    sample: int = Field(250_000, ge=1, le=10**9)
    """Number of pairs, spread over the corpus, to learn the vocabulary from."""

    @model_validator(mode="after")
    def _a_target_side_is_not_shared(self) -> "TokenizerConfig":
        if self.target_path and self.shared is True:
            raise ValueError("target_path needs shared = false: it is for a second vocabulary")
        return self


class MaskingConfig(Section):
    """Which tokens a masked language model has to guess (task = "masked-language-model")."""

    share: float = Field(0.15, ge=0.001, le=0.9)
    """Share of the tokens that are to be guessed (BERT: 0.15)."""
    whole_words: bool = False
    """Mask all tokens of a word together."""


class NoiseConfig(Section):
    """Training pairs that are changed, each time anew, to what people really write."""

    caps: float = Field(0.0, ge=0, le=1)
    """Share of the pairs with both sides in capitals."""
    title: float = Field(0.0, ge=0, le=1)
    """Share of the pairs with a capital at the beginning of every word, on both sides."""
    typos: float = Field(0.0, ge=0, le=1)
    """Share of the pairs whose source has typing errors, in about one word of seven."""
    punctuation: float = Field(0.0, ge=0, le=1)
    """Share of the pairs without punctuation at the end of both sides."""
    spaces: float = Field(0.0, ge=0, le=1)
    """Share of the pairs whose source lacks about one space of ten."""

    @property
    def total(self) -> float:
        """Return the share of pairs with noise of any kind."""
        return self.caps + self.title + self.typos + self.punctuation + self.spaces

    @model_validator(mode="after")
    def _a_pair_has_one_kind(self) -> "NoiseConfig":
        if self.total > 1:
            raise ValueError(
                f"the shares add up to {self.total:g}, but a pair has at most one kind of noise: "
                "expected at most 1"
            )
        return self


class ParsingConfig(Section):
    """What parsers predict (tasks "parsing" and "parsing-spans")."""

    tags: bool = True
    """Predict the part of speech of each word; else XX stands in its place."""
    reads_words: bool = True
    """Sequence to sequence: a decoder reads the next word for each placeholder (paper: false)."""


class ImageConfig(Section):
    """How images become sequences (task = "image-classification")."""

    size: int = Field(28, ge=4, le=1024)
    """Height and width in pixels; images of other sizes are scaled and padded to a square."""
    channels: Literal[1, 3] = 1
    """1: grey, 3: red, green and blue."""
    patch: int = Field(4, ge=1, le=256)
    """Height and width of the square of pixels that is one position; must divide size."""
    stem: Literal["patches", "convolution"] = "patches"
    """How a position is embedded: its own pixels (ViT), or by convolutions over the image."""

    @property
    def n_patches(self) -> int:
        """Return the number of patches of an image."""
        return (self.size // self.patch) ** 2

    @model_validator(mode="after")
    def _patches_fill_the_image(self) -> "ImageConfig":
        if self.size % self.patch:
            raise ValueError(f"patch = {self.patch} does not divide size = {self.size}")
        if self.stem == "convolution" and self.patch & (self.patch - 1):
            raise ValueError(
                f'stem = "convolution" halves the image again and again: patch = {self.patch} '
                "must be a power of 2"
            )
        return self


class AudioConfig(Section):
    """How recordings become sequences (audio-classification and speech-recognition)."""

    rate: int = Field(8000, ge=1000, le=192_000)
    """Samples per second; recordings of other rates are resampled."""
    window: int = Field(200, ge=16, le=16_384)
    """Samples of a frame, whose spectrum is computed (at 8,000 per second, 200 are 25 ms)."""
    hop: int = Field(80, ge=8, le=16_384)
    """Samples from the beginning of a frame to that of the next."""
    n_mels: int = Field(40, ge=4, le=512)
    """Number of mel bands of a frame."""
    frames: int = Field(4, ge=1, le=64)
    """Number of frames that convolutions join to one position."""

    @property
    def samples(self) -> int:
        """Return the number of samples of one position."""
        return self.frames * self.hop

    @model_validator(mode="after")
    def _frames_overlap(self) -> "AudioConfig":
        if not self.hop <= self.window <= 2 * self.samples:
            raise ValueError(
                f"window = {self.window}: expected from hop = {self.hop} to 2 · frames · hop = "
                f"{2 * self.samples}"
            )
        return self


class AugmentationConfig(Section):
    """Random changes of images and recordings in training; 0 switches each of them off."""

    shift: float = Field(0.0, ge=0, le=0.5)
    """Images: largest shift, as a share of the size."""
    rotation: float = Field(0.0, ge=0, le=180)
    """Images: largest rotation, in degrees."""
    scale: float = Field(0.0, ge=0, lt=1)
    """Images: largest change of height and of width, as a share of them."""
    shear: float = Field(0.0, ge=0, lt=1)
    """Images: largest shift of one edge against the opposite one, as a share of the size."""
    elastic: float = Field(0.0, ge=0, le=1)
    """Images: typical shift of a point by elastic deformation, as a share of the size."""
    erasing: float = Field(0.0, ge=0, le=1)
    """Images: probability that a random rectangle is erased."""
    mixup: float = Field(0.0, ge=0, le=10)
    """Images: α of mix-up, the mean of two images with weights drawn from Beta(α, α)."""
    speed: float = Field(0.0, ge=0, lt=1)
    """Recordings: largest change of the speed, as a share of it; the pitch changes with it."""
    noise: float = Field(0.0, ge=0, le=10)
    """Recordings: most white noise, as a share of the volume of the recording."""
    silence: float = Field(0.0, ge=0, le=60)
    """Recordings: longest silence that is added at either end, in seconds."""
    warp: float = Field(0.0, ge=0, lt=1)
    """Recordings: largest stretch of the frequencies, as by a longer or shorter vocal tract."""
    equalizer: float = Field(0.0, ge=0, le=10)
    """Recordings: how much louder or softer bands become, typically, as the logarithm of power."""
    time_mask: float = Field(0.0, ge=0, le=1)
    """Recordings: largest share of the positions that is hidden (SpecAugment)."""
    band_mask: float = Field(0.0, ge=0, le=1)
    """Recordings: largest share of the mel bands that is hidden (SpecAugment)."""
    join: int = Field(1, ge=1, le=100)
    """Speech recognition: most recordings that are joined to one, with their texts."""
    gap: float = Field(0.3, ge=0, le=60)
    """Speech recognition: longest silence between joined recordings, in seconds."""
    softer: float = Field(0.0, ge=0, le=60)
    """Speech recognition: by how many decibels a joined recording may be softer than others."""
