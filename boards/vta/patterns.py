"""The elements that a GEMM or ALU instruction touches, flattened over its loops, and what may be computed at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from boards.vta.config import Config
from boards.vta.encoding import Uops, uop_indices
from boards.vta.instructions import Alu, Gemm

Indices = npt.NDArray[np.int64]

NEVER = 1 << 40
"""A distance longer than any."""

_PIECE = 1 << 15
"""Micro-ops worked on at once, which bounds the memory for an instruction that has millions."""

_EXACT_TERMS = 1024
"""Products of two int8 in one sum: 1024 x 2^14 is 2^24, up to which float32 counts exactly."""


@dataclass(frozen=True, eq=False)
class Product:
    """Micro-ops that are one matrix product: ACC[dst] += sum over r of INP[src[:, r]] x transposed WGT[wgt[r]].

    Attributes
    ----------
    dst : int64[p]
        All different, unless `repeats`.
    src : int64[p, r]
        One column for each weight element.
    wgt : int64[r]
        The weight elements.
    repeats : bool
        Whether some element of `dst` occurs twice.
    """

    dst: Indices
    src: Indices
    wgt: Indices
    repeats: bool


@dataclass(frozen=True, eq=False)
class Piece:
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
    products : tuple of Product
        For GEMM: all micro-ops, in any order.
    runs : tuple of slice
        For ALU: micro-ops that do not depend on each other, in order.
    """

    dst: Indices
    src: Indices
    dsts: Indices
    srcs: Indices
    wgts: Indices
    distance: int
    hazard: int
    products: tuple[Product, ...] = ()
    runs: tuple[slice, ...] = ()


@dataclass(frozen=True)
class _Walk:
    """What of an instruction decides which elements it touches: tiles of one layer share it.

    `reads` is "weights", "nothing" (a reset), "another" element of ACC, or none but the one it writes, "itself".
    """

    reads: str
    turns: tuple[int, int]
    dst: tuple[int, int]
    src: tuple[int, int]
    wgt: tuple[int, int]


def pieces(config: Config, instruction: Gemm | Alu, uops: Uops, window: int) -> Iterator[Piece]:
    """Yield the micro-ops of an instruction in order, piece by piece.

    Parameters
    ----------
    config : Config
        The accelerator.
    instruction : Gemm or Alu
        What to flatten.
    uops : uint32[n]
        Its micro-ops, from `uop_bgn` to `uop_end`.
    window : int
        Distances up to this one are found across the ends of pieces, too.
    """
    walk, text = _walk(instruction), uops.tobytes()
    for start in range(0, instruction.count, _PIECE):
        yield _piece(config, walk, text, (start, min(start + _PIECE, instruction.count)), window)


def _walk(each: Gemm | Alu) -> _Walk:
    if isinstance(each, Gemm):
        reads, wgt = "nothing" if each.reset_reg else "weights", (each.wgt_factor_out, each.wgt_factor_in)
    else:
        reads, wgt = "itself" if each.use_imm else "another", (0, 0)
    dst, src = (each.dst_factor_out, each.dst_factor_in), (each.src_factor_out, each.src_factor_in)
    return _Walk(reads, (each.iter_out, each.iter_in), dst, src, wgt)


@lru_cache(maxsize=128)
def _piece(config: Config, walk: _Walk, text: bytes, span: tuple[int, int], window: int) -> Piece:
    start, stop = span
    before = max(0, start - window)
    dst, src, wgt = _flat(config, walk, np.frombuffer(text, np.uint32), before, stop)
    operand = src if walk.reads == "another" else None
    last = np.full(len(dst), -1) if walk.reads == "nothing" else _last_writes(dst, operand)
    at = np.arange(len(dst))
    distances = np.where(last >= 0, at - last, NEVER)
    distance = int(distances.min())
    hazard = int(dst[last[distances.argmin()]])
    dst, src, wgt, last = (each[start - before :] for each in (dst, src, wgt, last - (start - before)))
    products = _products(config, dst, src, wgt) if walk.reads == "weights" else ()
    runs = _runs(last) if walk.reads in ("itself", "another") else ()
    nothing = np.zeros(0, np.int64)
    src = src if walk.reads in ("weights", "another") else nothing
    wgts = np.unique(wgt) if walk.reads == "weights" else nothing
    return Piece(dst, src, np.unique(dst), np.unique(src), wgts, distance, hazard, products, runs)


def _flat(config: Config, walk: _Walk, uops: Uops, start: int, stop: int) -> tuple[Indices, Indices, Indices]:
    """Return the elements of the micro-ops `start` to `stop`, counted over both loops."""
    turn, at = np.divmod(np.arange(start, stop), len(uops))
    outer, inner = np.divmod(turn, walk.turns[1])
    bases = uop_indices(config, uops)
    dst, src, wgt = (
        base[at] + outer * factors[0] + inner * factors[1]
        for base, factors in zip(bases, (walk.dst, walk.src, walk.wgt), strict=True)
    )
    return dst, src, wgt


def _last_writes(dst: Indices, src: Indices | None) -> Indices:
    """Return for each micro-op the last one before it that wrote what it reads (its `dst`, and `src`), or -1."""
    count = len(dst)
    writes = np.sort(dst * count + np.arange(count))
    found = _last_before(writes, dst)
    return found if src is None else np.maximum(found, _last_before(writes, src))


def _last_before(writes: Indices, read: Indices) -> Indices:
    count = len(read)
    place = np.searchsorted(writes, read * count + np.arange(count)) - 1
    element, at = np.divmod(writes[place], count)
    return np.where((place >= 0) & (element == read), at, -1)


def _runs(last: Indices) -> tuple[slice, ...]:
    """Cut wherever a micro-op reads what one since the last cut has written."""
    cuts = [0]
    for at, write in enumerate(last.tolist()):
        if write >= cuts[-1]:
            cuts.append(at)
    return tuple(slice(start, stop) for start, stop in pairwise((*cuts, len(last))))


def _products(config: Config, dst: Indices, src: Indices, wgt: Indices) -> tuple[Product, ...]:
    """Join the micro-ops with one weight element to a product, and those with the same destinations to longer sums."""
    order = np.argsort(wgt.astype(np.uint32), kind="stable")
    bounds = [0, *(np.flatnonzero(np.diff(wgt[order])) + 1).tolist(), len(order)]
    longest = max(1, _EXACT_TERMS // config.block)
    joined: list[list[Indices]] = []
    for start, stop in pairwise(bounds):
        group = order[start:stop]
        if joined and len(joined[-1]) < longest and np.array_equal(dst[joined[-1][0]], dst[group]):
            joined[-1].append(group)
        else:
            joined.append([group])
    return tuple(_product(dst, src, wgt, groups) for groups in joined)


def _product(dst: Indices, src: Indices, wgt: Indices, groups: list[Indices]) -> Product:
    where = dst[groups[0]]
    repeats = len(np.unique(where)) < len(where)
    weights = np.array([wgt[group[0]] for group in groups])
    return Product(where, np.stack([src[group] for group in groups], axis=1), weights, repeats)
