"""Calls at a certain step of the interpreter, for tests of what two threads may do to each other."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


class AtStep:
    """Calls something in front of the n-th step that the calling thread makes in functions of a certain name."""

    def __init__(self, function: str, number: int, call: Callable[[], object]) -> None:
        self._function, self._call, self._countdown = function, call, number

    def __enter__(self) -> AtStep:  # noqa: PYI034 - Self is newer than the oldest Python
        self._tracer = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._tracer)

    @property
    def has_called(self) -> bool:
        """Whether there were as many steps."""
        return self._countdown <= 0

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        # Steps of the bytecode, not lines: other threads get the interpreter between any two of them.
        frame.f_trace_opcodes = frame.f_code.co_name == self._function
        if event == "opcode":
            self._countdown -= 1
            if self._countdown == 0:
                self._call()
        return self._trace
