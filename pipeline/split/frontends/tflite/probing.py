"""Questions to LiteRT about a model, answered by a process of its own: it may abort."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

LONGEST_S = 300
"""For LiteRT to compute a model twice."""


class ProbeFailed(Exception):
    """Raised when LiteRT does not run a model; the text says why."""


def probe(
    content: bytes, shapes: Sequence[Sequence[Any]] = (), values: Sequence[int] = (), *, frames: int = 0
) -> Mapping[str, np.ndarray]:
    """Return what LiteRT says of a model's tensors, see `pipeline.split.frontends.tflite.litert_probe`.

    Parameters
    ----------
    content : bytes
        The model.
    shapes : sequence of sequence of int
        Of its inputs, in order; those of the file by default.
    values : sequence of int
        Numbers of tensors whose values are wanted.
    frames : int
        How many to compute; without any, only its memory is laid out.

    Raises
    ------
    ProbeFailed
        If LiteRT has not got an operator, the shapes do not fit, or it aborts.
    """
    request = json.dumps(
        {"shapes": [list(map(int, shape)) for shape in shapes], "values": list(values), "frames": frames}
    )
    command = [sys.executable, str(Path(__file__).with_name("litert_probe.py"))]
    try:
        result = subprocess.run(  # noqa: S603 - this Python and a file of ours
            command, input=request.encode() + b"\n" + content, capture_output=True, timeout=LONGEST_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ProbeFailed(f"it takes more than {LONGEST_S} s") from None
    if result.returncode:
        # Nothing may be said when it aborts.
        lines = result.stderr.decode(errors="replace").strip().splitlines() or ["it ends without a word"]
        raise ProbeFailed(lines[-1])
    with np.load(io.BytesIO(result.stdout)) as archive:
        return dict(archive)
