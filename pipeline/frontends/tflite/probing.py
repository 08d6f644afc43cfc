"""Questions to LiteRT, answered by another process: it may abort."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.frontends.fallback import IslandRefused

LONGEST_S = 300
"""For LiteRT to compute a model twice."""


class ProbeFailed(IslandRefused):
    """Raised when LiteRT does not run a model; says why."""


def probe(
    content: bytes, shapes: Sequence[Sequence[Any]] = (), values: Sequence[int] = (), *, frames: int = 0
) -> Mapping[str, np.ndarray]:
    """Return LiteRT's answers on a model's tensors. See `pipeline.frontends.tflite.litert_probe`.

    Raises `ProbeFailed` if LiteRT has not got an operator, the shapes do not fit, or it aborts. Inputs have the file's
    shapes by default; `values` are numbers of tensors whose values are wanted. Without `frames` to compute, only its
    memory is laid out.
    """
    request = {"shapes": [list(map(int, shape)) for shape in shapes], "values": list(values), "frames": frames}
    with np.load(io.BytesIO(_ask(request, content))) as archive:
        return dict(archive)


def check_models(models: Sequence[bytes]) -> None:
    """Raise `ProbeFailed` with the number of an unpreparable model."""
    # A process takes longer to start than to check a hundred models.
    with contextlib.suppress(ProbeFailed):
        _check(models)
        return
    # Whichever it was, LiteRT may have aborted without a word of it.
    for number, model in enumerate(models):
        _check([model], number)


def _check(models: Sequence[bytes], number: int = 0) -> None:
    try:
        if models:
            _ask({"sizes": list(map(len, models))}, b"".join(models))
    except ProbeFailed as error:
        error.number = number
        raise


def _ask(request: Mapping[str, Any], content: bytes) -> bytes:
    """Return the process's output."""
    command = [sys.executable, str(Path(__file__).with_name("litert_probe.py"))]
    question = json.dumps(request).encode() + b"\n" + content
    try:
        result = subprocess.run(  # noqa: S603 - this Python and a file of ours
            command, input=question, capture_output=True, timeout=LONGEST_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ProbeFailed(f"it takes more than {LONGEST_S} s") from None
    if result.returncode:
        # Nothing may be said when it aborts.
        lines = result.stderr.decode(errors="replace").strip().splitlines() or ["it ends without a word"]
        raise ProbeFailed(lines[-1])
    return result.stdout
