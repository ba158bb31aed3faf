"""Search against exhaustive search, against itself in other company, and against its own rules."""

import itertools
import math
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from attendo.config import DecodingConfig
from attendo.decoding import STRATEGIES, Hypothesis, Request, reorder, search
from attendo.decoding.rows import top
from attendo.decoding.sampling import choose, keep_top_k, keep_top_p
from attendo.errors import BundleError, ConfigError
from attendo.hypotheses import STRATEGIES as NAMES
from attendo.hypotheses import rank
from attendo.specials import Specials

# Distinct primes, and ids of the special tokens that are not the usual ones.
SENTENCES, BEAMS, VOCABULARY, WIDTH = 5, 3, 13, 7
SPECIALS = Specials(pad=4, bos=2, eos=5)
DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    ),
]


class Inner(NamedTuple):
    steps: Tensor  # (B)
    nothing: None


class ToyState(NamedTuple):
    hidden: Tensor  # (B, D)
    inner: tuple[Inner, Tensor]


class Toy:
    """A random recurrent network: every prediction depends on the sentence and its whole history.

    In double precision, so that the size of a batch cannot change which of two tokens is likelier.
    """

    def __init__(self, seed: int = 0, vocabulary: int = VOCABULARY, device: str = "cpu") -> None:
        random = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=random, dtype=torch.float64).to(device)

        self.sources = normal(SENTENCES, WIDTH)
        self.embedding = normal(vocabulary, WIDTH)
        self.recurrent = normal(WIDTH, WIDTH)
        self.output = normal(WIDTH, vocabulary)
        self.device = torch.device(device)
        self.rows_seen: list[int] = []

    def start(self, sentences: list[int]) -> ToyState:
        hidden = self.sources[sentences]
        return ToyState(hidden, (Inner(torch.zeros_like(hidden[:, 0]), None), hidden[:, None]))

    def step(self, last: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
        self.rows_seen.append(len(last))
        inner, source = state.inner
        hidden = torch.tanh(state.hidden @ self.recurrent + self.embedding[last] + source[:, 0])
        logits = hidden @ self.output
        # The longer, the likelier the end: outputs of many different lengths.
        logits[:, SPECIALS.eos] += 0.3 * inner.steps - 1
        return logits, ToyState(hidden, (Inner(inner.steps + 1, None), source))

    def request(
        self,
        sentences: list[int] | None = None,
        limits: list[int] | None = None,
        prefixes: list[list[int]] | None = None,
    ) -> Request[ToyState]:
        """Return a request for the given sentences; limits and prefixes are those of all five."""
        sentences = list(range(SENTENCES)) if sentences is None else sentences
        limits = limits or [17] * SENTENCES
        prefixes = prefixes or [[] for _ in range(SENTENCES)]
        return Request(
            step=self.step,
            state=self.start(sentences),
            max_lengths=[limits[sentence] for sentence in sentences],
            numbers=sentences,
            specials=SPECIALS,
            device=self.device,
            prefixes=[prefixes[sentence] for sentence in sentences],
        )

    def score(self, sentence: int, hypothesis: Hypothesis) -> float:
        """Score an output by feeding it to the model, one token at a time."""
        wanted = [*hypothesis.ids, SPECIALS.eos] if hypothesis.finished else [*hypothesis.ids]
        state, last, score = self.start([sentence]), SPECIALS.bos, 0.0
        for token in wanted:
            logits, state = self.step(torch.tensor([last], device=self.device), state)
            score += logits.log_softmax(dim=-1)[0, token].item()
            last = token
        return score


class Stubborn:
    """A model that has one favourite continuation, whatever happened."""

    def __init__(self, after: dict[int, list[int]], vocabulary: int = VOCABULARY) -> None:
        self.logits = torch.zeros(vocabulary, vocabulary)
        for last, likely in after.items():
            for place, token in enumerate(likely):
                self.logits[last, token] = 9.0 - place

    def step(self, last: Tensor, state: None) -> tuple[Tensor, None]:
        return self.logits[last], state

    def request(self, limit: int = 40, prefix: tuple[int, ...] = ()) -> Request[None]:
        return Request(
            step=self.step, state=None, max_lengths=[limit], numbers=[0],
            specials=SPECIALS, device=torch.device("cpu"), prefixes=[list(prefix)],
        )  # fmt: skip


def options(strategy: str = "beam", **settings: float) -> DecodingConfig:
    return DecodingConfig.model_validate({"strategy": strategy, "beam": BEAMS, **settings})


def same(one: list[list[Hypothesis]], other: list[list[Hypothesis]]) -> bool:
    """Whether the same outputs were found, with scores equal up to rounding."""
    return [
        [(found.ids, found.finished, pytest.approx(found.score, abs=1e-4)) for found in sentence]
        for sentence in one
    ] == [[(found.ids, found.finished, found.score) for found in sentence] for sentence in other]


# How each strategy is run by the tests that hold for all of them.
RUNS = {
    "greedy": (options("greedy"), 1),
    "sample": (options("sample", seed=3), 2),
    "beam": (options("beam"), 2),
}


def test_every_strategy_is_held_to_the_common_rules() -> None:
    assert RUNS.keys() == STRATEGIES.keys() == NAMES.keys()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_score_is_what_scoring_the_output_again_gives(strategy: str, device: str) -> None:
    toy = Toy(device=device)
    settings, n_best = RUNS[strategy]
    settings = settings.model_copy(
        update={"no_repeat_ngram": 2, "max_loops": 2, "temperature": 0.7}
    )
    prefixes = [[7, 7, 8], [], [9], [1, 3], []]
    found = search(toy.request(limits=[17, 17, 17, 6, 2], prefixes=prefixes), settings, n_best)
    for sentence, hypotheses in enumerate(found):
        assert len(hypotheses) == n_best
        for hypothesis in hypotheses:
            # The search adds up in single precision.
            assert hypothesis.score == pytest.approx(toy.score(sentence, hypothesis), abs=1e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_sentence_alone_gets_what_it_gets_in_company(
    strategy: str, seed: int, device: str
) -> None:
    toy = Toy(seed, device=device)
    settings, n_best = RUNS[strategy]
    limits, prefixes = [3, 17, 9, 0, 30], [[], [7, 8], [8, 8, 9], [], [11]]
    together = search(toy.request(limits=limits, prefixes=prefixes), settings, n_best)
    backwards = search(toy.request([4, 3, 2, 1, 0], limits, prefixes), settings, n_best)
    assert same(together, backwards[::-1])
    for sentence in range(SENTENCES):
        alone = search(toy.request([sentence], limits, prefixes), settings, n_best)
        assert same(alone, [together[sentence]])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_sentences_that_are_done_leave_the_batch(strategy: str) -> None:
    toy = Toy()
    settings, n_best = RUNS[strategy]
    search(toy.request(limits=[1, 4, 8, 12, 16]), settings, n_best)
    assert toy.rows_seen == sorted(toy.rows_seen, reverse=True)
    assert toy.rows_seen[-1] < toy.rows_seen[0]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_length_limit_of_each_sentence_is_kept(strategy: str) -> None:
    settings, n_best = RUNS[strategy]
    limits = [0, 1, 2, 3, 5]
    for sentence, limit in zip(
        search(Toy().request(limits=limits), settings, n_best), limits, strict=True
    ):
        assert all(len(found.ids) <= limit for found in sentence)
        assert all(found.finished or len(found.ids) == limit for found in sentence)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_output_as_long_as_the_limit_may_still_end(strategy: str) -> None:
    settings, _ = RUNS[strategy]
    settings = settings.model_copy(update={"temperature": 0.1})
    model = Stubborn({2: [7], 7: [8], 8: [5]})
    [[exact]] = search(model.request(limit=2), settings)
    [[cut]] = search(model.request(limit=1), settings.model_copy(update={"beam": 1}))
    assert (exact.ids, exact.finished) == ((7, 8), True)
    assert (cut.ids, cut.finished) == ((7,), False)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_pad_and_bos_are_never_produced_even_when_they_are_likeliest(strategy: str) -> None:
    settings, n_best = RUNS[strategy]
    model = Stubborn({token: [SPECIALS.pad, SPECIALS.bos, 7, 5] for token in range(VOCABULARY)})
    [hypotheses] = search(model.request(), settings, n_best)
    assert all(not set(found.ids) & set(SPECIALS) for found in hypotheses)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_empty_output_is_allowed(strategy: str) -> None:
    settings, _ = RUNS[strategy]
    settings = settings.model_copy(update={"temperature": 0.1, "alpha": 0.0})
    [[found]] = search(Stubborn({2: [5]}).request(), settings)
    assert (found.ids, found.finished) == ((), True)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_forced_prefixes_of_different_lengths_are_honoured(strategy: str) -> None:
    settings, n_best = RUNS[strategy]
    # What the rules would forbid is allowed where it is forced.
    settings = settings.model_copy(update={"no_repeat_ngram": 1, "max_loops": 2})
    prefixes = [[7, 7, 7, 7, 7], [], [9], [1, 3, 1, 3], [6, 6]]
    free = search(Toy().request(), settings, n_best)
    forced = search(Toy().request(prefixes=prefixes), settings, n_best)
    for hypotheses, prefix in zip(forced, prefixes, strict=True):
        for found in hypotheses:
            assert list(found.ids[: len(prefix)]) == prefix
    assert same([forced[1]], [free[1]])
    assert any(
        len(found[0].ids) > len(prefix) for found, prefix in zip(forced, prefixes, strict=True)
    )


@pytest.mark.parametrize("strategy", ["greedy", "beam"])
def test_forcing_the_beginning_of_the_best_output_changes_nothing(strategy: str) -> None:
    # Loops are counted from the end of the prefix, so they must not be counted here.
    settings = options(strategy, beam=1, max_loops=0)
    toy = Toy()
    free = search(toy.request(), settings)
    prefixes = [list(found.ids[:2]) for [found] in free]
    assert same(search(toy.request(prefixes=prefixes), settings), free)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_ngram_is_produced_twice(strategy: str, n: int) -> None:
    settings, n_best = RUNS[strategy]
    settings = settings.model_copy(update={"no_repeat_ngram": n, "max_loops": 0})
    # Left alone it goes 7 8 7 8 ... and then 7 7 8 ..., for ever.
    model = Stubborn({2: [7], 7: [8, 7], 8: [7, 8]})
    [hypotheses] = search(model.request(limit=20), settings, n_best)
    for found in hypotheses:
        counts = Counter(zip(*(found.ids[k:] for k in range(n)), strict=False))
        assert max(counts.values()) == 1
    if strategy == "greedy":
        assert len(hypotheses[0].ids) > n, "there was something to forbid"


@pytest.mark.parametrize("block", [1, 2, 5, 10])
@pytest.mark.parametrize("times", [2, 3, 4])
def test_a_loop_is_ended_after_the_given_number_of_times(block: int, times: int) -> None:
    cycle = [0, 1, 3, 6, 7, 8, 9, 10, 11, 12][:block]
    model = Stubborn(
        {2: [cycle[0]], **{a: [b] for a, b in zip(cycle, cycle[1:] + cycle[:1], strict=True)}}
    )
    request = model.request(limit=60)
    [[ended]] = search(request, options("greedy", max_loops=times))
    assert ended.ids == tuple(cycle * times)
    assert ended.finished
    [[endless]] = search(request, options("greedy", max_loops=0))
    assert endless.ids == tuple((cycle * 60)[:60])
    assert not endless.finished


def test_a_loop_in_the_forced_prefix_does_not_count() -> None:
    model = Stubborn({2: [7], 7: [7]})
    [[found]] = search(model.request(prefix=(7,) * 6), options("greedy", max_loops=4))
    assert found.ids == (7,) * 10


def test_models_that_make_everything_impossible_get_cut_hypotheses() -> None:
    class Dead(Stubborn):
        def step(self, last: Tensor, state: None) -> tuple[Tensor, None]:
            logits, state = super().step(last, state)
            # After token 7 only pad has any probability.
            impossible = (last == 7)[:, None] & (torch.arange(VOCABULARY) != SPECIALS.pad)
            return logits.masked_fill(impossible, -torch.inf), state

    model = Dead({token: [7] for token in range(VOCABULARY)})
    for strategy in STRATEGIES:
        [[found]] = search(model.request(), options(strategy, beam=1, temperature=0.1))
        assert (found.ids, found.finished) == ((7,), False)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_token_may_be_pad_bos_and_eos(strategy: str) -> None:
    request = replace(Stubborn({2: [7], 7: [8], 8: [2]}).request(), specials=Specials(2, 2, 2))
    [[found]] = search(request, options(strategy, temperature=0.1))
    assert (found.ids, found.finished) == ((7, 8), True)


def test_no_gradients_are_kept() -> None:
    class Learning(Stubborn):
        def step(self, last: Tensor, state: None) -> tuple[Tensor, None]:
            logits, state = super().step(last, state)
            assert not logits.requires_grad
            return logits, state

    model = Learning({2: [5]})
    model.logits.requires_grad_()
    search(model.request(), options())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_sentences_give_no_results(strategy: str) -> None:
    assert search(Toy().request([]), *RUNS[strategy]) == []


def best_of_all(toy: Toy, sentence: int, limit: int, alpha: float) -> list[Hypothesis]:
    """Score every possible output and rank them."""
    text = sorted(set(range(toy.output.shape[1])) - set(SPECIALS))
    every = [
        Hypothesis(ids, 0.0, True)
        for length in range(limit + 1)
        for ids in itertools.product(text, repeat=length)
    ]
    scored = [Hypothesis(one.ids, toy.score(sentence, one), True) for one in every]
    return rank(scored, alpha)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_beam_wide_enough_finds_the_best_of_all_outputs(seed: int, alpha: float) -> None:
    # Three words (6 ids less the specials), at most 3 of them: 40 outputs, fewer than 64 beams.
    toy, limit = Toy(seed, vocabulary=6), 3
    settings = options(beam=64, alpha=alpha, max_loops=0)
    found = search(toy.request(limits=[limit] * SENTENCES), settings, n_best=7)
    oracle = [best_of_all(toy, sentence, limit, alpha)[:7] for sentence in range(SENTENCES)]
    assert same(found, oracle)


@pytest.mark.parametrize("settings", [{}, {"no_repeat_ngram": 2}, {"max_loops": 2}])
@pytest.mark.parametrize("seed", range(5))
def test_a_beam_of_one_is_greedy_search(seed: int, settings: dict[str, int]) -> None:
    request = Toy(seed).request(limits=[30, 17, 9, 2, 1], prefixes=[[], [7], [], [8, 8], []])
    beam = search(request, options("beam", **settings | {"beam": 1}))
    assert beam == search(request, options("greedy", **settings))


def test_a_beam_of_one_is_greedy_search_where_many_tokens_are_equally_likely() -> None:
    class Rounded(Toy):
        def step(self, last: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
            logits, state = super().step(last, state)
            return (logits / 4).round() * 4, state

    request = Rounded().request(limits=[40] * SENTENCES)
    beam = search(request, options("beam", beam=1, max_loops=0))
    assert beam == search(request, options("greedy", max_loops=0))


def test_a_beam_of_one_is_greedy_search_where_the_score_is_large_and_the_difference_small() -> None:
    model = Stubborn({8: [5], 9: [5]})
    model.logits[7, 7] = -50.0
    model.logits[7, 9] = 1e-5  # lost in a sum with a score of a thousand
    request = model.request(prefix=(7,) * 20)
    assert search(request, options("beam", beam=1)) == search(request, options("greedy"))


def test_a_wider_beam_finds_likelier_outputs_on_average() -> None:
    def mean_score(beam: int) -> float:
        found = [
            hypotheses[0].score
            for seed in range(20)
            for hypotheses in search(Toy(seed).request(), options(beam=beam, alpha=0.0))
        ]
        return sum(found) / len(found)

    assert mean_score(1) < mean_score(3) < mean_score(11)


def test_hypotheses_are_different_and_ranked_by_normalised_score() -> None:
    alpha = 0.6
    for hypotheses in search(Toy().request(), options(beam=7, alpha=alpha), n_best=7):
        assert len({found.ids for found in hypotheses}) == 7
        penalties = [((5 + len(found.ids) + 1) / 6) ** alpha for found in hypotheses]
        ranking = [
            found.score / penalty for found, penalty in zip(hypotheses, penalties, strict=True)
        ]
        assert all(found.finished for found in hypotheses)
        assert ranking == sorted(ranking, reverse=True)


def test_what_was_cut_only_fills_up_behind_what_is_finished() -> None:
    # Ending at once is possible but poor; all the rest goes on for ever.
    model = Stubborn({2: [7, 5, 8], 7: [7], 8: [7]})
    [hypotheses] = search(model.request(limit=3), options(max_loops=0), n_best=3)
    assert [found.finished for found in hypotheses] == [True, False, False]
    assert hypotheses[0].ids == ()
    assert hypotheses[0].score < hypotheses[1].score
    assert all(len(found.ids) == 3 for found in hypotheses[1:])


def test_fewer_hypotheses_come_back_only_where_no_more_outputs_exist() -> None:
    toy = Toy(vocabulary=6)
    [*found] = search(toy.request(limits=[1] * SENTENCES), options(beam=11, max_loops=0), n_best=11)
    # Nothing, or one of the three words.
    assert [sorted(one.ids for one in hypotheses) for hypotheses in found] == [
        [(), (0,), (1,), (3,)]
    ] * SENTENCES


def frequencies(request: Request[None], draws: int, **settings: float) -> Counter[tuple[int, ...]]:
    [found] = search(request, options("sample", max_loops=0, **settings), n_best=draws)
    return Counter(hypothesis.ids for hypothesis in found)


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, 11),
        ({"temperature": 0.5}, 11),
        ({"temperature": 2.0}, 11),
        ({"top_k": 4}, 4),
        ({"top_k": 100}, 11),
        ({"top_p": 0.8}, None),
        ({"top_k": 6, "top_p": 0.8, "temperature": 1.5}, None),
    ],
)
def test_samples_have_the_frequencies_of_the_softmax(
    settings: dict[str, float], kept: int | None
) -> None:
    model, draws = Stubborn({}), 3000
    model.logits[SPECIALS.bos] = torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(1))
    logits = model.logits[SPECIALS.bos].clone()
    logits[[SPECIALS.pad, SPECIALS.bos]] = -math.inf
    expected = expected_probabilities(logits, **settings)
    counts = frequencies(model.request(limit=1), draws, **settings)
    seen = {(token,) for token in range(VOCABULARY) if expected[token]} - {(SPECIALS.eos,)}
    assert set(counts) - {()} <= seen
    assert kept is None or kept == len(expected.nonzero())
    chi_square = sum(
        (counts[() if token == SPECIALS.eos else (token,)] - draws * p) ** 2 / (draws * p)
        for token, p in enumerate(expected.tolist())
        if p
    )
    # Its mean is the number of degrees of freedom k, its variance 2k; five standard deviations.
    freedom = len(expected.nonzero()) - 1
    assert chi_square < freedom + 5 * math.sqrt(2 * freedom)


