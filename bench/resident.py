"""Resident memory of one frame in a process of its own: a bundle of ours, or a session of ONNX Runtime.

    python bench/resident.py FILE

FILE is a bundle, or a model for ONNX Runtime.  The process loads it, runs it once, and prints its resident bytes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil


def main() -> None:
    file = Path(sys.argv[1])
    if file.is_dir():
        run_bundle(file)
    else:
        run_session(file)
    print(psutil.Process().memory_info().rss)


def run_bundle(folder: Path) -> None:
    import pipeline

    with pipeline.load(folder) as running:
        (spec,) = running.plan.inputs
        running.submit(np.zeros(spec.shape, spec.dtype)).result()


def run_session(file: Path) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    (spec,) = session.get_inputs()
    session.run(None, {spec.name: np.zeros(spec.shape, np.float32)})


def resident_bytes(file: Path) -> int:
    """Return the resident bytes of a process that loads and runs a file."""
    command = [sys.executable, __file__, str(file)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


if __name__ == "__main__":
    main()
