"""Opens bundles with changed manifests in the C++ runner, as `manifest_fuzzer` does in Python; run as a process.

Arguments: the bundle, a scratch folder, the first seed, and how many.  A crash ends the process; its seed is
in the file ``seed`` beside the folder.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
from pathlib import Path

import numpy as np

from tests.support.manifest_fuzzer import MEMORY, write_mutation
from tests.support.runner import ROOT, Library, RunnerError


def attempt(library: Library, folder: Path) -> bool:
    """Open and run a bundle; return whether it could be opened."""
    try:
        running = library.open(folder)
    except RunnerError as error:
        if len(str(error).splitlines()) != 1 or len(str(error)) > 1500:
            raise ValueError(f"no message of one line: {str(error)[:2000]}") from error
        return False
    with running:
        if sum(np.prod(shape) for shape, _ in running.inputs.values()) < 1 << 22:
            running.submit({name: np.zeros(shape, dtype) for name, (shape, dtype) in running.inputs.items()}, 20.0)
            assert running.next(30.0) is not None
    return True


def main() -> None:
    """Try the seeds."""
    source, folder, first, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    library = Library(ROOT / "build/runner/soc-runner/libsoc_pipeline.so")
    shutil.copytree(source, folder)
    content = json.loads((source / "manifest.json").read_bytes())
    loaded = 0
    for seed in range(first, first + count):
        write_mutation(folder, seed, content)
        folder.with_name("seed").write_text(str(seed))
        try:
            loaded += attempt(library, folder)
        except BaseException as error:  # noqa: BLE001 - any is what is looked for
            print(f"{seed}: {type(error).__name__}: {str(error)[:200]}", flush=True)
    print(f"loaded {loaded} of {count}")


if __name__ == "__main__":
    main()
