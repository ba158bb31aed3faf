"""The checks of types and shapes: of the first calls of every function in a test, then of a sample.

Each check takes longer than what most functions do, and a training calls them thousands of times,
with the shapes that the first calls had. Functions are prepared for the checks when they are first
checked: inner ones, which are made anew by each call of the outer one, would otherwise take most of
the time.
"""

from collections.abc import Callable
from functools import wraps
from types import CodeType, FunctionType
from typing import Any

import jaxtyping

FIRST, EVERY = 10, 50
"""In each test so many calls of a function are checked, and then one of so many."""

calls: dict[CodeType, int] = {}
"""How often each function has been called in this test."""

_jaxtyped = jaxtyping.jaxtyped


def jaxtyped(*, typechecker: Any) -> Callable[[Any], Any]:
    """Return what the import hook of jaxtyping decorates functions and classes with."""

    def decorate(decorated: Any) -> Any:
        if not isinstance(decorated, FunctionType):
            return _jaxtyped(decorated, typechecker=typechecker)
        return _sampled(decorated, typechecker)

    return decorate


def _sampled(function: FunctionType, typechecker: Any) -> Callable[..., Any]:
    checked: Callable[..., Any] | None = None
    code = function.__code__

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        nonlocal checked
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        n_before = calls[code] = calls.get(code, -1) + 1
        if n_before >= FIRST and n_before % EVERY:
            return function(*args, **kwargs)
        if checked is None:
            checked = _jaxtyped(function, typechecker=typechecker)
        return checked(*args, **kwargs)

    return call
