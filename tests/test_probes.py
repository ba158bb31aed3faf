"""Probes: what mathematics demands of the experiments, and that only numbers decide."""

import json
import math
import os
import sys
from dataclasses import replace
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

from attendo.cli import main
from attendo.config import BlockConfig
from attendo.errors import BundleError, ConfigError, command_line
from attendo.lab.clock import free_memory
from attendo.lab.probes import PROBES, Settings, choose_probes, run_probes
from attendo.lab.probes.exercises import (
    ASK,
    MARKED,
    PLAIN,
    accuracy,
    build,
    convolutional,
    draw_distant,
    draw_first,
    draw_latest,
    draw_recall,
    learn,
    recurrent,
    seeded,
    transformer,
    whole_rows,
)
from attendo.lab.probes.gradients import Fall, gradient_by_distance
from attendo.lab.probes.layers import (
    bytes_of,
    crossing,
    decay,
    growth,
    longest_chain,
    path_lengths,
    reach_of,
    reach_of_cell,
    seconds_of,
)
from attendo.lab.probes.order import order_error
from attendo.lab.probes.probe import Check, Finding, Panel, Rows, Series
from attendo.lab.probes.recall import Recall, Tried
from attendo.lab.probes.report import (
    compose_page,
    describe_check,
    draw_finding,
    read_finding,
    shown,
    verdict_of,
)
from attendo.lab.probes.scaling import Unscaled, spread_of
from attendo.lab.probes.table1 import KERNEL, RADIUS, TABLE, build_layer, operations
from attendo.lab.report.html import to_html
from attendo.nn.attention.base import Pattern
from attendo.nn.positions import POSITIONS
from attendo.reporter import Reporter
from attendo.specials import IGNORE
from servers import DRIVER, browsing, emulate, fits_the_screen

CPU = torch.device("cpu")
ROWS, LENGTH = 5, 13

TINY = {
    "recall": {"d_model": 8, "distances": (2, 3), "n_steps": 2, "n_guided_steps": 2, "n_tests": 4},
    "gradients": {"d_model": 8, "length": 6, "n_rows": 2, "n_steps": 1, "farthest": 3},
    "speed": {"d_model": 8, "lengths": (4, 8, 16), "n_rows": 1, "n_times": 1},
    "table1": {"length": 9, "d_model": 8, "timed_length": 8, "timed_width": 8, "n_times": 1},
    "order": {"d_model": 8, "length": 4, "n_rows": 2, "n_tests": 8, "n_steps": 1},
    "extrapolation": {"d_model": 8, "length": 4, "times": 2, "n_rows": 2, "n_steps": 1},
    "scaling": {"widths": (4, 8), "learned_widths": (4, 8), "n_steps": 1, "length": 4},
    "heads": {"d_model": 8, "n_heads": (1, 2), "n_lookups": (1, 2), "n_entries": 3, "n_steps": 2},
    "long": {
        "d_model": 8, "lengths": (8, 16, 32), "n_times": 1, "learned_length": 8,
        "learned_window": 2, "n_rows": 2, "n_tests": 2, "n_steps": 1,
    },
}  # fmt: skip
MEASURES_TIME = {"speed", "table1", "long"}


def tiny(name):
    return PROBES[name](**TINY[name])


@pytest.fixture(scope="module")
def findings():
    return {name: tiny(name).run(Settings(), Reporter()) for name in PROBES}


# -- laws ----------------------------------------------------------------------------------------


def test_growth_and_decay_are_found_again():
    x = [1.0, 2.0, 5.0, 9.0]
    assert growth(x, [3 * n**1.7 for n in x]) == pytest.approx((1.7, 1.0))
    assert decay(x, [3 * 0.8**n for n in x]) == pytest.approx((math.log(0.8), 1.0))
    assert decay(x, [1.0, 2.0, 1.0, 2.0]).r_squared < 0.9


def test_curves_cross_where_the_powers_are_equal():
    x = [10, 100, 1000]
    square, line = [n**2 for n in x], [300 * n for n in x]
    assert crossing(x, line, square) == pytest.approx(300)
    assert crossing(x, square, line) is None  # not below at the end
    assert crossing(x, [1, 1, 1], line) == 10  # below from the beginning
    # Below, above, and below again: only what stays below counts.
    assert crossing(x, [1, 100, 1], [10, 10, 10]) == pytest.approx(10**2.5)


