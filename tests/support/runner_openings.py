"""Opens a bundle in the C++ runner again and again, each time with other code; run as a process.

Arguments: the folders of the runner and of the tests' libraries, a bundle of arithmetic stages that may be changed, and
how often.  Of the code, only bytes behind its end differ.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from pathlib import Path
from typing import Any

from tests.support.bundles import rewrite
from tests.support.runner import Library


def renew(bundle: Path, number: int) -> int:
    """Write other code for each stage, and return how many there are."""
    count = 0

    def change(content: Any) -> None:
        nonlocal count
        for place, stage in enumerate(content["stages"]):
            library = stage["library"]
            data = (bundle / library["file"]).read_bytes() + b"%d %d" % (number, place)
            (bundle / f"{place}.so").write_bytes(data)
            stage["library"] = {"file": f"{place}.so", "sha256": hashlib.sha256(data).hexdigest(), "nbytes": len(data)}
            count += 1

    rewrite(bundle, change)
    return count


def main() -> None:
    """Open the bundle, so many times."""
    # As in the fixtures: one copy of TVM's libraries, for all.
    import tvm  # noqa: F401

    built, native, bundle, times = *map(Path, sys.argv[1:4]), int(sys.argv[4])
    library = Library(built / "libsoc_pipeline.so")
    ctypes.CDLL(str(native / "libarithmetic.so"), ctypes.RTLD_GLOBAL)
    count = 0
    for number in range(times):
        count += renew(bundle, number)
        library.open(bundle).close()
    print(count, "libraries")


if __name__ == "__main__":
    main()
