"""The probe of heads: its task, its models, and a verdict that follows from the numbers."""

import pytest
import torch

from attendo.config import BlockConfig
from attendo.lab.probes.exercises import answer
from attendo.lab.probes.heads import (
    N_CONTENTS,
    Heads,
    Learned,
    Looker,
    Size,
    draw_lookups,
)
from attendo.lab.probes.probe import Finding, Settings
from attendo.reporter import Reporter

ROWS, QUESTIONS, SIZE = 3, 7, Size(n_entries=5, n_lookups=2)
TINY = {"d_model": 8, "n_rows": 2, "n_steps": 3, "n_tests": 4, "n_questions": 3}


def looker(n_heads, n_layers=1):
    block = BlockConfig(d_model=12, d_ff=17, n_heads=n_heads, p_drop=0.0)
    return Looker(block, n_layers, SIZE)


def test_answers_are_the_contents_of_the_entries_named():
    exercise = draw_lookups(torch.Generator().manual_seed(1), ROWS, QUESTIONS, SIZE)
    assert exercise.target.ids.shape == (ROWS, QUESTIONS)
    for row in range(ROWS):
        held = dict(divmod(entry, N_CONTENTS) for entry in exercise.source.ids[row].tolist())
        assert sorted(held) == list(range(SIZE.n_entries))  # every name once
        questions = zip(
            exercise.target.ids[row].tolist(), exercise.answers[row].tolist(), strict=True
        )
        for question, given in questions:
            second, first = divmod(question, SIZE.n_entries)
            assert first != second
            assert given == held[first] + N_CONTENTS * held[second]


@pytest.mark.parametrize("n_layers", [1, 2])
def test_the_order_of_the_entries_does_not_matter_but_that_of_the_names_does(n_layers):
    model = looker(3, n_layers)
    exercise = draw_lookups(torch.Generator().manual_seed(1), ROWS, QUESTIONS, SIZE)
    turned = exercise._replace(source=exercise.source.map(lambda x: x.flip(1)))
    expected = answer(model, exercise)
    assert expected.shape == (ROWS, QUESTIONS, N_CONTENTS**SIZE.n_lookups)
    torch.testing.assert_close(answer(model, turned), expected)
    second, first = exercise.target.ids // SIZE.n_entries, exercise.target.ids % SIZE.n_entries
    swapped = exercise.target._replace(ids=first * SIZE.n_entries + second)
    assert (answer(model, exercise._replace(target=swapped)) - expected).abs().min() > 0


def test_a_single_head_and_many_have_the_same_weights():
    shapes = [
        {name: weight.shape for name, weight in looker(n).named_parameters()} for n in (1, 2, 6)
    ]
    assert shapes[0] == shapes[1] == shapes[2]


def test_one_probe_gives_one_finding_whatever_was_drawn_before():
    probe = Heads(n_heads=(1, 2), n_lookups=(1, 2), n_entries=3, **TINY)
    first = probe.run(Settings(seed=5), Reporter())
    torch.rand(3)
    again = probe.run(Settings(seed=5), Reporter())
    unlike = {"seconds"}
    assert first.model_dump(exclude=unlike) == again.model_dump(exclude=unlike)
    assert Finding.model_validate_json(first.model_dump_json(exclude={"verdict"})) == first
    assert probe.explore(Settings(seed=6), Reporter()).tables != first.tables
    # One row for each number of heads: of one and two lookups, and of two in two layers.
    assert [row[:3] for row in first.tables[0].rows] == [
        (lookups, layers, heads)
        for lookups, layers in (("1", "1"), ("2", "1"), ("2", "2"))
        for heads in ("1", "2")
    ]


@pytest.mark.parametrize(
    ("one_head", "others", "held"),
    [
        (0.5, 1.0, [True, True, True, True, True]),
        (1.0, 1.0, [True, True, False, True, True]),
        (0.5, 0.6, [True, True, True, False, False]),
    ],
)
def test_the_verdict_follows_from_the_numbers(one_head, others, held):
    probe = Heads()
    runs = {
        (lookups, layers, heads): [
            Learned(1.0 if lookups == 1 else one_head if heads == 1 else others, [1.0], 100)
        ]
        for lookups, layers in ((1, 1), (2, 1), (4, 1), (4, 2))
        for heads in probe.n_heads
    }
    assert [check.holds for check in probe._checks(runs)] == held


@pytest.mark.slow
def test_four_heads_learn_to_find_four_entries_and_one_does_not():
    probe = Heads(n_heads=(1, 4), n_lookups=(1, 4), n_steps=200)
    right = {row[:3]: row[3] for row in probe.explore(Settings(), Reporter()).tables[0].rows}
    assert right["4", "1", "4"] > 0.95 > right["4", "1", "1"]