def test_small_and_large_numbers_are_said_as_powers_of_ten():
    assert [shown(value) for value in (0.0, 0.02583, 4096, 4.8e-16, 9.7e-16, 1e-20, 2e7)] == [
        "0", "0.0258", "4,096", "5·10⁻¹⁶", "10⁻¹⁵", "10⁻²⁰", "2·10⁷",
    ]  # fmt: skip


# -- exercises -----------------------------------------------------------------------------------


def test_what_is_recalled_was_read_so_many_tokens_ago():
    exercise = draw_recall(torch.Generator().manual_seed(1), ROWS, LENGTH)
    assert exercise.source.ids.shape == (ROWS, LENGTH + 1)
    assert exercise.source.ids[:, :1].equal(exercise.answers)
    assert (exercise.answers >= MARKED).all()
    assert (exercise.source.ids[:, 1:] < MARKED).all()
    assert (exercise.target.ids == ASK).all()


def test_the_first_symbol_may_come_again():
    exercise = draw_first(torch.Generator().manual_seed(1), 300, LENGTH)
    assert exercise.answers.equal(exercise.source.ids[:, :1])
    assert (exercise.source.ids[:, 1:] == exercise.answers).any()


def test_the_latest_marked_symbol_is_the_answer():
    exercise = draw_latest(torch.Generator().manual_seed(1), ROWS, LENGTH)
    for stream, answers in zip(
        exercise.target.ids.tolist(), exercise.answers.tolist(), strict=True
    ):
        latest = None
        for symbol, answer in zip(stream, answers, strict=True):
            latest = symbol if symbol >= MARKED else latest
            assert answer == latest


def test_the_distant_symbol_is_asked_for_in_the_last_quarter_only():
    exercise = draw_distant(torch.Generator().manual_seed(1), 50, 16)
    assert (exercise.answers[:, :12] == IGNORE).all()
    is_marked = exercise.target.ids >= MARKED
    assert is_marked.sum(dim=1).eq(1).all()
    assert not is_marked[:, 0].any()
    assert not is_marked[:, 4:].any()
    marked = exercise.target.ids[is_marked]
    assert exercise.answers[:, 12:].equal(marked[:, None].expand(-1, 4))


# -- learning ------------------------------------------------------------------------------------


def test_learning_learns_ends_early_and_leaves_the_threads_alone():
    before = torch.get_num_threads()
    with seeded(1) as generator:
        model = build(transformer(16, 1))
        losses = learn(model, lambda: draw_recall(generator, 32, 3), 200, 1e-2, enough=0.1)
    assert losses[-1] < 0.1 <= min(losses[:-1])
    assert len(losses) < 200
    assert accuracy(model, draw_recall(torch.Generator().manual_seed(7), 50, 3)) > 0.95
    assert torch.get_num_threads() == before


def test_seeds_reach_no_farther_than_their_block():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    with seeded(5) as generator:
        drawn = torch.rand(2), torch.rand(2, generator=generator)
    assert torch.rand(2).equal(expected)
    with seeded(5) as generator:
        assert torch.rand(2).equal(drawn[0])
        assert torch.rand(2, generator=generator).equal(drawn[1])


# -- gradients -----------------------------------------------------------------------------------


def ids(length=LENGTH, rows=ROWS):
    return torch.randint(PLAIN, MARKED, (rows, length))


def test_the_gradient_of_a_small_recurrence_falls_by_its_weight():
    model = build(recurrent(8, "rnn")).double()
    turned, _ = torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64))
    with torch.no_grad():
        for parameter in model.encoder.parameters():
            parameter.mul_(1e-4)  # so small that tanh is a straight line
        model.encoder.weight_hh_l0.copy_(0.7 * turned)
    norms = gradient_by_distance(model, whole_rows(ids()))
    # The gradient goes through the inputs' weights last, which turn the fall into a mean.
    fall = Fall(norms)
    assert fall.r_squared > 0.99
    assert fall.factor == pytest.approx(0.7, abs=0.03)
    assert fall.left == pytest.approx(fall.factor ** (LENGTH - 2))


