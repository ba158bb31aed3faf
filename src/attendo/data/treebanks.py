"""Treebanks: sentences with their constituency trees, out of bracketed files."""

import json
from collections import Counter
from typing import NamedTuple

from attendo.data.readers import Format, Record, UnusableError, checked, decode_filled
from attendo.text.trees import Tree, clean_tree, parse_tree, split_trees


class ParsedSentence(NamedTuple):
    """A sentence, its words separated by spaces, and its tree in brackets."""

    text: str
    tree: str

    @classmethod
    def of(cls, tree: Tree) -> "ParsedSentence":
        """Return the record of a tree."""
        return cls(" ".join(tree.words()), str(tree))

    @staticmethod
    def formats() -> dict[str, Format]:
        """Return the file formats of treebanks."""
        return FORMATS


def _parse(record: type[Record], notes: Counter[str], raw: bytes) -> Record:
    """Read a tree, cleaned; what is removed is noted."""
    return _record(decode_filled(raw), notes)


def _parse_line(record: type[Record], notes: Counter[str], raw: bytes) -> Record:
    """Read the last column of a line, such as document TAB tree."""
    return _record(decode_filled(raw).split("\t")[-1], notes)


def _parse_json(record: type[Record], notes: Counter[str], raw: bytes) -> Record:
    """Read the key "tree" of an object."""
    try:
        text = json.loads(decode_filled(raw))["tree"]
        if not isinstance(text, str):
            raise TypeError
        text.encode()  # half of a surrogate pair is no character
    except (ValueError, RecursionError, KeyError, TypeError):
        raise UnusableError("malformed JSON line") from None
    return _record(text, notes)


def _record(text: str, notes: Counter[str]) -> ParsedSentence:
    removed: Counter[str] = Counter()
    try:
        tree = clean_tree(parse_tree(text), removed)
    except ValueError as error:
        raise UnusableError(f"malformed tree: {error}") from None
    if tree is None:
        raise UnusableError("a tree without words")
    record: ParsedSentence = checked(ParsedSentence.of(tree))
    notes.update({f"{name} removed": count for name, count in removed.items() if count})
    return record


def _wanted(record: type[Record]) -> str:
    return "a tree: (S (NP (DT The) (NN cat)) (VP (VBD sat)))"


_BRACKETS = Format(_wanted, _parse, split_trees)

FORMATS: dict[str, Format] = {
    ".mrg": _BRACKETS,
    ".ptb": _BRACKETS,
    ".txt": _BRACKETS,
    ".tsv": Format(lambda record: "document TAB tree", _parse_line),
    ".jsonl": Format(lambda record: '{"tree": "(S ...)"}', _parse_json),
}
"""By suffix: trees one after the other, however they are spread over lines; or one a line."""
