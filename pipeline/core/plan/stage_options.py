"""StageOptions: differences of one stage's build from the others'."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ParamSpec, TypeVar

from pipeline.errors import PlanError, near

PRECISIONS = ("float32", "float32-exact", "bfloat16", "float16", "auto")
"""Number formats of products; see `pipeline.core.numerics.Numerics`."""

DEFAULT_PRECISION = "float32"
"""Precision of a build without the option."""

WEIGHTS = ("float32", "float16", "bfloat16")
"""Storage formats of weights."""

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class StageOptions:
    """Build options of one stage; None follows the build's.

    Raises `PlanError` if a value is none of these.
    """

    precision: str | None = None
    """Number format of products, one of `PRECISIONS`."""
    weights: str | None = None
    """Storage format of weights, one of `WEIGHTS`."""
    tolerance: float | None = None
    """Largest allowed error of the stage's outputs against the unsplit model, as a share of the largest value."""
    target: Mapping[str, object] | None = None
    """Keys of its device's target that are otherwise for this stage."""
    float32_layers: tuple[str, ...] | None = None
    """Tensors whose products stay float32 in other precisions."""

    def __post_init__(self) -> None:
        for name, value, kinds in (("precision", self.precision, PRECISIONS), ("weights", self.weights, WEIGHTS)):
            if value is not None and value not in kinds:
                raise PlanError(f"{name} is {value!r}; it must be one of {', '.join(kinds)}{near(str(value), kinds)}")
        if self.tolerance is not None and not _is_share(self.tolerance):
            raise PlanError(f"tolerance is {self.tolerance!r}; it must be a number of at least 0")
        if self.target is not None and not isinstance(self.target, Mapping):
            raise PlanError(f"target is {self.target!r}; it must be keys of the device's target with their values")

    @property
    def is_narrow(self) -> bool:
        """True if products may be of 16 bits."""
        return self.precision is not None and not self.precision.startswith("float32")

    @property
    def speed(self) -> tuple[object, ...]:
        """Options that change the time of kernels."""
        return self.precision, self.weights, self.float32_layers

    @staticmethod
    def of_build(options: Mapping[str, Any]) -> StageOptions:
        """Return the options of a build that its stages keep; its defaults are left to each build."""
        choices = {"precision": DEFAULT_PRECISION, "weights": "float32"}
        return StageOptions(
            **{name: options[name] for name, default in choices.items() if options.get(name, default) != default}
        )

    def complete(self, others: StageOptions) -> StageOptions:
        """Return these options, and others where they have none."""
        names = [field.name for field in fields(self)]
        return StageOptions(**{name: getattr(others if getattr(self, name) is None else self, name) for name in names})


NO_OPTIONS = StageOptions()
"""All as the whole build."""


def rename_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with ``precision`` for ``winograd`` and ``arithmetic``, its earlier names.

    Raises `PlanError` if `winograd` is no truth value.
    """
    others = {name: value for name, value in options.items() if name not in ("winograd", "arithmetic")}
    winograd, arithmetic = options.get("winograd"), options.get("arithmetic")
    if winograd not in (None, True, False):
        raise PlanError(f"winograd is {winograd!r}; it must be true or false")
    if arithmetic not in (None, "float32"):
        # It decided about the storage of weights, too.
        others = {name: value for name, value in others.items() if name != "weights"}
        return {**others, "precision": arithmetic}
    if winograd is None and arithmetic is None:
        return others
    return {"precision": "float32-exact" if winograd is False else "float32", **others}


def accept_old_options(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that also takes the earlier names of options; see `rename_options`."""

    @functools.wraps(function)
    def accept(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **rename_options(kwargs))

    return accept


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