def test_the_gradient_is_the_norm_of_the_derivative():
    model = build(recurrent(4, "gru")).double()
    row = ids(5, rows=1)

    def last(shift):
        handle = model.source_embedding.register_forward_hook(lambda _, __, out: out + shift)
        hidden = model.encode(whole_rows(row)).hidden[0, -1]
        handle.remove()
        return hidden

    jacobian = torch.autograd.functional.jacobian(last, torch.zeros(1, 5, 4, dtype=torch.float64))
    expected = jacobian[:, 0].square().sum(dim=(0, 2)).sqrt().flip(0)  # Frobenius, by distance
    # Along random directions of 4 coordinates a quarter of the square arrives, on average.
    measured = gradient_by_distance(model, whole_rows(row.expand(4000, -1)))
    assert [2 * norm for norm in measured] == pytest.approx(expected.tolist(), rel=0.05)
    assert model.source_embedding.weight.grad is None


@pytest.mark.parametrize("n_layers", [1, 3])
def test_windows_pass_on_nothing_from_beyond_their_reach(n_layers):
    model = build(convolutional(8, LENGTH, n_layers=n_layers)).double()
    fall = Fall(gradient_by_distance(model, whole_rows(ids())))
    assert fall.reach == n_layers
    assert set(fall.norms[n_layers + 1 :]) == {0.0}


# -- the paper's table 1 -------------------------------------------------------------------------


def test_operations_are_those_of_the_formulas():
    n, d = 40, 8
    assert operations("self-attention", n, d) == 2 * 2 * n * n * d
    assert operations("recurrent", n, d) == 2 * 2 * n * d * d
    assert operations("convolutional", n, d) == 2 * KERNEL * n * d * (2 * d)  # with its gates


def test_the_way_through_a_recurrence_is_the_distance():
    n = 7
    first, then = reach_of_cell(nn.RNN(3, 3, batch_first=True), torch.randn(1, n, 3))
    assert path_lengths(first, then) == [
        [place - before + 1 if before <= place else 0 for before in range(n)] for place in range(n)
    ]


