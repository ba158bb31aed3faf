"""Recordings as sequences: log-mel spectrograms, and convolutions over their frames.

A grid holds a recording as samples, some frames of them at each position. Frames reach beyond their
position, but never beyond their own recording: in a packed row a recording is embedded as if it
were alone.
"""

import math

import torch
from jaxtyping import Float, Int, Int16
from torch import Tensor, nn
from torch.nn import functional

from attendo.config import AudioConfig, AugmentationConfig
from attendo.nn.embedding import GridEmbedding
from attendo.nn.grid import Grid, segment_means

FLOOR = 0.02
"""Added to the power of a band before its logarithm, 40 dB below that of speech of volume 1: most
noise behind a recording is below."""

QUIET = 1e-6
"""Added to the volume: silence is not divided by zero."""

CENTRE, SPREAD = 1.5, 3.0
"""Typical mean of the logarithms in speech of volume 1, and their deviation from it."""

SILENT = 0.1
"""Power of a frame that counts half in the mean of a band, as a share of the mean power."""

PRIOR = 60
"""Loud frames with which the mean of a band counts as much as the typical one: 0.6 seconds."""

CURVES = 5
"""Cosines over the bands of which the random curve of an equaliser is the sum."""

REACH = 2
"""Frames of each neighbouring position that a position is embedded with."""


def beside(
    x: Float[Tensor, "R W D"], segments: Int[Tensor, "R W"], offset: int
) -> Float[Tensor, "R W D"]:
    """Return what the next (1) or the previous (-1) position holds, zeros in another segment."""
    ends = slice(1 + offset, x.shape[1] + 1 + offset)
    moved = functional.pad(x, (0, 0, 1, 1))[:, ends]
    is_same = functional.pad(segments, (1, 1), value=-1)[:, ends] == segments
    return torch.where(is_same[..., None], moved, 0)


