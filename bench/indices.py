"""Cost of the checks that indices of a frame lie inside: gathers and scatters with and without, interleaved.

Of each operator 64 kB, 1 MB and 16 MB are moved, as rows of one to 256 elements.  The ratio is the median over
pairs of neighbouring runs of the same tensors, in processor time, so that others on the machine disturb it little.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import report

from pipeline.core.board.board import Device
from pipeline.executor.build import compile_stage
from pipeline.executor.kernels.tir import bounds
from pipeline.tvm.access import tvm

WIDTHS = (1, 16, 256)
KILOBYTES = (64, 1024, 16384)
SAMPLE_SECONDS = 100e-6
TABLE_ROWS = 1000
"""Rows that indices choose from; a table of 1000 rows of one element lies in the first cache, one of 256 does not."""


class Case(NamedTuple):
    """An operator with its inputs."""

    name: str
    operator: Callable[..., Any]
    inputs: Sequence[np.ndarray]


def cases(kilobytes: int, dtype: str) -> Iterator[Case]:
    """Yield operators that move so many kB of float32 by indices of a dtype."""
    from tvm.relax import op

    elements, random = kilobytes * 256, np.random.default_rng(0)

    def indices(*shape: int) -> np.ndarray:
        return random.integers(0, TABLE_ROWS, shape).astype(dtype)

    for width in WIDTHS:
        rows = elements // width
        table, updates = np.ones((TABLE_ROWS, width), np.float32), np.ones((rows, width), np.float32)
        yield Case(f"take {width}", lambda x, i: op.take(x, i, 0), [table, indices(rows)])
        if dtype == "int64":
            yield Case(f"gather_nd {width}", op.gather_nd, [table, indices(rows, 1)])
            yield Case(f"scatter_nd {width}", op.scatter_nd, [table, indices(rows, 1), updates])
            square = np.ones((TABLE_ROWS, TABLE_ROWS, width), np.float32) if width == 1 else table[:, None]
            if width == 1:
                yield Case("gather_nd of two axes", op.gather_nd, [square, indices(rows, 2)])
    table = np.ones((TABLE_ROWS, 64), np.float32)
    lines = indices(elements // 64, 64)
    yield Case("gather_elements", lambda x, i: op.gather_elements(x, i, 0), [table, lines])
    updates = np.ones(lines.shape, np.float32)
    yield Case("scatter_elements", lambda x, i, u: op.scatter_elements(x, i, u, 0), [table, lines, updates])


def program(case: Case, inputs: Sequence[Any], *, checks: bool) -> Callable[[], Any]:
    """Return a call of an operator, compiled for one core of this machine."""
    from tvm import relax

    builder = relax.BlockBuilder()
    parameters = [
        relax.Var(f"p{number}", relax.TensorType(array.shape, str(array.dtype)))
        for number, array in enumerate(case.inputs)
    ]
    with builder.function("main", parameters):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(case.operator(*parameters)))
        builder.emit_func_output(result)
    unguarded = mock.patch.object(bounds, "guard_module", lambda *modules: modules[1])
    with unguarded if not checks else mock.patch.dict({}):
        code = compile_stage(builder.get(), Device("cpu", "cpu"))
    main = tvm.relax.VirtualMachine(code.executable, tvm.cpu())["main"]
    arguments = [*inputs, *map(tvm.runtime.tensor, code.parameters.values())]
    return lambda: main(*arguments)


def measure(case: Case, seconds: float) -> dict[str, Any]:
    """Return a row: medians of both sides, and their ratio."""
    # Where memory lies counts more than a check: both sides read the same.
    inputs = [tvm.runtime.tensor(array) for array in case.inputs]
    sides = [program(case, inputs, checks=checks) for checks in (False, True)]
    times: list[tuple[float, ...]] = []
    for run in sides:
        run()
    calls = max(1, int(SAMPLE_SECONDS / _time(sides[0], 1)))
    begin = time.perf_counter()
    while len(times) < 20 or time.perf_counter() - begin < seconds:
        # Either side is first in every other pair.
        order = (0, 1) if len(times) % 2 else (1, 0)
        pair = dict(zip(order, (_time(sides[side], calls) for side in order), strict=True))
        times.append((pair[0], pair[1]))
    return {
        "unchecked_us_p50": statistics.median(first for first, _ in times) * 1e6,
        "checked_us_p50": statistics.median(second for _, second in times) * 1e6,
        "ratio": statistics.median(second / first for first, second in times),
    }


def _time(run: Callable[[], Any], calls: int) -> float:
    begin = time.thread_time()
    for _ in range(calls):
        run()
    return (time.thread_time() - begin) / calls


def main() -> None:
    """Measure, print the table, and the geometric mean over all rows."""
    options = report.parser(__doc__).parse_args()
    rows = []
    for dtype in ("int32", "int64"):
        for kilobytes in KILOBYTES[:1] if options.quick else KILOBYTES:
            for case in cases(kilobytes, dtype):
                row = measure(case, 0.3 if options.quick else 1.0)
                rows.append({"operator": case.name, "index": dtype, "moved_kb": kilobytes, **row})
    mean = math.exp(statistics.fmean(math.log(row["ratio"]) for row in rows))
    worst = max(row["ratio"] for row in rows)
    report.report(
        "Checks of indices", rows, f"geometric mean of the ratios {mean:.3f}, worst {worst:.3f}", options.json
    )


if __name__ == "__main__":
    main()
