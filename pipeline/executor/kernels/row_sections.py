"""Row sections: parts of a row in whose vectors all lanes meet the same conditions.

TVM computes a vector with a condition element by element.  Rows have conditions where they end within a vector, and
where they are put together: the class scores of an int8 YOLOv8n took 3.7 ms, and take 0.6 in sections.
"""

from __future__ import annotations

import itertools
from typing import Any

import tvm
from tvm import tirx
from tvm.sym import Analyzer

from pipeline.tvm.objects import mutate

MOST = 8
"""Sections of a row before its ends are split off, each with code of its own."""

_COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE)


def of_block(block: Any, lanes: int) -> list[int]:
    """Return the sizes of a row's sections, of which whole vectors and what is left are two."""
    axis = block.iter_vars[-1]
    extent = int(axis.dom.extent)
    borders = sorted({0, *_borders(block.body, axis.var, extent), extent})
    if len(borders) > MOST + 1:
        borders = [0, extent]
    sizes = [end - start for start, end in itertools.pairwise(borders)]
    return [part for size in sizes for part in (size - size % lanes, size % lanes) if part]


def _borders(body: Any, index: Any, extent: int) -> set[int]:
    """Return the places at which a comparison of a row's index changes."""
    analyzer, borders = Analyzer(), set[int]()
    analyzer.bind(index, tvm.ir.Range(0, extent))

    def look(comparison: Any, mutator: Any) -> Any:
        test = analyzer.simplify(comparison)
        if isinstance(test, _COMPARISONS):
            is_left = test.a.same_as(index)
            bound = test.b if is_left else test.a
            if (is_left or test.b.same_as(index)) and isinstance(bound, tirx.IntImm):
                # Of i < 3 and i >= 3 the third place begins a section, of i <= 3 and i > 3 the fourth.
                borders.add(int(bound) + isinstance(test, (tirx.LE, tirx.GT) if is_left else (tirx.LT, tirx.GE)))
        return mutator.default_mutate(comparison)

    mutate(body, [(kind, look) for kind in _COMPARISONS])
    return {border for border in borders if 0 < border < extent}
