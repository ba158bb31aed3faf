"""Queues of requests: bounded, with a time limit, and with work that can be stopped.

A model keeps all cores busy, so each queue runs one request at a time, in a thread of its own.
Requests that need no model never wait here.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

from torch import nn

from attendo.models import Model
from attendo.serve.guard import Limits, RequestError

T = TypeVar("T")


class WorkError(Exception):
    """A library has failed with something that is no `Exception`, such as a panic of Rust code."""


class _StoppedError(Exception):
    """The result is no longer needed."""


_thread = threading.local()
"""`_thread.stop` is an event in the thread of a queue: set when its work is to stop."""


class Queue:
    """One thread, and the requests that wait for it."""

    def __init__(self, name: str, limits: Limits) -> None:
        self.limits = limits
        self.n_requests = 0
        self.threads = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, work: Callable[[], T]) -> T:
        """Run some work in turn; it stops if this coroutine is cancelled or takes too long.

        Raises:
            RequestError: if the queue is full (503) or the time limit has passed (504).
        """
        limits = self.limits
        if self.n_requests > limits.waiting:
            raise RequestError(
                503, f"the server is busy: {limits.waiting} requests are waiting", retry=2
            )
        stop = threading.Event()
        self.n_requests += 1
        try:
            async with asyncio.timeout(limits.time_limit):
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self.threads, _run, work, stop)
        except TimeoutError:
            raise RequestError(
                504,
                f"the request was stopped after {limits.time_limit:g} seconds; send a shorter "
                "text, try again later, or start the server with a larger --time-limit",
            ) from None
        finally:
            stop.set()
            self.n_requests -= 1


def make_stoppable(model: Model) -> None:
    """Make the work of a queue stop whenever it uses the last layer of this model.

    Each step of a search and each pass of an inspection uses it; copies of the model do the same.
    """
    cast(nn.Module, model.output).register_forward_pre_hook(_stop_if_asked)


def _stop_if_asked(module: nn.Module, arguments: object) -> None:
    stop_if_asked()


def stop_if_asked() -> None:
    """Raise an exception if the result of the work of this thread is no longer needed."""
    stop: threading.Event | None = getattr(_thread, "stop", None)
    if stop is not None and stop.is_set():
        raise _StoppedError


def _run(work: Callable[[], T], stop: threading.Event) -> T:
    _thread.stop = stop
    try:
        return work()
    except Exception:
        raise
    except BaseException as error:
        logging.getLogger("uvicorn.error").error("A request failed", exc_info=error)
        raise WorkError(type(error).__name__) from None
