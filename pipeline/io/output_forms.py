"""Output forms: drawable or publishable outputs of detectors and classifiers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pipeline.errors import InputError

# Of the output of non-maximum suppression as exporters of detectors write it, [x1, y1, x2, y2, score, class].
COLUMNS = ("left", "top", "right", "bottom", "score", "class")


class OutputForm(NamedTuple):
    """A form of outputs.

    Attributes
    ----------
    fits : callable
        Test for an output's shape.
    rule, remedy : str
        Begin and end of the message about one that has not.
    """

    fits: Callable[[Sequence[int]], bool]
    rule: str
    remedy: str

    def check(self, shape: Sequence[int], name: str = "") -> None:
        """Check that an output has this form; `InputError` if it has another one."""
        if not self.fits(shape):
            subject = f"the output {name!r}" if name else "the output"
            raise InputError(f"{self.rule}, but {subject} is {list(shape)}{self.remedy}")


BOXES = OutputForm(
    lambda shape: bool(shape) and shape[-1] == len(COLUMNS),
    f"boxes are rows of {', '.join(COLUMNS)}, such as [1, 100, {len(COLUMNS)}]",
    "; give a model that selects its boxes (non-maximum suppression), or a Python stage that does",
)