def mel_filters(audio: AudioConfig) -> Float[Tensor, "bins mels"]:
    """Return triangular filters, evenly spaced on the mel scale."""
    n_fft, highest = fft_size(audio), mel(audio.rate / 2)
    corners = 700 * (10 ** (torch.linspace(0, highest, audio.n_mels + 2).double() / 2595) - 1)
    bins = torch.linspace(0, audio.rate / 2, n_fft // 2 + 1).double()[:, None]
    left, centre, right = corners[:-2], corners[1:-1], corners[2:]
    rising, falling = (bins - left) / (centre - left), (right - bins) / (right - centre)
    return torch.minimum(rising, falling).clamp(min=0).float()


def mel(frequency: float) -> float:
    """Return a frequency on the mel scale (O'Shaughnessy 1987)."""
    return 2595 * math.log10(1 + frequency / 700)


def fourier_waves(audio: AudioConfig) -> Float[Tensor, "window waves"]:
    """Return cosines and sines under a Hann window: a Fourier transform as one matrix product.

    The matrix is small, and unlike a fast transform it needs no complex numbers, which are not
    compiled.
    """
    n_fft = fft_size(audio)
    places, bins = torch.arange(audio.window).double(), torch.arange(n_fft // 2 + 1).double()
    angles = places[:, None] * bins * (2 * math.pi / n_fft)
    window = torch.hann_window(audio.window, dtype=torch.float64)[:, None]
    return torch.cat((window * angles.cos(), window * angles.sin()), dim=1).float()


def fft_size(audio: AudioConfig) -> int:
    """Return the smallest power of two that holds a window."""
    return 1 << (audio.window - 1).bit_length()


def volume(
    sound: Float[Tensor, "R W samples"], segments: Int[Tensor, "R W"]
) -> Float[Tensor, "R W 1"]:
    """Return how loud each recording is, at each of its positions: silence in it does not count.

    That is the root of its power, in a mean in which each position counts by its own power.
    """
    power = sound.square().mean(dim=-1, keepdim=True)
    mean = segment_means(power, segments)
    return (segment_means(power.square(), segments) / (mean + QUIET**2)).sqrt()


def means_of_bands(
    logs: Float[Tensor, "R W frames mels"], segments: Int[Tensor, "R W"]
) -> Float[Tensor, "R W mels"]:
    """Return the mean of each band over a recording, in which silence hardly counts.

    Of much speech it is that of a voice and a microphone, and says nothing about the words. Of a
    single word it is half of what tells it from others; so the shorter a recording is, the nearer
    is the result to a typical mean (the estimate of highest probability, given that as a prior).
    """
    power = logs.exp().sum(dim=-1, keepdim=True)
    mean = segment_means(power.mean(dim=2), segments)[:, :, None]
    weights = power / (power + SILENT * mean)
    n_loud = _totals(segments, weights.sum(dim=(2, 3)))[..., None]
    own = segment_means((weights * logs).mean(dim=2), segments)
    own = own / segment_means(weights.mean(dim=2), segments)
    return torch.lerp(torch.full_like(own, CENTRE), own, n_loud / (n_loud + PRIOR))


class LogMel(nn.Module):
    """Samples to the logarithms of the power in mel bands, less their mean over the recording.

    All recordings have the same volume before. Silence at their ends changes neither.
    """

    def __init__(self, audio: AudioConfig) -> None:
        super().__init__()
        self.audio = audio
        self.waves: Tensor
        self.filters: Tensor
        self.register_buffer("waves", fourier_waves(audio), persistent=False)
        self.register_buffer("filters", mel_filters(audio), persistent=False)

    def forward(
        self, samples: Float[Tensor, "R W samples"], segments: Int[Tensor, "R W"]
    ) -> Float[Tensor, "R W frames mels"]:
        """Return the frames of each position."""
        with torch.autocast(samples.device.type, enabled=False):
            samples = samples.float()
            samples = samples / (volume(samples, segments) + QUIET)
            logs = self.logarithms(samples, segments)
            levels: Tensor = (logs - means_of_bands(logs, segments)[:, :, None]) / SPREAD
            return levels

    def logarithms(
        self, samples: Float[Tensor, "R W samples"], segments: Int[Tensor, "R W"]
    ) -> Float[Tensor, "R W frames mels"]:
        """Return the same before the mean is subtracted; a frame has its hop in its middle."""
        n_beyond = self.audio.window - self.audio.hop
        n_before = n_beyond // 2
        before = beside(samples, segments, -1)[..., samples.shape[-1] - n_before :]
        after = beside(samples, segments, 1)[..., : n_beyond - n_before]
        wave = torch.cat((before, samples, after), dim=-1)
        frames = wave.unfold(-1, self.audio.window, self.audio.hop)
        cosines, sines = (frames @ self.waves).square().chunk(2, dim=-1)
        power = cosines + sines
        logarithms: Tensor = (power @ self.filters + FLOOR).log()
        return logarithms


class AudioEmbedding(GridEmbedding):
    """Samples to vectors, through a log-mel spectrogram and two convolutions over frames.

    In training it adds noise, changes the sound and hides times and bands, as a recipe says.
    """

    def __init__(
        self,
        audio: AudioConfig,
        augmentation: AugmentationConfig,
        d_model: int,
        *,
        class_token: bool = False,
    ) -> None:
        super().__init__()
        self.augmentation = augmentation
        self.class_token = nn.Parameter(0.02 * torch.randn(d_model)) if class_token else None
        self.spectrogram = LogMel(audio)
        self.convolutions = nn.Sequential(
            nn.Conv1d(audio.n_mels, d_model, 3),
            nn.GELU(),
            nn.Conv1d(d_model, d_model, 3),
            nn.GELU(),
        )
        self.projection = nn.Linear(audio.frames * d_model, d_model)

    def embed(self, grid: Grid) -> Float[Tensor, "R T D"]:
        """Return the embeddings of the positions of a grid."""
        embedded: Tensor = self(grid.ids, grid.segments)
        if self.class_token is None:
            return embedded
        is_first = (grid.positions == 0)[..., None]
        return torch.where(is_first, self.class_token.to(embedded.dtype), embedded)

    def forward(
        self, samples: Int16[Tensor, "R W samples"], segments: Int[Tensor, "R W"]
    ) -> Float[Tensor, "R W D"]:
        """Embed samples; 32,768 is full scale."""
        sound = samples.float() / 32768
        if self.training:
            sound = add_noise(sound, segments, self.augmentation.noise)
        mels = self.spectrogram(sound, segments)
        if self.training:
            mels = warp(mels, segments, self.augmentation.warp, self.spectrogram.audio)
            mels = equalize(mels, segments, self.augmentation.equalizer)
            mels = hide(mels, segments, self.augmentation)
        return self._convolve(mels, segments)

    def _convolve(
        self, mels: Float[Tensor, "R W frames mels"], segments: Int[Tensor, "R W"]
    ) -> Float[Tensor, "R W D"]:
        shape, flat = mels.shape, mels.flatten(2)
        before, after = (beside(flat, segments, offset).view(shape) for offset in (-1, 1))
        near = torch.cat((_last(before), mels, _first(after)), dim=2)
        found = self.convolutions(near.flatten(0, 1).mT)  # (R·W, D, frames)
        embedded: Tensor = self.projection(found.flatten(1)).unflatten(0, shape[:2])
        return embedded


def _first(frames: Float[Tensor, "R W F M"]) -> Float[Tensor, "R W reach M"]:
    """Return the first frames of each position; where there are fewer, zeros after them."""
    return functional.pad(frames[:, :, :REACH], (0, 0, 0, max(0, REACH - frames.shape[2])))


def _last(frames: Float[Tensor, "R W F M"]) -> Float[Tensor, "R W reach M"]:
    return functional.pad(frames[:, :, -REACH:], (0, 0, max(0, REACH - frames.shape[2]), 0))


def add_noise(
    sound: Float[Tensor, "R W samples"], segments: Int[Tensor, "R W"], most: float
) -> Float[Tensor, "R W samples"]:
    """Add white noise to each recording, up to a share of its volume; most get little of it."""
    if not most:
        return sound
    amplitudes = most * _of_each(segments)[..., None] ** 3 * volume(sound, segments)
    return sound + amplitudes * torch.randn_like(sound)


def warp(
    mels: Float[Tensor, "R W frames mels"],
    segments: Int[Tensor, "R W"],
    most: float,
    audio: AudioConfig,
) -> Float[Tensor, "R W frames mels"]:
    """Stretch the frequencies of each recording by a factor, as by the length of a vocal tract.

    Jaitly and Hinton 2013: another speaker says the same.
    """
    if not most:
        return mels
    n, highest = audio.n_mels, mel(audio.rate / 2)
    step = highest / (n + 1)
    centres = 700 * (10 ** (step * torch.arange(1, n + 1, device=mels.device) / 2595) - 1)
    factors = 1 + most * (2 * _of_each(segments) - 1)
    places = (2595 * (1 + centres * factors[..., None] / 700).log10() / step - 1).clamp(0, n - 1)
    below = places.floor().long().clamp(max=n - 2)
    share = (places - below)[:, :, None]
    index = below[:, :, None].expand_as(mels)
    return torch.lerp(mels.gather(-1, index), mels.gather(-1, index + 1), share)


def equalize(
    mels: Float[Tensor, "R W frames mels"], segments: Int[Tensor, "R W"], strength: float
) -> Float[Tensor, "R W frames mels"]:
    """Make bands of each recording louder or softer, as another voice or microphone would.

    The curve over the bands is smooth: a sum of few cosines, the slower ones the larger.
    """
    if not strength:
        return mels
    orders = torch.arange(1, CURVES + 1, device=mels.device)
    places = (torch.arange(mels.shape[-1], device=mels.device) + 0.5) / mels.shape[-1]
    cosines = (math.pi * orders[:, None] * places).cos() / orders[:, None].sqrt()
    drawn = torch.randn(len(segments), segments.shape[1] + 1, CURVES, device=mels.device)
    amplitudes = drawn.gather(1, segments[..., None].expand(-1, -1, CURVES))
    return mels + strength / SPREAD * (amplitudes @ cosines)[:, :, None]


def hide(
    mels: Float[Tensor, "R W frames mels"], segments: Int[Tensor, "R W"], config: AugmentationConfig
) -> Float[Tensor, "R W frames mels"]:
    """Set some time and some bands of each recording to the mean, 0 (Park et al. 2019)."""
    if config.time_mask:
        columns = torch.arange(segments.shape[1], device=segments.device).expand_as(segments)
        ones = torch.ones_like(segments, dtype=torch.float32)
        lengths = _totals(segments, ones)
        firsts = _totals(segments, columns * ones) / lengths - (lengths - 1) / 2
        is_hidden = _is_hidden((columns - firsts + 0.5) / lengths, segments, config.time_mask)
        mels = mels.masked_fill(is_hidden[..., None, None], 0)
    if config.band_mask:
        bands = (torch.arange(mels.shape[-1], device=mels.device) + 0.5) / mels.shape[-1]
        is_hidden = _is_hidden(bands, segments[..., None], config.band_mask)
        mels = mels.masked_fill(is_hidden[:, :, None], 0)
    return mels


def _of_each(segments: Int[Tensor, "R W"]) -> Float[Tensor, "R W"]:
    """Draw one number from 0 to 1 for each segment."""
    return torch.rand(len(segments), segments.shape[1] + 1, device=segments.device).gather(
        1, segments
    )


def _totals(segments: Int[Tensor, "R W"], values: Float[Tensor, "R W"]) -> Float[Tensor, "R W"]:
    """Return at each position the sum of the values of its segment."""
    sums = values.new_zeros(len(segments), segments.shape[1] + 1).scatter_add(1, segments, values)
    return sums.gather(1, segments)


def _is_hidden(places: Tensor, segments: Tensor, most: float) -> Tensor:
    """Return which places, from 0 to 1, are in an interval that is drawn for each segment."""
    flat = segments.flatten(1)
    width = most * _of_each(flat).view(segments.shape)
    start = (1 - width) * _of_each(flat).view(segments.shape)
    return (places >= start) & (places < start + width)
