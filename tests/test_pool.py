"""Search in slots against the plain searches, which define the results."""

import gc
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from attendo.config import DecodingConfig, TransformerConfig
from attendo.data.packing import pad_grid
from attendo.decoding import Hypothesis, Pools, Request, pool, search, search_all
from attendo.engines import recorded
from attendo.errors import BundleError, ConfigError
from attendo.models import CausalLM, Seq2Seq, build_model
from attendo.nn import fast
from attendo.nn.fixed import Size
from test_decoding import (
    BEAMS,
    RUNS,
    SENTENCES,
    SPECIALS,
    Breaking,
    Toy,
    ToyState,
    options,
    same,
)


class Remembering:
    """A decoder of fixed size for a toy: keeps the state of every position of every hypothesis."""

    def __init__(self, toy: Toy, size: Size) -> None:
        self.toy = toy
        width = toy.sources.shape[1]
        self.first = torch.zeros(size.entries, width, dtype=torch.float64, device=toy.device)
        self.hidden = self.first.new_zeros(size.slots, size.beams, size.length, width)

    def fits(self, state: ToyState) -> bool:
        return True

    def load(self, entries: Tensor, state: ToyState, rows: Tensor) -> None:
        self.first[entries] = state.hidden[rows]

    def move(self, sources: Tensor, targets: Tensor, lengths: Tensor) -> None:
        self.hidden[targets] = self.hidden[sources]

    def step(self, tokens: Tensor, lengths: Tensor, origins: Tensor, entries: Tensor) -> Tensor:
        n_slots, n_beams = tokens.shape
        slots = torch.arange(n_slots, device=tokens.device)[:, None]
        place = (lengths - 1).clamp(min=0)[:, None]
        before = self.hidden[
            slots, origins.gather(2, place[:, None].expand(-1, n_beams, 1))[..., 0], place
        ]
        source = self.first[entries][:, None].expand_as(before)
        hidden = torch.where((lengths == 0)[:, None, None], source, before).flatten(0, 1)
        times = lengths[:, None].expand(-1, n_beams).flatten().double()
        state = ToyState(hidden, (self._inner(times), source.flatten(0, 1)[:, None]))
        logits, after = self.toy.step(tokens.flatten(), state)
        beams = torch.arange(n_beams, device=tokens.device)
        self.hidden[slots, beams, lengths[:, None]] = after.hidden.view(n_slots, n_beams, -1)
        return logits

    def _inner(self, times: Tensor) -> Any:
        return type(self.toy.start([0]).inner[0])(times, None)


