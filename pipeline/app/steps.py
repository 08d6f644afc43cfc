"""Step: what a node does with a frame; one class per kind of node."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.app.app_frame import SKIPPED, AppFrame
from pipeline.app.scopes import Evaluation
from pipeline.errors import AppError, reason

if TYPE_CHECKING:
    from pipeline.app.application import App
    from pipeline.app.expressions import Expression
    from pipeline.app.nodes import Function
    from pipeline.app.permissions import Permissions
    from pipeline.io.results import Detections

Finish = Callable[["AppFrame", Any], None]
"""Function to call with a frame and the node's result, exactly once."""


class Step:
    """Work of a node, called in a thread of its own, with the frames of each stream in order.

    A step that has its result at once writes `compute`; one that waits for something writes `begin`.
    """

    def begin(self, frame: AppFrame, finish: Finish) -> None:
        """Work on a frame, and call `finish` in the end, in any thread."""
        finish(frame, self.compute(frame))

    def skip(self, frame: AppFrame, finish: Finish) -> None:
        """Leave a frame out, behind those that came before it."""
        finish(frame, SKIPPED)

    def compute(self, frame: AppFrame) -> Any:
        """Return the node's result of a frame."""
        raise NotImplementedError

    def forget(self, stream: str) -> None:
        """Forget what is remembered of a stream, which begins anew."""

    def close(self) -> None:
        """Wait for what is under way, and release what is held."""


class Condition:
    """An expression with its memory of each stream."""

    def __init__(self, expression: Expression) -> None:
        self.expression = expression
        self._memories: dict[str, dict[Any, dict[Any, Any]]] = {}

    @staticmethod
    def of(app: App, name: str, key: str) -> Condition | None:
        """Return a condition of a node, see `App.condition`; None without one."""
        expression = app.condition(name, key)
        return None if expression is None else Condition(expression)

    def holds(self, frame: AppFrame) -> bool:
        """Test the condition for a frame."""
        return bool(self.expression.evaluate(self._evaluation(frame)))

    def choose(self, frame: AppFrame, boxes: Detections) -> Detections:
        """Return the boxes that meet the condition."""
        import numpy as np

        keep = self.expression.evaluate(self._evaluation(frame, boxes))
        chosen: Detections = boxes[np.broadcast_to(keep, len(boxes))]
        return chosen

    def forget(self, stream: str) -> None:
        """Forget a stream."""
        self._memories.pop(stream, None)

    def _evaluation(self, frame: AppFrame, rows: Detections | None = None) -> Evaluation:
        return Evaluation(frame, self._memories.setdefault(frame.stream, {}), rows)


class FunctionStep(Step):
    """Calls a Python function with the frame and the results that its node reads.

    `functions` has those of a program, by the text that the application has for them.
    """

    def __init__(self, node: Function, functions: Mapping[str, Callable[..., Any]], permissions: Permissions) -> None:
        self._function = functions.get(node.call) or _import_function(node.call, permissions)
        self._reads: Sequence[str] = node.reads

    def compute(self, frame: AppFrame) -> Any:
        """Return what the function returns."""
        return self._function(frame, *(frame.results[name] for name in self._reads if name in frame.results))


def _import_function(text: str, permissions: Permissions) -> Callable[..., Any]:
    if not permissions.commands:
        raise AppError(f"{text!r} is code; allow that by --allow-commands (allow_commands=True)")
    module, _, name = text.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise AppError(f"no function {text!r}: {reason(error)}; it is written as 'module:function'") from None
    if not callable(function):
        raise AppError(f"{text!r} is no function")
    return function  # type: ignore[no-any-return]
