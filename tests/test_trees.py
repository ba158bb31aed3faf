"""Trees in brackets, their cleaning, their scores by evalb's rules, and charts over them."""

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice, pairwise

import pytest
import torch

from attendo.data.builtin import sentences
from attendo.data.builtin.trees import tree_of
from attendo.data.readers import ReadReport, RecordFiles, read_records
from attendo.data.treebanks import ParsedSentence
from attendo.errors import DataError
from attendo.nn.chart import best_tree, log_partition
from attendo.tasks.span_parsing import assemble, divide
from attendo.tasks.tree_scores import Counts, count, score_trees
from attendo.text.trees import (
    Span,
    Tree,
    clean_tree,
    draw_tree,
    escape,
    parse_tree,
    split_trees,
    split_words,
    unescape,
)


def random_tree(chance: random.Random, n_words: int, *, depth: int = 0) -> Tree:
    """Make a tree of any shape, chains of constituents over the same words included."""
    if n_words == 1 and depth and chance.random() < 0.6:
        return Tree(chance.choice(["NN", "DT", ",", "."]), (), f"word{chance.randrange(99)}")
    label = chance.choice(["S", "NP", "VP", "ADVP", "PRT"])
    if n_words == 1 or (depth < 9 and chance.random() < 0.2):
        return Tree(label, (random_tree(chance, n_words, depth=depth + 1),))
    n_parts = chance.randint(2, min(n_words, 5))
    cuts = [0, *sorted(chance.sample(range(1, n_words), n_parts - 1)), n_words]
    parts = [end - start for start, end in pairwise(cuts)]
    return Tree(label, tuple(random_tree(chance, part, depth=depth + 1) for part in parts))


def random_trees(seed: int, n: int, longest: int = 12) -> list[Tree]:
    chance = random.Random(seed)
    return [random_tree(chance, chance.randint(1, longest)) for _ in range(n)]


# Brackets


def test_a_tree_survives_brackets_and_lines():
    trees = random_trees(0, 60)
    text = "\n".join(map(str, trees))
    assert [parse_tree(raw.decode()) for raw in split_trees(text.encode().split(b"\n"))] == trees
    spread = re.sub(r" \(", "\n    (", text)
    assert [parse_tree(raw.decode()) for raw in split_trees(spread.encode().split(b"\n"))] == trees


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(S (NP (NN dog))", "not closed"),
        ("(S (NN dog)))", "not opened"),
        ("(S ())", "empty bracket"),
        ("(NN hot dog)", "more than one word"),
        ("(S (NN dog) barks)", "a word after a phrase"),
        ("dog", "not one tree"),
        ("(NN dog) (NN cat)", "not one tree"),
        ("(S " * 300 + "(NN dog)" + ")" * 300, "within each other"),
    ],
)
def test_what_is_no_tree_is_refused_with_the_reason(text, reason):
    with pytest.raises(ValueError, match=reason):
        parse_tree(text)


def test_cleaning_is_counted():
    raw = (
        "( (S (NP-SBJ-1 (DT The) (NN cat)) (VP (VBD was) (VP (VBN seen) (NP (-NONE- *-1))"
        " (PP-LOC=2 (IN in) (NP (NN town)))))))"
    )
    counts: Counter[str] = Counter()
    found = clean_tree(parse_tree(raw), counts)
    wanted = "(S (NP (DT The) (NN cat)) (VP (VBD was) (VP (VBN seen) (PP (IN in) (NP (NN town))))))"
    assert str(found) == wanted
    assert counts == {"traces": 1, "empty nodes": 1, "function tags": 2, "root labels": 1}
    assert clean_tree(parse_tree("(S (NP (-NONE- *)))")) is None
    assert str(clean_tree(parse_tree("(ROOT (UH Yes))"))) == "(TOP (UH Yes))"
    two = "(NP (NN cat)) (NP (NN dog))"
    assert str(clean_tree(parse_tree(f"(ROOT {two})"))) == f"(TOP {two})"


def test_words_are_split_and_escaped_as_in_treebanks():
    text = 'She said (quietly): "Mr. Poe can\'t have 1,000 cats, can he?"'
    words = split_words(text)
    spaced = 'She said ( quietly ) : " Mr. Poe ca n\'t have 1,000 cats , can he ? "'
    assert " ".join(map(unescape, words)) == spaced
    assert split_words(" ".join(words)) == words
    assert all("(" not in escape(word) for word in text)


