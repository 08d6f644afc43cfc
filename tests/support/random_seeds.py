"""Seeds of random cases: some are tried each time, all of them by the slow tests."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(quick: int, total: int) -> list[Any]:
    """Return the numbers up to `total`, those from `quick` on marked as slow."""
    return [*range(quick), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(quick, total))]
