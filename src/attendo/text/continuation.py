"""A text that grows token by token: what can be shown of it, and when it ends."""

from collections.abc import Callable, Sequence

from attendo.text.stops import Stop, StopText
from attendo.text.tokenizer import Tokenizer

_BROKEN = "\ufffd"
"""What the bytes of an incomplete character are decoded to."""


class Continuation:
    """The continuation of a prompt.

    Text is passed on as soon as later tokens can no longer change it: characters of several tokens
    are complete, and what a stop may yet cut off is held back.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt: Sequence[int],
        stops: Sequence[str | Stop] = (),
        emit: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.ids = list(prompt)
        self.is_stopped = False
        self._tokenizer, self._emit = tokenizer, emit
        self._stops = [StopText(stop) if isinstance(stop, str) else stop for stop in stops if stop]
        self._n_prompt = self._n_decoded = len(self.ids)
        self._context = max(0, self._n_prompt - 8)  # whether a space comes first depends on it
        self._text = ""
        self._n_emitted = 0

    @property
    def n_new(self) -> int:
        """Return the number of tokens behind the prompt."""
        return len(self.ids) - self._n_prompt

    def add(self, token: int) -> bool:
        """Append a token; return whether the text has come to a stop."""
        self.ids.append(token)
        known = self._tokenizer.decode(self.ids[self._context : self._n_decoded])
        whole = self._tokenizer.decode(self.ids[self._context :])
        if not whole.endswith(_BROKEN):
            self._text += whole[len(known) :]
            self._context, self._n_decoded = self._n_decoded, len(self.ids)
        ends = [stop.find(self._text) for stop in self._stops]
        found = [end for end in ends if end is not None]
        if found:
            self._text = self._text[: min(found)]
            self.is_stopped = True
        held_back = [0] if found else [0, *(stop.n_held_back(self._text) for stop in self._stops)]
        self._pass_on(len(self._text) - max(held_back))
        return self.is_stopped

    def finish(self) -> str:
        """Pass on what was held back; return the whole continuation."""
        if not self.is_stopped:
            known = self._tokenizer.decode(self.ids[self._context : self._n_decoded])
            self._text += self._tokenizer.decode(self.ids[self._context :])[len(known) :]
            self._n_decoded = len(self.ids)
        self._pass_on(len(self._text))
        return self._text

    def _pass_on(self, end: int) -> None:
        if end > self._n_emitted:
            self._emit(self._text[self._n_emitted : end])
            self._n_emitted = end
