"""Access patterns: flattened elements of GEMM and ALU, in parallel runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from boards.vta.isa.config import Config
from boards.vta.isa.encoding import Uops, uop_indices
from boards.vta.isa.instructions import Alu, Gemm

Indices = npt.NDArray[np.int64]

NEVER = 1 << 40
"""A distance longer than any."""

PIECE_SIZE = 1 << 15
"""Micro-ops per piece of work. It bounds the memory for an instruction of millions."""

_EXACT_TERMS = 1024
"""Products of two int8 in one sum: 1024 x 2^14 is 2^24, the limit of exact float32 counting."""


@dataclass(frozen=True, eq=False)
class MatrixProduct:
    """Micro-ops as one product: ACC[dst] += sum over r of INP[src[:, r]] x transposed WGT[wgt[r]].

    Attributes
    ----------
    dst : int64[p]
        Elements of ACC, all different, unless `repeats`.
    src : int64[p, r]
        Elements of INP, a column for each weight element.
    wgt : int64[r]
        The weight elements.
    repeats : bool
        True if some element of `dst` occurs twice.
    """

    dst: Indices
    src: Indices
    wgt: Indices
    repeats: bool


@dataclass(frozen=True, eq=False)
class MicroOpPiece:
    """Some consecutive micro-ops of an instruction.

    Attributes
    ----------
    dst, src : int64[n]
        Elements of each micro-op; `src` is empty where nothing is read by it.
    dsts, srcs, wgts : int64[...]
        Elements without repetition, sorted.
    distance : int
        Micro-ops from the write of an ACC element to the next one that reads it, at the least; or `NEVER`.
    hazard : int
        An element with that distance.
    products : tuple of MatrixProduct
        Products of GEMM: all micro-ops, in any order.
    runs : tuple of slice
        Runs of ALU: micro-ops that do not depend on each other, in order.
    """

    dst: Indices
    src: Indices
    dsts: Indices
    srcs: Indices
    wgts: Indices
    distance: int
    hazard: int
    products: tuple[MatrixProduct, ...] = ()
    runs: tuple[slice, ...] = ()


@dataclass(frozen=True)
class _LoopPattern:
    """Loops of an instruction without micro-ops, shared by a layer's tiles.

    `reads` is "weights", "nothing" (a reset), "another" element of ACC, or none but the one it writes, "itself".
    """

    reads: str
    turns: tuple[int, int]
    dst: tuple[int, int]
    src: tuple[int, int]
    wgt: tuple[int, int]


def pieces(
    config: Config, instruction: Gemm | Alu, uops: Uops, window: int, size: int = PIECE_SIZE
) -> Iterator[MicroOpPiece]:
    """Yield an instruction's micro-ops in order, in pieces.

    Parameters
    ----------
    config : Config
        The accelerator.
    instruction : Gemm or Alu
        Instruction to flatten.
    uops : uint32[n]
        Micro-ops of the instruction, from `uop_bgn` to `uop_end`.
    window : int
        Distances up to this one are found across the ends of pieces, too.
    size : int
        Micro-ops of a piece.
    """
    # Values that can be hashed: tiles of one layer differ in neither, and share their pieces.
    walk, text = _walk(instruction), uops.tobytes()
    for start in range(0, instruction.count, size):
        yield _piece(config, walk, text, (start, min(start + size, instruction.count)), window)


def _walk(step: Gemm | Alu) -> _LoopPattern:
    if isinstance(step, Gemm):
        reads, wgt = "nothing" if step.reset_reg else "weights", (step.wgt_factor_out, step.wgt_factor_in)
    else:
        reads, wgt = "itself" if step.use_imm else "another", (0, 0)
    dst, src = (step.dst_factor_out, step.dst_factor_in), (step.src_factor_out, step.src_factor_in)
    return _LoopPattern(reads, (step.iter_out, step.iter_in), dst, src, wgt)


# Few, for pieces hold arrays; the tiles of a layer that share one follow each other.
@lru_cache(maxsize=128)
def _piece(config: Config, walk: _LoopPattern, text: bytes, span: tuple[int, int], window: int) -> MicroOpPiece:
    start, stop = span
    # Micro-ops before the piece are flattened too: they may have written what its first ones read.
    context_start = max(0, start - window)
    dst, src, wgt = _flat(config, walk, np.frombuffer(text, np.uint32), context_start, stop)
    operand = src if walk.reads == "another" else None
    last = np.full(len(dst), -1) if walk.reads == "nothing" else _last_writes(dst, operand)
    positions = np.arange(len(dst))
    distances = np.where(last >= 0, positions - last, NEVER)
    distance = int(distances.min())
    # Where nothing is read that was written, `last` is -1 everywhere: any element, at the distance `NEVER`.
    hazard = int(dst[last[distances.argmin()]])
    dst, src, wgt, last = (
        indices[start - context_start :] for indices in (dst, src, wgt, last - (start - context_start))
    )
    products = _products(config, dst, src, wgt) if walk.reads == "weights" else ()
    # A GEMM adds, in any order; of ALU, each micro-op may need the result of the one before.
    runs = _runs(last) if walk.reads in ("itself", "another") else ()
    no_elements = np.zeros(0, np.int64)
    src = src if walk.reads in ("weights", "another") else no_elements
    wgts = np.unique(wgt) if walk.reads == "weights" else no_elements
    return MicroOpPiece(dst, src, np.unique(dst), np.unique(src), wgts, distance, hazard, products, runs)


def _flat(config: Config, walk: _LoopPattern, uops: Uops, start: int, stop: int) -> tuple[Indices, Indices, Indices]:
    """Return the elements of micro-ops `start` to `stop` over both loops."""
    turn, uop_position = np.divmod(np.arange(start, stop), len(uops))
    outer_turn, inner_turn = np.divmod(turn, walk.turns[1])
    bases = uop_indices(config, uops)
    dst, src, wgt = (
        base[uop_position] + outer_turn * factors[0] + inner_turn * factors[1]
        for base, factors in zip(bases, (walk.dst, walk.src, walk.wgt), strict=True)
    )
    return dst, src, wgt


def _last_writes(dst: Indices, src: Indices | None) -> Indices:
    """Return per micro-op the last earlier writer of its operands, or -1."""
    count = len(dst)
    # Element and time in one number: sorted, the last write before a read is found by bisection.
    writes = np.sort(dst * count + np.arange(count))
    last = _last_before(writes, dst)
    return last if src is None else np.maximum(last, _last_before(writes, src))


def _last_before(writes: Indices, read: Indices) -> Indices:
    count = len(read)
    # The largest key below the read's own: an earlier write of the element, or one of another element.
    position = np.searchsorted(writes, read * count + np.arange(count)) - 1
    element, index = np.divmod(writes[position], count)
    return np.where((position >= 0) & (element == read), index, -1)


def _runs(last: Indices) -> tuple[slice, ...]:
    """Cut before micro-ops with operands written since the last cut."""
    cuts = [0]
    for position, write in enumerate(last.tolist()):
        # Reads of what was written before the last cut are safe: that run is over.
        if write >= cuts[-1]:
            cuts.append(position)
    return tuple(slice(start, stop) for start, stop in pairwise((*cuts, len(last))))


def _products(config: Config, dst: Indices, src: Indices, wgt: Indices) -> tuple[MatrixProduct, ...]:
    """Merge micro-ops of equal weights into products, of equal destinations into longer sums."""
    # Stable, so that groups with the same destinations have them in the same order and can be joined.
    order = np.argsort(wgt.astype(np.uint32), kind="stable")
    bounds = [0, *(np.flatnonzero(np.diff(wgt[order])) + 1).tolist(), len(order)]
    # Each group that is joined makes every sum longer by a block of products.
    longest = max(1, _EXACT_TERMS // config.block)
    group_lists: list[list[Indices]] = []
    for start, stop in pairwise(bounds):
        group = order[start:stop]
        if group_lists and len(group_lists[-1]) < longest and np.array_equal(dst[group_lists[-1][0]], dst[group]):
            group_lists[-1].append(group)
        else:
            group_lists.append([group])
    return tuple(_product(dst, src, wgt, groups) for groups in group_lists)


def _product(dst: Indices, src: Indices, wgt: Indices, groups: list[Indices]) -> MatrixProduct:
    destinations = dst[groups[0]]
    repeats = len(np.unique(destinations)) < len(destinations)
    weights = np.array([wgt[group[0]] for group in groups])
    return MatrixProduct(destinations, np.stack([src[group] for group in groups], axis=1), weights, repeats)
