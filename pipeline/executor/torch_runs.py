"""PyTorch operators, run in a stage on the stage's cores."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np

from pipeline.executor.torch_program import parse
from pipeline.system.optional import require

_thread = threading.local()
"""State of a thread: its number of computing threads. PyTorch asks its library at every change."""


def open_model(model: bytes, threads: int) -> Callable[[Sequence[np.ndarray]], None]:
    """Return a function of a packed program, outputs behind inputs, or raise `BundleError`."""
    torch = require("torch", "torch", "operators that PyTorch computes")
    program = parse(model)
    count = len(program.inputs)

    def compute(arrays: Sequence[np.ndarray]) -> None:
        if getattr(_thread, "count", 0) != threads:
            torch.set_num_threads(threads)
            _thread.count = threads
        with torch.inference_mode():
            results = program.run([torch.from_numpy(array) for array in arrays[:count]])
        for target, result in zip(arrays[count:], results, strict=True):
            np.copyto(target, result.numpy(), casting="no")

    return compute