class Endless(Toy):
    """A toy whose outputs do not end before their limit."""

    def step(self, last: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
        logits, state = super().step(last, state)
        logits[:, SPECIALS.eos] -= 100
        return logits, state


def pools_of(toy: Toy) -> Pools:
    return Pools(lambda size, state: Remembering(toy, size))


def pooled(
    toy: Toy, requests: list[Request[ToyState]], settings: DecodingConfig, n_best: int
) -> list[list[Hypothesis]]:
    return in_order(search_all(requests, settings, n_best, pools_of(toy)))


def in_order(parts: Iterator[dict[int, list[Hypothesis]]]) -> list[list[Hypothesis]]:
    found: dict[int, list[Hypothesis]] = {}
    for part in parts:
        assert not found.keys() & part.keys()
        found |= part
    return [found[place] for place in range(len(found))]


DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

SETTINGS: dict[str, dict[str, float]] = {
    "": {},
    "loops": {"max_loops": 2},
    "single": {"max_loops": 1},
    "no rule": {"max_loops": 0},
    "bigrams": {"no_repeat_ngram": 2},
    "unigrams": {"no_repeat_ngram": 1},
    "top": {"top_k": 4, "top_p": 0.8, "temperature": 1.5},
    "penalty": {"alpha": 2.0},
}


@pytest.mark.parametrize(
    ("name", "n_slots"), [*((name, 2) for name in SETTINGS), ("", 1), ("", 8), ("bigrams", 8)]
)
@pytest.mark.parametrize("strategy", RUNS)
def test_slots_find_what_the_plain_search_finds(strategy: str, name: str, n_slots: int) -> None:
    settings = options(strategy, seed=3, batch_size=n_slots, **SETTINGS[name])
    n_best = RUNS[strategy][1]
    limits = [17, 0, 3, 9, 5]
    prefixes: list[list[int]] = [[], [], [7], [8, 8, 8, 8], [6, 7]]
    toy = Toy(len(name))
    requests = [
        toy.request(limits=limits, prefixes=prefixes),
        toy.request([2, 0]),
        toy.request([]),
        toy.request([4, 3, 1], limits=[8] * SENTENCES),
    ]
    plain = [found for request in requests for found in search(request, settings, n_best)]
    assert same(plain, pooled(toy, requests, settings, n_best))


@pytest.mark.skipif(
    not fast.AVAILABLE or DEVICE == "cuda", reason="needs Triton's interpreter, without a GPU"
)
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # of the interpreter
@pytest.mark.parametrize(
    ("strategy", "name"),
    [("greedy", ""), ("greedy", "single"), ("beam", "loops"), ("beam", "no rule")],
)
def test_kernels_find_what_the_plain_search_finds(strategy, name, monkeypatch) -> None:
    from attendo.decoding import advance, kernels

    monkeypatch.setattr(advance, "_updates", lambda logits: kernels)
    monkeypatch.setattr(kernels, "COLUMNS", 8)
    settings = options(strategy, batch_size=4, **SETTINGS[name])
    toy = Toy(len(name))
    requests = [
        toy.request(limits=[17, 0, 3, 9, 5], prefixes=[[], [], [7], [8, 8, 8, 8], [6, 7]]),
        toy.request([2], limits=[12] * SENTENCES),
    ]
    n_best = BEAMS if strategy == "beam" else 1
    plain = [found for request in requests for found in search(request, settings, n_best)]
    assert same(plain, pooled(toy, requests, settings, n_best))


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # of the interpreter
@pytest.mark.parametrize("has_kernels", [False, True])
@pytest.mark.parametrize("strategy", ["greedy", "beam"])
def test_a_rehearsal_in_the_middle_of_a_search_changes_nothing(
    strategy, has_kernels, monkeypatch
) -> None:
    """Before steps are recorded for a smaller number of slots, they are rehearsed."""
    if has_kernels and (not fast.AVAILABLE or DEVICE == "cuda"):
        pytest.skip("needs Triton's interpreter, without a GPU")

    def recorded(self: pool.Pool, step: Any) -> Any:
        self._rehearse(step)
        return step

    monkeypatch.setattr(pool.Pool, "_recorded", recorded)
    if has_kernels:
        from attendo.decoding import advance, kernels

        monkeypatch.setattr(advance, "_updates", lambda logits: kernels)
        monkeypatch.setattr(kernels, "COLUMNS", 8)
    toy = Endless(3)
    prefixes = [[], [], [7, 8, 6, 7, 8, 6, 7, 8, 7, 7, 6, 6], [8] * 11, []]
    requests = [
        toy.request(limits=[2, 3, 20, 20, 20], prefixes=prefixes),
        toy.request(limits=[2, 3, 20, 20, 20]),
    ]
    for max_loops in (0, 2):
        settings = options(strategy, batch_size=8, max_loops=max_loops)
        plain = [found for request in requests for found in search(request, settings, 1)]
        assert same(plain, pooled(toy, requests, settings, 1))


def test_more_hypotheses_than_tokens() -> None:
    toy = Toy(vocabulary=6)
    settings = options("beam", beam=7)
    assert same(search(toy.request(), settings, 7), pooled(toy, [toy.request()], settings, 7))


def test_longer_sentences_than_the_pool_holds_get_another_one() -> None:
    toy = Endless()
    requests = [toy.request([0, 1], limits=[5] * 5), toy.request([2, 3], limits=[90] * 5)]
    settings = options("greedy", max_loops=0, batch_size=2)
    found = pooled(toy, requests, settings, 1)
    assert [len(best.ids) for (best,) in found] == [5, 5, 90, 90]
    assert same([best for one in requests for best in search(one, settings, 1)], found)


def test_a_pool_is_used_again_and_knows_nothing_of_the_search_before() -> None:
    toy = Toy()
    pools = pools_of(toy)
    settings = options("beam", batch_size=4)
    first = in_order(search_all([toy.request()], settings, 1, pools))
    made = list(pools.free)
    assert in_order(search_all([toy.request()], settings, 1, pools)) == first
    assert pools.free == made
    stopped = search_all([toy.request()], settings, 1, pools)
    next(stopped)
    del stopped  # a reader who stops early
    assert in_order(search_all([toy.request()], settings, 1, pools)) == first


def test_two_searches_at_once_have_two_pools() -> None:
    toy = Toy()
    pools = pools_of(toy)
    settings = options("greedy", batch_size=2)
    one, other = (search_all([toy.request()], settings, 1, pools) for _ in range(2))
    both = list(zip(one, other, strict=True))
    assert all(left == right for left, right in both)
    assert len(pools.free) == 2


def test_few_sentences_at_the_end_move_together(monkeypatch) -> None:
    toy = Endless()
    widths: list[int] = []
    run_steps = pool.Pool._run_steps

    def noted(self: pool.Pool, count: int) -> None:
        widths.append(self.width)
        run_steps(self, count)

    monkeypatch.setattr(pool.Pool, "_run_steps", noted)
    monkeypatch.setattr(pool, "LAST_PERIOD", 1)
    settings = options("beam", batch_size=8, max_loops=0)
    request = toy.request(limits=[1, 2, 3, 4, 40])
    assert same(search(request, settings, BEAMS), pooled(toy, [request], settings, BEAMS))
    assert widths[0] == 8
    assert widths[-1] == 1
    assert widths == sorted(widths, reverse=True)


@pytest.mark.parametrize("strategy", ["greedy", "sample"])
def test_tokens_are_announced_and_can_end_a_sentence(strategy: str) -> None:
    toy = Endless(1)

    def watched(told: list[tuple[int, int]]) -> Request[ToyState]:
        def on_token(sentence: int, token: int) -> bool:
            told.append((sentence, token))
            return sum(number == sentence for number, _ in told) == 4

        request = toy.request(prefixes=[[], [7], [], [], []])
        return Request(**{**vars(request), "on_token": on_token})

    plain: list[tuple[int, int]] = []
    slots: list[tuple[int, int]] = []
    settings = options(strategy, batch_size=8)
    expected = search(watched(plain), settings, 1)
    assert same(expected, pooled(toy, [watched(slots)], settings, 1))
    assert sorted(plain) == sorted(slots)
    assert plain


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize(
    ("value", "everywhere"), [(math.nan, False), (math.inf, False), (-math.inf, True)]
)
def test_logits_that_are_not_finite_are_refused(name: str, value: float, everywhere: bool) -> None:
    settings, n_best = RUNS[name]
    model = Breaking(value, at=2, everywhere=everywhere)
    model.output[:, SPECIALS.eos] -= 9
    with pytest.raises(BundleError, match="the model's output is not finite"):
        pooled(model, [model.request()], settings, n_best)
    others = model.request([0, 1, 2, 4])
    assert same(search(others, settings, n_best), pooled(model, [others], settings, n_best))


def test_what_cannot_be_searched_is_refused() -> None:
    toy = Toy()
    for strategy, n_best in (("greedy", 2), ("beam", BEAMS + 1), ("beam", 0)):
        with pytest.raises(ConfigError, match="n_best"):
            pooled(toy, [toy.request()], options(strategy), n_best)


def test_garbage_can_be_found_again_after_a_search() -> None:
    toy = Toy()
    searched = pools_of(toy).search([toy.request()], options("greedy"), 1)
    next(searched)
    assert gc.get_freeze_count() > 0
    searched.close()  # a reader who stops early
    assert gc.get_freeze_count() == 0


def test_gradients_are_not_switched_off_for_the_reader() -> None:
    toy = Toy()

    def modes() -> Iterator[bool]:
        for _ in search_all([toy.request()], options("greedy"), 1, pools_of(toy)):
            yield torch.is_inference_mode_enabled()

    assert not any(modes())


# -- Transformers --------------------------------------------------------------------------------

VOCABULARY = 29
BLOCK = {"d_model": 16, "n_heads": 2, "d_ff": 24, "encoder_layers": 1, "decoder_layers": 2}


def model_of(promise: type[Any], **settings: Any) -> Any:
    torch.manual_seed(2)
    config = TransformerConfig.model_validate({**BLOCK, **settings})
    vocabularies = (VOCABULARY, VOCABULARY) if promise is Seq2Seq else (VOCABULARY,)
    model = build_model(config, *vocabularies, promise=promise).eval().to(DEVICE)
    with torch.no_grad():  # long enough outputs that are not all alike
        for parameter in model.parameters():
            parameter.mul_(1.5)
    return model


@torch.inference_mode()
def requests_of(model: Any, limits: list[int], size: int) -> list[Request[Any]]:
    """Return the same sentences in requests of some size."""
    chance = torch.Generator().manual_seed(5)
    sources = [
        torch.randint(6, VOCABULARY, (1 + n % 7,), generator=chance).tolist()
        for n in range(len(limits))
    ]
    found = []
    for first in range(0, len(limits), size):
        rows = range(first, min(first + size, len(limits)))
        if isinstance(model, Seq2Seq):
            grid = pad_grid([sources[row] for row in rows], SPECIALS.pad).to(DEVICE)
            state = model.start(model.encode(grid))
        else:
            state = model.start(len(rows))
        prefixes = [sources[row][: min(limits[row], 2)] for row in rows]
        found.append(
            Request(
                step=model.step,
                state=state,
                max_lengths=[limits[row] for row in rows],
                numbers=list(rows),
                specials=SPECIALS,
                device=torch.device(DEVICE),
                prefixes=prefixes,
            )
        )
    return found


@torch.inference_mode()
def test_sources_that_are_filled_up_to_a_recorded_shape_start_as_they_are() -> None:
    model = model_of(Seq2Seq, positions="rotary")
    grid = pad_grid([[7, 8, 9], [6] * 20, [10]], SPECIALS.pad).to(DEVICE)
    padded = grid.map(recorded._pad)
    assert padded.ids.shape == (4, 32)
    plain, filled = (model.start(model.encode(one)) for one in (grid, padded))
    for one, other in zip(plain.memory, filled.memory, strict=True):
        is_token = grid.segments[:, None, :, None] > 0
        for part, more in zip(one, other, strict=True):
            torch.testing.assert_close(part * is_token, more[:3, :, :20] * is_token)
    assert torch.equal(filled.memory_mask[:3, ..., :20], plain.memory_mask)
    assert not filled.memory_mask[..., 20:].any()
    assert not filled.memory_mask[3].any()


KINDS: list[dict[str, Any]] = [
    {"positions": "sinusoidal"},
    {"positions": "learned", "norm_order": "pre"},
    {"positions": "rotary", "query_key_norm": True, "norm": "rms"},
    {"positions": "alibi", "feed_forward": "gated"},
    {"positions": "none", "attention": "additive"},
    {"norm_order": "pre", "reversible": True},
]


@pytest.mark.parametrize("promise", [Seq2Seq, CausalLM])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind.values())))
@pytest.mark.parametrize("strategy", ["greedy", "beam"])
def test_transformers_find_in_slots_what_they_find_in_the_plain_search(promise, kind, strategy):
    model = model_of(promise, **kind)
    assert model.can_be_fixed
    settings = options(strategy, batch_size=4, max_loops=3)
    limits = [9, 3, 12, 0, 5, 7, 11, 2]
    requests = requests_of(model, limits, 4)
    n_best = RUNS[strategy][1]
    plain = [found for request in requests for found in search(request, settings, n_best)]
    assert same(plain, in_order(search_all(requests, settings, n_best, Pools(model.fixed))))
    assert len({best[0].ids for best in plain}) > len(limits) // 2


def test_kinds_that_need_the_whole_sequence_are_searched_plainly() -> None:
    assert not model_of(Seq2Seq, attention="favor").can_be_fixed