@pytest.mark.parametrize(
    ("name", "reach"), [("convolutional", KERNEL // 2), ("self-attention (restricted)", RADIUS)]
)
def test_the_way_through_windows_is_the_distance_over_the_reach(name, reach):
    n = 20
    one = reach_of(build_layer(name, 4), torch.randn(1, n, 4))
    assert path_lengths(one, one) == [
        [max(1, math.ceil(abs(place - other) / reach)) for other in range(n)] for place in range(n)
    ]


def test_attention_reaches_every_place_in_one_step():
    one = reach_of(build_layer("self-attention", 4), torch.randn(1, LENGTH, 4))
    assert one.all()
    assert {length for row in path_lengths(one, one) for length in row} == {1}


def test_chains_are_counted_through_every_branch():
    x = torch.randn(3, requires_grad=True)
    long = x.exp().sin().cos()
    assert longest_chain(x.exp() + long) == 5  # the leaf, three, and the sum
    assert longest_chain(long.sum()) == 5


@pytest.mark.parametrize("name", TABLE)
def test_only_the_recurrence_must_wait_for_each_place(name):
    chains = [
        longest_chain(build_layer(name, 4)(torch.randn(1, n, 4, requires_grad=True)))
        for n in (32, 64, 128)
    ]
    grown = chains[1] - chains[0], chains[2] - chains[1]
    assert grown == ((96, 192) if name == "recurrent" else (0, 0))


# -- order, scaling, memory ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", POSITIONS)
def test_without_positions_and_only_then_order_is_not_seen(kind):
    model = build(transformer(16, positions=kind)).double().eval()
    order = torch.randperm(LENGTH)
    error = order_error(model, ids(), lambda x: x[:, order])
    mirrored = order_error(model, ids(), lambda x: x.flip(1))
    assert (error < 1e-12) is (kind == "none")
    assert (mirrored < 1e-12) is (kind in ("none", "alibi"))


def test_plain_dot_products_have_the_variance_of_their_width():
    for d_k in (4, 64):
        block = BlockConfig(d_model=d_k, n_heads=1)
        assert spread_of(Unscaled(block), d_k, 300, 300).variance == pytest.approx(d_k, rel=0.1)


def test_unscaled_is_the_softmax_of_the_products_themselves():
    q, k, v = (torch.randn(2, 3, length, 6) for length in (5, 7, 7))
    attention = Unscaled(BlockConfig(d_model=18, n_heads=3)).eval()
    weights = (q @ k.mT).softmax(dim=-1)
    torch.testing.assert_close(attention.weights(q, k, Pattern(None)), weights)
    torch.testing.assert_close(attention(q, k, v, Pattern(None)), weights @ v)


def test_a_flat_softmax_has_the_entropy_and_the_derivative_that_it_must():
    class Flat(Unscaled):
        def scores(self, q, k, bias):
            return q.new_zeros(*q.shape[:3], k.shape[2])

    n = 9
    spread = spread_of(Flat(BlockConfig(d_model=4, n_heads=1)), 4, n, 3)
    # diag(1/n) - 1/n² has the norm √(n · 1/n² - 1/n²).
    assert spread == pytest.approx((0.0, 1.0, math.sqrt((n - 1) / n**2)))


def test_memory_is_what_the_way_back_needs_and_each_of_it_once():
    x, weight = torch.randn(5, 7, requires_grad=True), torch.randn(7, 3, requires_grad=True)
    assert bytes_of(lambda: x @ weight, CPU) == 4 * (5 * 7 + 7 * 3)
    assert bytes_of(lambda: x * x, CPU) == 4 * 5 * 7
    assert bytes_of(lambda: x + x, CPU) == 0


def test_time_is_the_fastest_of_several():
    calls = []
    x = torch.randn(3, requires_grad=True)

    def work():
        calls.append(1)
        return x * 2

    assert 0 < seconds_of(work, CPU, 4) < 1
    assert len(calls) == 5  # one to warm up
    assert x.grad is not None


# -- recall --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shares", "reach"),
    [([1.0, 1.0, 1.0], 16), ([1.0, 0.89, 1.0], 4), ([0.5, 1.0, 1.0], 0), ([0.95, 0.91, 0.1], 8)],
)
def test_a_distance_is_reached_if_all_before_it_are(shares, reach):
    probe = Recall(distances=(4, 8, 16))
    assert probe.reach([[Tried(share, 1)] for share in shares]) == reach


# -- findings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROBES)
def test_a_finding_survives_json(findings, name):
    finding = findings[name]
    assert Finding.model_validate_json(finding.model_dump_json()) == finding
    written = json.loads(json.dumps(finding.model_dump(mode="json"), allow_nan=False))
    assert Finding.model_validate(written) == finding
    assert written["verdict"] == finding.verdict


@pytest.mark.parametrize("name", PROBES)
def test_a_finding_says_what_was_done_and_shows_it(findings, name):
    finding = findings[name]
    assert finding.probe == name
    assert finding.checks
    assert finding.settings["seed"] == 1
    assert finding.settings.items() >= json.loads(json.dumps(TINY[name])).items()
    plots = draw_finding(finding)
    assert plots
    for plot in plots:
        root = ElementTree.fromstring(plot.svg)
        assert root.attrib["role"] == "img"
        assert root.attrib["aria-label"]


@pytest.mark.parametrize("name", [name for name in PROBES if name not in MEASURES_TIME])
def test_the_same_seed_gives_the_same_numbers_and_another_others(findings, name):
    torch.rand(3)  # whatever was drawn before
    again = tiny(name).run(Settings(), Reporter())
    assert again.model_dump(exclude={"seconds"}) == findings[name].model_dump(exclude={"seconds"})
    other = tiny(name).explore(Settings(seed=2), Reporter())
    assert other.panels != again.panels


def test_several_seeds_give_a_mean_and_a_range():
    series = Series.of_runs("a", [1, 2], [[1.0, 4.0], [3.0, 8.0]])
    assert (series.y, series.low, series.high) == ((2.0, 6.0), (1.0, 4.0), (3.0, 8.0))
    lacking = Series.of_runs("a", [1, 2], [[1.0, None], [3.0, 8.0]])
    assert (lacking.y, lacking.low) == ((2.0, None), ())
    finding = replace(tiny("order"), n_seeds=2).run(Settings(), Reporter())
    assert finding.settings["n_seeds"] == 2


def finding_of(*held):
    checks = tuple(Check(claim=f"Claim {n}", measured="1", holds=one) for n, one in enumerate(held))
    lines = Panel(
        title="Lines",
        x_label="x",
        y_label="y",
        series=(
            Series(label="whole", x=(1, 10, 100), y=(1, 1e-9, 1e-20)),
            Series(label="part", x=(1, 10, 100), y=(1, 2, None)),
            Series(label="nothing", x=(1, 10, 100), y=(None, None, None)),
        ),
        x_scale="log",
        y_scale="log",
        mark=5,
        mark_label="here",
    )
    return Finding(
        probe="order",
        title="A < B & C",
        claim="A is less than B",
        method="Both are weighed",
        checks=checks,
        panels=(lines,),
        tables=(Rows(caption="Numbers", columns=("a", "b"), rows=(("x", None), ("y", 1.5))),),
        notes=("Take care",),
        settings={"seed": 1},
        machine={"hardware": "a machine", "torch": "2", "device": "cuda"},
        seconds=1.0,
    )


@pytest.mark.parametrize(
    ("held", "verdict"),
    [
        ((True, True), "confirmed"),
        ((True, False), "partly confirmed"),
        ((False, False), "not confirmed"),
    ],
)
def test_the_verdict_follows_from_the_checks(held, verdict):
    finding = finding_of(*held)
    assert finding.verdict == verdict
    assert verdict_of(finding).startswith(f"{verdict}, {sum(held)} of 2")
    for check in finding.checks:
        assert (check.claim in verdict_of(finding)) is not check.holds
        assert describe_check(check).startswith("Confirmed: " if check.holds else "Not confirmed: ")


def test_a_number_that_json_could_not_hold_is_refused():
    with pytest.raises(ValueError, match="finite"):
        Series(label="a", x=(1.0,), y=(math.inf,))


def test_a_picture_of_nothing_is_left_out():
    finding = finding_of(True)
    [panel] = finding.panels
    empty = panel.model_copy(update={"series": panel.series[2:]})
    both = finding.model_copy(update={"panels": (empty, panel)})
    assert [plot.name for plot in draw_finding(both)] == ["probe-order-2"]


def test_lines_that_end_early_are_drawn_and_named():
    [plot] = draw_finding(finding_of(True))
    words = {text.strip() for text in ElementTree.fromstring(plot.svg).itertext()}
    assert {"whole", "part", "Lines", "here", "10⁻¹²"} <= words
    assert "nothing" not in words
    assert "part: 1 at 1, 2 at 10. nothing: no values." in plot.alt


def test_the_page_is_well_formed_and_names_are_its_own(findings):
    page = to_html(compose_page([*findings.values(), finding_of(True, False)]))
    root = ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>\n"))
    used = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    used = [name for name in used if not name.startswith("probe-order-1-")]  # there twice
    assert len(used) == len(set(used))
    text = "".join(root.itertext())
    assert "A < B & C" in text
    again = command_line("compare", "--probe", "order", "--device", "cuda")
    assert f"{again}\n" in text
    for finding in findings.values():
        assert finding.claim in text
        assert all(check.measured in text for check in finding.checks)


@pytest.mark.slow
@pytest.mark.skipif(DRIVER is None, reason="there is no chromedriver")
def test_every_probe_fits_every_screen(findings, tmp_path):
    with browsing() as driver:
        for name, finding in findings.items():
            page = tmp_path / f"{name}.html"
            page.write_text(to_html(compose_page([finding])), encoding="utf-8")
            for width in (390, 1440):
                for theme in ("light", "dark"):
                    emulate(driver, width, 900, theme)
                    driver.get(page.as_uri())
                    fits_the_screen(driver)


# -- choosing, running, writing ------------------------------------------------------------------


def test_unknown_names_are_answered_with_those_there_are():
    with pytest.raises(ConfigError, match="'recal' is not known; did you mean 'recall'"):
        choose_probes(["recal"])
    with pytest.raises(ConfigError, match="'zzz'") as error:
        choose_probes(["order", "zzz"])
    assert all(name in str(error.value) for name in PROBES)
    with pytest.raises(ConfigError, match="--probe is missing"):
        choose_probes([])


def test_names_come_one_by_one_or_joined_and_each_once():
    assert [probe.name for probe in choose_probes(["heads, order", "order"])] == ["order", "heads"]
    assert [probe.name for probe in choose_probes(["all"])] == list(PROBES)


@pytest.mark.parametrize("name", PROBES)
def test_thorough_is_larger(name):
    [quick], [thorough] = choose_probes([name]), choose_probes([name], thorough=True)
    sizes = [sum(map(total, vars(probe).values())) for probe in (quick, thorough)]
    assert sizes[0] < sizes[1]


def total(size):
    return sum(size) if isinstance(size, tuple) else size


def test_recall_goes_up_to_4096_if_asked_to_be_thorough():
    assert Recall.thorough().distances[-1] == 4096


def test_a_folder_keeps_what_earlier_probes_have_found(tmp_path):
    run_probes([tiny("table1")], tmp_path / "out", Settings(), Reporter())
    findings, page = run_probes([tiny("gradients")], tmp_path / "out", Settings(), Reporter())
    assert read_finding(tmp_path / "out" / "probe-gradients.json") == findings[0]
    text = page.read_text(encoding="utf-8")
    assert PROBES["gradients"].title in text
    assert PROBES["speed"].title not in text
    assert "The paper's Table 1" in text.replace("&#x27;", "'")
    text = (tmp_path / "out" / "probe-table1.md").read_text(encoding="utf-8")
    for picture in (tmp_path / "out" / "plots").glob("probe-table1-*.svg"):
        assert f"(plots/{picture.name})" in text


def test_a_damaged_finding_is_named(tmp_path):
    (tmp_path / "probe-order.json").write_text("{}", encoding="utf-8")
    with pytest.raises(BundleError, match=r"probe-order\.json.*--out"):
        run_probes([tiny("table1")], tmp_path, Settings(), Reporter())


def attendo(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["attendo", "compare", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code or 0


def test_the_command_prints_what_it_has_found(monkeypatch, capsys, tmp_path):
    out = ["--out", str(tmp_path), "--device", "cpu"]
    assert attendo(monkeypatch, "--probe", "table1", *out) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("The paper's Table 1: confirmed")
    assert "Measured: operations grow as n^2.00" in printed.out
    assert f"report: {tmp_path / 'probes.html'}" in printed.err
    assert attendo(monkeypatch, "--probe", "table1", *out, "--json") == 0
    [finding] = json.loads(capsys.readouterr().out)
    assert finding["verdict"] == "confirmed"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--probe", "zzz"], "--probe = 'zzz' is not known; choose from: all, extrapolation"),
        (["--thorough"], "--probe is missing; choose from: recall"),
        (["demo", "--probe", "order"], "or leave out the recipes"),
        (
            ["--probe", "order", "--source", "a.en", "--budget-tokens", "5"],
            "or leave out the files and --budget-tokens",
        ),
        (["--probe", "order", "--out", __file__], "test_probes.py"),
    ],
)
def test_mistakes_are_answered_in_one_line(monkeypatch, capsys, words, message):
    assert attendo(monkeypatch, *words) == 2
    assert message in capsys.readouterr().err


# -- quick probes, which depend little on chance ----------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gradients", "table1", "order"])
def test_what_mathematics_promises_is_confirmed(name):
    assert PROBES[name]().run(Settings(), Reporter()).verdict == "confirmed"


def test_what_a_cpu_has_no_memory_for_is_left_out_and_said(monkeypatch):
    probe = tiny("long")
    kept = probe._cost("lsh", Settings(), lambda n, remark: None).n_bytes
    monkeypatch.setattr("attendo.lab.probes.long.free_memory", lambda: 3 * 2 * kept[1] - 1)
    finding = probe.run(Settings(), Reporter())
    note = "Not measured, since memory was too small: lsh from 32 tokens on."
    assert note in finding.notes
    times = next(panel for panel in finding.panels if panel.title == "Time")
    ends = {series.label: series.y[-1] for series in times.series}
    assert ends.pop("lsh") is None
    assert None not in ends.values()


def test_the_memory_that_is_left_is_between_nothing_and_all():
    assert 0 < free_memory() < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
