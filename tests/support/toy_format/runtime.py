"""The library of the format: computes models that lie packed in stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests.support.toy_format import outputs, parse, run


def open_model(model: bytes, _threads: int) -> Callable[[Sequence[np.ndarray]], None]:
    """Return a function of the arrays of inputs and outputs."""
    lines = parse(model.decode())
    inputs = [line.name for line in lines if line.kind == "input"]

    def compute(arrays: Sequence[np.ndarray]) -> None:
        tensors = run(lines, dict(zip(inputs, arrays, strict=False)))
        for target, name in zip(arrays[len(inputs) :], outputs(lines), strict=True):
            target[...] = tensors[name]

    return compute
