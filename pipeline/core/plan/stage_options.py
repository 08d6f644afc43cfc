"""StageOptions: differences of one stage's build from the others'."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pipeline.errors import PlanError, near

WEIGHTS = ("float32", "float16", "bfloat16")
"""Storage formats of weights."""

ARITHMETIC = ("float32", "float16")
"""Number formats of multiplications."""


@dataclass(frozen=True)
class StageOptions:
    """Build options of one stage; None follows the build's.

    Attributes
    ----------
    winograd : bool, optional
        True if 3x3 convolutions may be computed by Winograd's transforms.
    weights : str, optional
        Storage format of weights, one of `WEIGHTS`.
    tolerance : float, optional
        Largest allowed error of the stage's outputs against the unsplit model, as a share of the largest value.
    target : mapping, optional
        Keys of its device's target that are otherwise for this stage.
    arithmetic : str, optional
        Number format of multiplications, one of `ARITHMETIC`.

    Raises
    ------
    PlanError
        If a value is none of these.
    """

    winograd: bool | None = None
    weights: str | None = None
    tolerance: float | None = None
    target: Mapping[str, object] | None = None
    arithmetic: str | None = None

    def __post_init__(self) -> None:
        if self.winograd is not None and not isinstance(self.winograd, bool):
            raise PlanError(f"winograd is {self.winograd!r}; it must be true or false")
        for name, value, kinds in (("weights", self.weights, WEIGHTS), ("arithmetic", self.arithmetic, ARITHMETIC)):
            if value is not None and value not in kinds:
                raise PlanError(f"{name} is {value!r}; it must be one of {', '.join(kinds)}{near(str(value), kinds)}")
        if self.tolerance is not None and not _is_share(self.tolerance):
            raise PlanError(f"tolerance is {self.tolerance!r}; it must be a number of at least 0")
        if self.target is not None and not isinstance(self.target, Mapping):
            raise PlanError(f"target is {self.target!r}; it must be keys of the device's target with their values")

    @property
    def speed(self) -> tuple[object, ...]:
        """Options that change the time of kernels."""
        return self.winograd, self.weights, self.arithmetic

    @staticmethod
    def of_build(options: Mapping[str, Any]) -> StageOptions:
        """Return the options of a build that its stages keep; its defaults are left to each build."""
        choices = {"winograd": False, "weights": "float32", "arithmetic": "float32"}
        return StageOptions(
            **{name: options[name] for name, default in choices.items() if options.get(name, default) != default}
        )

    def complete(self, others: StageOptions) -> StageOptions:
        """Return these options, and others where they have none."""
        names = [field.name for field in fields(self)]
        return StageOptions(**{name: getattr(others if getattr(self, name) is None else self, name) for name in names})


NO_OPTIONS = StageOptions()
"""All as the whole build."""


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