def expected_probabilities(
    logits: Tensor, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0
) -> Tensor:
    """Sample one token at a time, as a reference."""
    probabilities = (logits / temperature).softmax(dim=0)
    order = probabilities.argsort(descending=True).tolist()
    order = order[: top_k or None]
    total, kept = probabilities[order].sum().item(), []
    for token in order:
        if sum(probabilities[kept].tolist()) / total < top_p:
            kept.append(token)
    expected = torch.zeros_like(probabilities)
    expected[kept] = probabilities[kept]
    return expected / expected.sum()


def test_sampling_repeats_with_the_same_seed_and_differs_with_another() -> None:
    toy = Toy()
    first, again, other = (
        search(toy.request(), options("sample", seed=seed), n_best=3) for seed in (7, 7, 8)
    )
    assert first == again
    assert not same(first, other)
    assert all(len({found.ids for found in hypotheses}) > 1 for hypotheses in first)


def test_the_number_of_a_sentence_seeds_its_samples() -> None:
    model = Stubborn({})
    one, two = (
        search(
            Request(step=model.step, state=None, max_lengths=[9], numbers=[number],
                    specials=SPECIALS, device=torch.device("cpu")),
            options("sample"),
        )
        for number in (0, 1)
    )  # fmt: skip
    assert one != two


