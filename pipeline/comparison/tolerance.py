"""Tolerance: allowed distance of an output from a reference."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pipeline.core.numerics import check_tolerance
from pipeline.errors import BuildError

STEPS = 2
"""Steps of a quantised output: two kernels may round to neighbours twice, in the last operators and before them."""

_STEPS = re.compile(r"(\d{1,4}) ?steps?", re.ASCII)


@dataclass(frozen=True)
class Tolerance:
    """Allowed difference of an output; the model decides None."""

    share: float | None = None
    """Allowed error of floats, as a share of the output's largest value."""
    steps: int | None = None
    """Allowed error of quantised integers, in steps of their scale."""

    @staticmethod
    def of(value: float | str | Tolerance | None) -> Tolerance:
        """Read a tolerance such as ``0.001``, ``"2steps"`` or ``"0.001,2steps"``; `BuildError` if it is none."""
        if value is None or isinstance(value, Tolerance):
            return value or Tolerance()
        if not isinstance(value, str):
            check_tolerance(value)
            return Tolerance(float(value))
        share, steps = None, None
        for part in value.split(","):
            if match := _STEPS.fullmatch(part.strip()):
                steps = int(match[1])
            else:
                share = _share(part, value)
        return Tolerance(share, steps)


def _share(part: str, text: str) -> float:
    try:
        share = float(part)
        check_tolerance(share)
    except (ValueError, BuildError):
        raise BuildError(
            f"tolerance is {text!r}; it must be a share of the largest output, such as 0.001, steps of quantised "
            "integers, such as 2steps, or both: 0.001,2steps"
        ) from None
    return share
