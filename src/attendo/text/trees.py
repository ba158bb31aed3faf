"""Constituency trees: read in Penn Treebank brackets, cleaned, written and drawn.

    (S (NP (DT The) (NN cat)) (VP (VBD sat)) (. .))

A node has a label and children, or it is a leaf: a word with its part of speech.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any, NamedTuple

TOP = "TOP"
"""Label of a root that only holds a tree together: of several phrases, or of one word alone."""

ROOTS = ("", "TOP", "ROOT", "S1")
"""What treebanks call such a root."""

TRACE = "-NONE-"

DEEPEST = 200
"""Most brackets within each other; real trees have up to about 40."""

_PARTS = re.compile(rb"[()]|[^\s()]+")
_ESCAPES = {
    "-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}",
}  # fmt: skip
_QUOTES = {"``": '"', "''": '"'}


class Span(NamedTuple):
    """A constituent: its label, its first word, and the word after its last."""

    label: str
    start: int
    end: int


class Tree(NamedTuple):
    """A labelled node with children, or a leaf with a word.

    >>> tree = parse_tree("(S (NP (DT The) (NN cat)) (VP (VBD sat)))")
    >>> tree.words()
    ['The', 'cat', 'sat']
    >>> str(tree.children[1])
    '(VP (VBD sat))'
    """

    label: str
    children: tuple["Tree", ...] = ()
    word: str = ""
    """Of a leaf, as treebanks write it: a bracket is -LRB- or -RRB-."""

    def leaves(self) -> Iterator["Tree"]:
        """Yield the words, each with its part of speech."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    def with_leaves(self, leaves: Iterator["Tree"]) -> "Tree":
        """Return the same constituents over other leaves."""
        if not self.children:
            return next(leaves)
        return self._replace(children=tuple(one.with_leaves(leaves) for one in self.children))

    def words(self) -> list[str]:
        """Return the words."""
        return [leaf.word for leaf in self.leaves()]

    def tags(self) -> list[str]:
        """Return the parts of speech."""
        return [leaf.label for leaf in self.leaves()]

    def nodes(self) -> Iterator["Tree"]:
        """Yield the constituents, each before its children; leaves are none."""
        if self.children:
            yield self
            for child in self.children:
                yield from child.nodes()

    def spans(self) -> list[Span]:
        """Return the constituents with their places, in the order of `nodes`."""
        found: list[Span] = []
        self._add_spans(0, found)
        return found

    def _add_spans(self, start: int, found: list[Span]) -> int:
        if not self.children:
            return start + 1
        place, end = len(found), start
        found.append(Span(self.label, start, start))
        for child in self.children:
            end = child._add_spans(end, found)
        found[place] = Span(self.label, start, end)
        return end

    def depth(self) -> int:
        """Return the number of constituents on the longest way to a word."""
        return 1 + max(child.depth() for child in self.children) if self.children else 0

    def to_dict(self) -> dict[str, Any]:
        """Return the tree as nested dictionaries."""
        if not self.children:
            return {"label": self.label, "word": self.word}
        return {"label": self.label, "children": [child.to_dict() for child in self.children]}

    def __str__(self) -> str:
        """Return the tree in brackets, in one line."""
        inside = " ".join(map(str, self.children)) if self.children else self.word
        return f"({self.label} {inside})"


def escape(word: str) -> str:
    """Write a word as treebanks do: without brackets.

    >>> escape("(")
    '-LRB-'
    """
    names = {bracket: name for name, bracket in _ESCAPES.items()}
    return names.get(word) or word.replace("(", names["("]).replace(")", names[")"])


def unescape(word: str) -> str:
    r"""Return a word of a treebank as other texts have it, for tokenizers that know those.

    >>> unescape("-RRB-"), unescape("``"), unescape(r"1\/2")
    (')', '"', '1/2')
    """
    return _ESCAPES.get(word) or _QUOTES.get(word) or word.replace("\\/", "/")


_CLITIC = re.compile(r"(?i)(?<=\w)(n['’]t|['’](?:s|m|d|re|ve|ll))$")
_MARK = re.compile(r"(?<=[\w)\"”’'])([,;:?!])$")


def split_words(text: str) -> list[str]:
    """Split a text into words and punctuation marks, as treebanks do.

    What is separated by spaces already stays as it is, abbreviations too.

    >>> split_words("Don't you like cats, Mr. Poe?")
    ['Do', "n't", 'you', 'like', 'cats', ',', 'Mr.', 'Poe', '?']
    """
    chunks = text.split()
    if chunks and re.fullmatch(r".*[^\W_]\.", chunks[-1]):
        chunks[-1:] = [chunks[-1][:-1], "."]
    return [escape(word) for chunk in chunks for word in _split_chunk(chunk)]


