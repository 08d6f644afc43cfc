"""Analysis of the compiler's code for Arm cores; bench/arm.py is its command.

`python -m tools.arm.table` writes the figures of boards, `python -m tools.arm.check` compares the method with this
machine.  Networks and reports are those of the benchmarks, scripts that import each other by their plain names.
"""

import sys
from pathlib import Path

_BENCHMARKS = str(Path(__file__).resolve().parents[2] / "bench")
if _BENCHMARKS not in sys.path:
    sys.path.append(_BENCHMARKS)