def test_sampling_coldly_is_greedy_search() -> None:
    toy = Toy()
    cold = search(toy.request(), options("sample", temperature=1e-3))
    assert same(cold, search(toy.request(), options("greedy")))
    assert same(search(toy.request(), options("sample", top_k=1)), cold)
    assert same(search(toy.request(), options("sample", top_p=1e-9)), cold)


def test_top_k_keeps_exactly_k_and_top_p_the_fewest_where_all_are_equal() -> None:
    logits = torch.zeros(2, 10)
    assert keep_top_k(logits, 3).isfinite().tolist() == [[True] * 3 + [False] * 7] * 2
    assert keep_top_p(logits, 0.25).isfinite().tolist() == [[True] * 3 + [False] * 7] * 2


def test_top_p_keeps_no_more_once_the_probability_is_reached_exactly() -> None:
    assert keep_top_p(torch.zeros(1, 4), 0.5).isfinite().tolist() == [[True, True, False, False]]


@pytest.mark.parametrize("number", [0.0, 1 - 2**-53])
def test_the_extreme_random_numbers_do_not_choose_what_is_forbidden(number: float) -> None:
    log_probs = torch.tensor([[-math.inf, -0.7, -0.7, -math.inf]])
    [token] = choose(log_probs, torch.tensor([number], dtype=torch.float64), options("sample"))
    assert log_probs[0, token].isfinite()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("values", [2, 5, 1000])
