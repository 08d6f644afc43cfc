"""Loads and runs bundles whose VTA stage is changed and has the fitting checksums; run as a process of its own.

Arguments and output are those of `tests.support.manifest_fuzzer`; the first stage of the bundle is VTA's.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import sys
import traceback
from pathlib import Path

import numpy as np

import pipeline
from pipeline.errors import PipelineError
from tests.support.bundles import rewrite_library
from tests.support.manifest_fuzzer import MEMORY, mutate


def attempt(folder: Path) -> bool:
    """Load and run a bundle; return whether it could be loaded."""
    try:
        running = pipeline.load(folder, stage_timeout=20.0)
    except PipelineError as error:
        _check_origin(error)
        if len(str(error).splitlines()) != 1 or "stage0.so" not in str(error):
            raise ValueError(f"a message of several lines, or without the file: {error}") from error
        return False
    try:
        specs = running.plan.inputs
        running.submit({spec.name: np.zeros(spec.shape, spec.dtype) for spec in specs}).result(30)
    except PipelineError as error:
        _check_origin(error)
    finally:
        running.close(timeout=20)
    return True


def _check_origin(error: PipelineError) -> None:
    # Whatever a device raises is wrapped into one of our own errors.
    if error.__cause__ is not None and not isinstance(error.__cause__, PipelineError):
        raise error.__cause__


def main() -> None:
    """Try the seeds."""
    source, folder, first, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    shutil.copytree(source, folder)
    content = json.loads((source / "stage0.so").read_bytes())
    loaded = 0
    for seed in range(first, first + count):
        rewrite_library(folder, mutate(random.Random(seed), content))
        try:
            loaded += attempt(folder)
        except BaseException as error:  # noqa: BLE001 - any is what is looked for
            frame = traceback.extract_tb(error.__traceback__)[-1]
            print(f"{seed}: {type(error).__name__}: {str(error)[:200]} ({frame.filename}:{frame.lineno})", flush=True)
    print(f"loaded {loaded} of {count}")


if __name__ == "__main__":
    main()
