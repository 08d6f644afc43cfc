"""Models run by the format's library."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from tests.support.toy_format import outputs, parse, run

ALTERNATIVE = ""


def evaluate(
    model: str | Path, frame: Mapping[str, np.ndarray], *, alternative: bool = False, runs: int = 1
) -> list[np.ndarray]:
    """Return the outputs."""
    del alternative, runs
    lines = parse(Path(model).read_text())
    tensors = run(lines, frame)
    return [tensors[name] for name in outputs(lines)]


def intermediates(model: str | Path, frame: Mapping[str, np.ndarray], names: Collection[str]) -> dict[str, np.ndarray]:
    """Return the tensors of these names."""
    tensors = run(parse(Path(model).read_text()), frame)
    return {name: tensors[name] for name in names if name in tensors}
