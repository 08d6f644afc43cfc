"""Sink: where results go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from pipeline.io.frame import Delivered

if TYPE_CHECKING:
    from typing_extensions import Self


class Sink:
    """Takes results, in order, and drops them; a context manager.

    What was begun is completed when the ``with`` block ends, and given up when it ends by an exception.  A sink of
    one's own has `add`, and `finish` and `abandon` if there is something to do.
    """

    def add(self, delivered: Delivered) -> None:
        """Take one result."""

    def finish(self) -> None:
        """Complete what was begun."""

    def abandon(self) -> None:
        """Give up what was begun, as far as half of it is of no use."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.abandon()


class Callback(Sink):
    """Calls a function with each result.

    Parameters
    ----------
    function : callable
        Called with a `Delivered`, in one thread, in order.
    """

    def __init__(self, function: Callable[[Delivered], object]) -> None:
        self._function = function

    def add(self, delivered: Delivered) -> None:
        """Call the function."""
        self._function(delivered)


class Several(Sink):
    """Hands each result to several sinks.

    Parameters
    ----------
    sinks : sequence of Sink
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = list(sinks)

    def add(self, delivered: Delivered) -> None:
        """Hand it on."""
        for sink in self._sinks:
            sink.add(delivered)

    def finish(self) -> None:
        """Complete all; those that are left when one cannot be are given up."""
        left = self._sinks[:]
        try:
            while left:
                left[0].finish()
                left.pop(0)
        except BaseException:
            for sink in left:
                sink.abandon()
            raise

    def abandon(self) -> None:
        """Give up all."""
        for sink in self._sinks:
            sink.abandon()