def test_a_drawing_has_a_line_for_each_word():
    for tree in random_trees(1, 30):
        lines = draw_tree(tree).split("\n")
        assert [line.split()[-1] for line in lines] == tree.words()
        assert lines[0].startswith(tree.label)


def test_the_built_in_treebank_has_the_words_of_the_corpus():
    for sentence in islice(sentences(seed=4), 400):
        tree = tree_of(sentence)
        assert " ".join(tree.words()) == re.sub(r"([.,])", r" \1", sentence.source)
        assert tree.children[-1] == Tree(".", (), ".")
        assert all(node.children for node in tree.nodes())


# Files

RAW = "( (S (NP-SBJ (NN Rain)) (VP (VBD fell) (NP (-NONE- *)))\n (. .)))"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.mrg", f"{RAW}\n\n{RAW} {RAW}\n"),
        ("a.txt", f"{RAW}\n{RAW}\n{RAW}"),
        ("a.tsv", "".join(f"doc\t{RAW}\n".replace("\n (", " (") for _ in range(3))),
        ("a.jsonl", "".join(json.dumps({"tree": RAW}) + "\n" for _ in range(3))),
    ],
)
def test_treebanks_are_read_in_all_formats(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    report = ReadReport()
    files = RecordFiles(files=(str(tmp_path / name),), record=ParsedSentence)
    tree = "(S (NP (NN Rain)) (VP (VBD fell)) (. .))"
    assert list(read_records(files, report)) == [("Rain fell .", tree)] * 3
    assert report.notes == {
        "traces removed": 3,
        "empty nodes removed": 3,
        "function tags removed": 3,
        "root labels removed": 3,
    }


def test_check_reports_on_a_treebank(tmp_path, command):
    trees = [str(tree_of(sentence)) for sentence in islice(sentences(seed=2), 40)]
    (tmp_path / "a.mrg").write_text("\n".join([RAW, *trees, "(S (NN hot dog))"]))
    (tmp_path / "b.mrg").write_text("\n".join([*trees[:2], "(S (XYZ odd))"]))
    files = ["--trees", str(tmp_path / "a.mrg"), "--test-trees", str(tmp_path / "b.mrg")]
    code, shown, _ = command("check", *files)
    assert code == 0
    shown = " ".join(shown.split())
    assert "training: 41 of 42 trees are usable, 1 × malformed tree: more than one word" in shown
    assert "traces removed (1 ×)" in shown
    assert "test: 2 of 3 (66.7%) sentences are also in the training data" in shown
    assert "no training tree has these labels or parts of speech: XYZ" in shown
    report = json.loads(command("check", *files, "--json")[1])
    assert report["corpora"][0]["lengths"]["words"]["longest"] >= 20
    code, _, error = command("check", *files, "--pairs", "x.tsv")
    assert code == 2
    assert "both sentence pairs and trees" in error


# Scores. The numbers of matched, expected and predicted brackets are those that evalb itself
# prints with COLLINS.prm.

EVALB = [
    ("(S (NP (DT The) (NN cat)) (VP (VBD sat)) (. .))", None, (3, 3, 3)),
    (
        "(S (NP (DT The) (NN cat)) (VP (VBD sat)) (. .))",
        "(S (NP (DT The)) (VP (NN cat) (VBD sat)) (. .))",
        (1, 3, 3),
    ),
    (  # ADVP and PRT are the same
        "(S (NP (PRP He)) (VP (VBD gave) (PRT (RP up))) (. .))",
        "(S (NP (PRP He)) (VP (VBD gave) (ADVP (RP up))) (. .))",
        (4, 4, 4),
    ),
    (  # a constituent twice matches once
        "(S (NP (PRP He)) (VP (VBD ate) (NP (NN fish))) (. .))",
        "(S (NP (PRP He)) (VP (VBD ate) (NP (NP (NN fish)))) (. .))",
        (4, 4, 5),
    ),
    (
        "(S (NP (NNP Ann)) (, ,) (NP (NNP Bob)) (VP (VBD left)) (. .))",
        "(S (NP (NP (NNP Ann)) (, ,) (NP (NNP Bob))) (VP (VBD left)) (. .))",
        (4, 4, 5),
    ),
    (  # where punctuation hangs does not matter, and a constituent of it alone is none
        "(S (NP (DT The) (NN cat)) (VP (VBD sat)) (. .))",
        "(S (NP (DT The) (NN cat)) (VP (VBD sat) (X (. .))))",
        (3, 3, 3),
    ),
    (
        "(S (`` ``) (S (NP (PRP I)) (VP (VBP do))) ('' '') (VP (VBD said) (NP (PRP he))) (. .))",
        "(SQ (`` ``) (S (NP (PRP I)) (VP (VBP do)) ('' '')) (VP (VBD said)) (NP (PRP he)) (. .))",
        (4, 6, 6),
    ),
    (  # TOP is not counted
        "(TOP (NP (NNP Ann)) (VP (VBD left)))",
        "(S (NP (NNP Ann)) (VP (VBD left)))",
        (2, 2, 3),
    ),
    (
        "(S (VP (VB Go)) (PP (IN to) (NP (NN town))))",
        "(S (VP (VB Go) (PP (IN to) (NP (NN town)))))",
        (3, 4, 4),
    ),
]  # fmt: skip


def test_brackets_are_counted_as_by_evalb():
    pairs = [(parse_tree(one), parse_tree(other or one)) for one, other, _ in EVALB]
    assert [count(*pair) for pair in pairs] == [Counts(*counts) for *_, counts in EVALB]
    scores = score_trees(*map(list, zip(*pairs, strict=True)))
    assert (scores.recall, scores.precision, scores.f1) == (84.85, 77.78, 81.16)
    assert scores.exact == 33.33
    assert scores.tag_accuracy == scores.well_formed == 100.0


def test_other_tags_change_no_score_and_other_words_all():
    expected = [parse_tree(one) for one, *_ in EVALB]
    tagged = [parse_tree(re.sub(r"\(\S+ ([^()]+)\)", r"(XX \1)", str(tree))) for tree in expected]
    scores = score_trees(expected, tagged)
    assert (scores.f1, scores.exact, scores.tag_accuracy) == (100.0, 100.0, 0.0)
    short = [parse_tree("(S (NN x))")] * len(expected)
    scores = score_trees(expected, short)
    assert (scores.f1, scores.well_formed, scores.tag_accuracy) == (0.0, 0.0, 0.0)
    with pytest.raises(DataError, match="no trees"):
        score_trees([], [])
    assert count(parse_tree("(X (. .))"), parse_tree("(NP (. .))")) is None


def test_the_interval_is_around_f1_and_narrow_for_equal_sentences():
    right, wrong = (parse_tree(EVALB[1][side]) for side in (0, 1))
    mixed = score_trees([right] * 40, [right, wrong] * 20)
    low, high = mixed.f1_interval
    assert low < mixed.f1 < high
    assert mixed.f1 == pytest.approx(100 * (3 + 1) / 6, abs=0.01)
    assert score_trees([right] * 9, [wrong] * 9).f1_interval == (33.33, 33.33)


# Binary trees


def test_a_tree_is_what_is_assembled_from_its_division():
    for tree in random_trees(2, 200):
        nodes, leaves = divide(tree)
        n_words = len(tree.words())
        assert len(nodes) == len(leaves) == n_words
        assert all(node.start < gap < node.end for gap, node in enumerate(nodes) if gap)
        spans = [*nodes[1:], *(Span(label, at, at + 1) for at, label in enumerate(leaves))]
        random.Random(3).shuffle(spans)
        assert assemble(spans, list(tree.leaves())) == tree


def all_trees(start: int, end: int) -> Iterator[list[tuple[int, int]]]:
    if end - start == 1:
        yield [(start, end)]
    for middle in range(start + 1, end):
        for left in all_trees(start, middle):
            for right in all_trees(middle, end):
                yield [(start, end), *left, *right]


def test_sums_and_best_trees_are_those_of_all_trees_one_by_one():
    n_words = torch.tensor([5, 1, 6, 3])
    scores = torch.randn(4, 8, 8, dtype=torch.double, requires_grad=True)
    totals = log_partition(scores, n_words)
    best = best_tree(scores, n_words)
    for row, n in enumerate(n_words.tolist()):
        trees = list(all_trees(0, n))
        each = torch.stack([sum(scores[row, i, j] for i, j in tree) for tree in trees])
        torch.testing.assert_close(totals[row], each.logsumexp(0))
        (wanted,) = torch.autograd.grad(each.logsumexp(0), scores, retain_graph=True)
        (found,) = torch.autograd.grad(totals[row], scores, retain_graph=True)
        torch.testing.assert_close(found, wanted)
        assert sorted(map(tuple, best[row].nonzero().tolist())) == sorted(trees[each.argmax()])