def test_top_is_the_beginning_of_a_stable_sort(values: int, device: str) -> None:
    random = torch.Generator().manual_seed(values)
    scores = torch.randint(values, (19, 101), generator=random).float().to(device)
    scores[0, 11:] = -torch.inf
    best, places = top(scores, 11)
    expected = scores.sort(dim=1, descending=True, stable=True)
    assert torch.equal(best, expected.values[:, :11])
    assert torch.equal(places, expected.indices[:, :11])


def test_reorder_takes_rows_of_every_tensor_and_keeps_the_structure() -> None:
    state = Toy().start([0, 1, 2])
    index = torch.tensor([2, 0, 0, 1])
    taken = reorder((state, None), index)
    assert isinstance(taken[0], ToyState)
    assert isinstance(taken[0].inner[0], Inner)
    assert taken[1] is None
    assert torch.equal(taken[0].hidden, state.hidden[index])
    assert torch.equal(taken[0].inner[1], state.inner[1][index])


class SharingState(NamedTuple):
    own: ToyState
    source: Tensor  # (B, 1, D), one row a sentence

    @property
    def shared(self) -> tuple[str, ...]:
        return ("source",)


class SharingToy(Toy):
    """The same network, whose hypotheses have only one source for each sentence."""

    def __init__(self) -> None:
        super().__init__()
        self.sources_seen: list[int] = []

    def start(self, sentences: list[int]) -> SharingState:
        own = super().start(sentences)
        return SharingState(own, own.inner[1])

    def step(self, last: Tensor, state: SharingState) -> tuple[Tensor, SharingState]:
        self.sources_seen.append(len(state.source))
        source = state.source.repeat_interleave(len(last) // len(state.source), dim=0)
        own = state.own._replace(inner=(state.own.inner[0], source))
        logits, own = super().step(last, own)
        return logits, SharingState(own, state.source)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_hypotheses_share_is_not_copied_for_each_and_changes_nothing(strategy: str) -> None:
    settings, n_best = RUNS[strategy]
    limits = [1, 4, 8, 12, 16]
    toy = SharingToy()
    assert same(
        search(toy.request(limits=limits), settings, n_best),
        search(Toy().request(limits=limits), settings, n_best),
    )
    if strategy == "beam":
        assert [n * settings.beam for n in toy.sources_seen] == toy.rows_seen
    assert toy.sources_seen[-1] < toy.sources_seen[0]


def test_reorder_refuses_what_is_no_state() -> None:
    with pytest.raises(TypeError, match="holds a list; build states from tensors"):
        reorder([torch.zeros(2)], torch.tensor([0]))


@pytest.mark.parametrize(
    ("settings", "n_best", "message"),
    [
        (options("bean"), 1, "strategy = 'bean' is not known; did you mean 'beam'"),
        (options("beam"), 4, "n_best = 4 is more than decoding.beam = 3"),
        (options("greedy"), 2, "n_best = 2, but greedy search finds one"),
        (options("sample"), 0, "n_best = 0: request at least one"),
    ],
)
def test_what_cannot_be_searched_is_refused(
    settings: DecodingConfig, n_best: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        search(Toy().request(), settings, n_best)


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        ([7] * 4, "prefix of sentence 0 has 4 tokens, but at most 3 are allowed"),
        ([7, SPECIALS.eos], r"prefix of sentence 0 holds the special tokens \[5\]"),
    ],
)
def test_a_prefix_that_cannot_be_forced_is_refused(prefix: list[int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Stubborn({}).request(limit=3, prefix=tuple(prefix))


# -- logits that are not finite ------------------------------------------------------------------


class Breaking(Toy):
    """A model whose logits are not finite from some step on, in one sentence."""

    def __init__(self, value: float, *, at: int, everywhere: bool) -> None:
        super().__init__()
        self.value, self.at, self.everywhere = value, at, everywhere

    def step(self, last: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
        logits, state = super().step(last, state)
        _, source = state.inner
        is_chosen = (source[:, 0] == self.sources[3]).all(dim=1) & (state.inner[0].steps > self.at)
        rows = is_chosen.nonzero().squeeze(1)
        logits[rows[:, None], torch.arange(VOCABULARY if self.everywhere else 1)] = self.value
        return logits, state


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("at", [0, 2])
@pytest.mark.parametrize(
    ("value", "everywhere"),
    [(math.nan, False), (math.nan, True), (math.inf, False), (-math.inf, True)],
)
@pytest.mark.parametrize("prefix", [[], [7, 8, 9, 6]], ids=["", "forced"])
def test_logits_that_are_not_finite_are_refused(name, at, value, everywhere, prefix):
    settings, n_best = RUNS[name]
    model = Breaking(value, at=at, everywhere=everywhere)
    model.output[:, SPECIALS.eos] -= 9  # long enough to get there
    request = model.request(prefixes=[prefix] * SENTENCES)
    with pytest.raises(BundleError, match="the model's output is not finite"):
        search(request, settings, n_best)
    others = [sentence for sentence in range(SENTENCES) if sentence != 3]
    assert len(search(model.request(others), settings, n_best)) == len(others)


@pytest.mark.parametrize("name", RUNS)
def test_a_token_may_have_no_probability_at_all(name):
    settings, n_best = RUNS[name]
    model = Breaking(-math.inf, at=0, everywhere=False)
    assert len(search(model.request(), settings, n_best)) == SENTENCES