def _split_chunk(chunk: str) -> list[str]:
    for pattern in (_MARK, _CLITIC):
        if found := pattern.search(chunk):
            return [*_split_chunk(chunk[: found.start()]), found[0]]
    if len(chunk) > 1 and chunk[0] in '(["“':
        return [chunk[0], *_split_chunk(chunk[1:])]
    if len(chunk) > 1 and chunk[-1] in ')]"”':
        return [*_split_chunk(chunk[:-1]), chunk[-1]]
    return [chunk]


def split_trees(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Join the lines of each tree: a tree ends where its first bracket is closed.

    Several trees may share a line. What is in no bracket is one text up to the next bracket.
    """
    parts: list[bytes] = []
    depth = 0
    for line in lines:
        for part in _PARTS.findall(line):
            if depth == 0 and part == b"(" and parts:
                yield b" ".join(parts)
                parts = []
            depth = max(0, depth + (part == b"(") - (part == b")"))
            parts.append(part)
            if part == b")" and depth == 0:
                yield b" ".join(parts)
                parts = []
    if parts:
        yield b" ".join(parts)


def parse_tree(text: str) -> Tree:
    """Read a tree in brackets.

    Raises:
        ValueError: It is not one whole tree; the message says why.
    """
    stack: list[tuple[list[str], list[Tree]]] = [([], [])]
    for raw in _PARTS.findall(text.encode()):
        part = raw.decode()
        if part == "(":
            stack.append(([], []))
            if len(stack) > DEEPEST:
                raise ValueError(f"more than {DEEPEST} brackets within each other")
        elif part == ")":
            if len(stack) == 1:
                raise ValueError("a bracket is closed that was not opened")
            names, children = stack.pop()
            stack[-1][1].append(_node(names, children))
        elif stack[-1][1]:
            raise ValueError("a word after a phrase in the same bracket")
        else:
            stack[-1][0].append(part)
    (names, trees), *unclosed = stack
    if unclosed:
        raise ValueError("a bracket is not closed")
    if names or len(trees) != 1:
        raise ValueError("not one tree in brackets")
    return trees[0]


def _node(names: list[str], children: list[Tree]) -> Tree:
    if children and len(names) <= 1:
        return Tree("".join(names), tuple(children))
    if len(names) == 2 and not children:
        return Tree(names[0], (), names[1])
    raise ValueError("empty bracket" if len(names) < 2 else "more than one word in a bracket")


def clean_tree(tree: Tree, counts: Counter[str] | None = None) -> Tree | None:
    """Remove what parsers are not trained on, as is usual, and count it.

    Removed are traces (-NONE-) with the nodes that have nothing else, function tags (NP-SBJ becomes
    NP), and the label of a root above one phrase. None if nothing is left.

    >>> raw = "( (S (NP-SBJ (NN Rain)) (VP (VBD fell) (NP (-NONE- *T*-1)))))"
    >>> str(clean_tree(parse_tree(raw)))
    '(S (NP (NN Rain)) (VP (VBD fell)))'
    """
    counts = Counter() if counts is None else counts
    found = _without_traces(tree, counts)
    if found is None:
        return None
    if found.children and found.label in ROOTS:
        counts["root labels"] += 1
        while found.label in ROOTS and len(found.children) == 1:
            found = found.children[0]
    is_phrase = found.children and found.label not in ROOTS
    return found if is_phrase else Tree(TOP, found.children or (found,))


def _without_traces(tree: Tree, counts: Counter[str]) -> Tree | None:
    if not tree.children:
        counts["traces"] += tree.label == TRACE
        return None if tree.label == TRACE else tree
    children = [_without_traces(child, counts) for child in tree.children]
    kept = tuple(child for child in children if child is not None)
    if not kept:
        counts["empty nodes"] += 1
        return None
    label = "".join(takewhile(lambda character: character not in "-=", tree.label)) or tree.label
    counts["function tags"] += label != tree.label
    return Tree(label, kept)


def draw_tree(tree: Tree) -> str:
    """Draw a tree with characters, the root at the left and each word at the end of its line.

    >>> print(draw_tree(parse_tree("(S (NP (PRP He)) (VP (VBD left) (NP (NN town))))")))
    S ┬ NP ─ PRP He
      └ VP ┬ VBD left
           └ NP ─ NN town
    """
    return "\n".join(_drawn(tree))


def _drawn(tree: Tree) -> list[str]:
    if not tree.children:
        return [f"{tree.label} {tree.word}"]
    lines = []
    last = len(tree.children) - 1
    for number, child in enumerate(tree.children):
        first, *rest = _drawn(child)
        sign = "─┬"[last > 0] if number == 0 else "├└"[number == last]
        start = tree.label if number == 0 else " " * len(tree.label)
        lines.append(f"{start} {sign} {first}")
        bar = " " if number == last else "│"
        lines += [f"{' ' * len(tree.label)} {bar} {line}" for line in rest]
    return lines
