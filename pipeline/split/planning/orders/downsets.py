"""Downsets as positions: division of a graph in several orders.

A chain's position stands for the items in front of it.  Here each position stands for a downset, a set of groups that
has all that its groups read; a stage reaches from one to another that contains it.  The solver need not know: the times
of spans that are none are infinite.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise, permutations

import numpy as np
from numpy.typing import NDArray

from pipeline.core.board.board import Board
from pipeline.split.orders import GroupDag
from pipeline.split.planning.problem.arrays import Array
from pipeline.split.planning.problem.board_processors import board_processors
from pipeline.split.planning.problem.border_kinds import board_borders
from pipeline.split.planning.problem.choice import Choice
from pipeline.split.planning.problem.problem import Problem

_MOST_PERMUTATIONS = 6


def downset_problem(problem: Problem, dag: GroupDag, board: Board, downsets: Sequence[int]) -> Problem | None:
    """Return the problem over downsets; None without additive choices.

    Memories and links are left out, so that it may promise more than a division in an order keeps. No downset comes
    before one that it contains; the first is empty, the last has all groups.
    """
    members = dag.membership(downsets)
    devices = [processor.device for processor in board_processors(board)]
    borders = board_borders(board, devices, *dag.crossing(members))
    # What comes from the caller and goes to him is no tensor between groups.
    for seconds, outer in ((borders.enter, problem.enter), (borders.leave, problem.leave)):
        seconds[:, :, 0], seconds[:, :, -1] = outer[:, :, 0], outer[:, :, -1]
    counts = members.astype(np.float32)
    # In which no group of the first is missing from the second.
    contained = counts @ (1 - counts).T == 0
    contained &= counts.sum(axis=1)[:, None] < counts.sum(axis=1)
    choices = tuple(_over_downsets(choice, counts.astype(float), contained.T) for choice in problem.choices)
    usable = tuple(choice for choice in choices if choice is not None)
    if not usable:
        return None
    return Problem(
        problem.processors, usable, borders.enter, borders.leave, resources=problem.resources, stages=problem.stages,
        runtimes=problem.runtimes, hop_s=problem.hop_s,
    )  # fmt: skip


def _over_downsets(choice: Choice, members: Array, spans: NDArray[np.bool_]) -> Choice | None:
    """Return a choice over downsets, or None if not additive."""
    if choice.spans is not None or any(load.ndim > 1 for load in choice.loads.values()):
        return None
    return replace(
        choice,
        seconds=np.zeros(len(members) - 1),
        spans=_differences(choice.seconds, members, spans),
        loads={index: np.where(spans, _differences(load, members, spans), 0.0) for index, load in choice.loads.items()},
    )


def _differences(values: Array, members: Array, spans: NDArray[np.bool_]) -> Array:
    """Return the sums between two downsets; infinite without a span."""
    is_finite = np.isfinite(values)
    sums = members @ np.where(is_finite, values, 0.0)
    infinities = members @ ~is_finite
    result = np.maximum(np.subtract.outer(sums, sums), 0.0)
    result[~spans | (np.subtract.outer(infinities, infinities) > 0)] = np.inf
    return result


def sample_downsets(problem: Problem, dag: GroupDag, limit: int) -> list[int]:
    """Return about `limit` downsets of several orders."""
    orders = list(affinity_orders(problem, dag))
    result: dict[int, None] = {}
    # Positions that lie evenly in each order: cuts are looked for closer once the order is known.
    step = -(-len(dag) * len(orders) // limit)
    for order in orders:
        prefixes = dag.prefixes(order)
        result.update(dict.fromkeys([*prefixes[::step], prefixes[-1]]))
    # None before one that it contains.
    return sorted(result, key=int.bit_count)


def affinity_orders(problem: Problem, dag: GroupDag) -> Iterator[Sequence[int]]:
    """Yield the own order, and orders by preferred processors."""
    yield range(len(dag))
    # Each item's least interval on each processor.
    seconds = np.full((len(problem.processors), problem.items), np.inf)
    for choice in problem.choices:
        seconds[choice.processor] = np.minimum(seconds[choice.processor], choice.seconds / choice.rate)
    favourites = seconds.argmin(axis=0)
    used = [int(processor) for processor in np.unique(favourites)]
    for ranking in islice(permutations(used), _MOST_PERMUTATIONS):
        rank = {processor: number for number, processor in enumerate(ranking)}
        ranks = [float(rank[int(processor)]) for processor in favourites]
        yield dag.depth_first(ranks)
        yield dag.order_by(ranks)
        yield dag.order_by(ranks, backwards=True)
    for first, last in permutations(used, 2):
        # By how much more a group takes on the first one: where it takes much more, it goes to the last one.
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios = np.nan_to_num(np.log(seconds[first]) - np.log(seconds[last]), posinf=1e3, neginf=-1e3)
        yield dag.order_by(ratios.tolist())
        yield dag.order_by(ratios.tolist(), backwards=True)


def order_through(downsets: Sequence[int], groups: int) -> list[int]:
    """Return the order through downsets, stable between them."""
    return [
        group
        for smaller, larger in pairwise([0, *downsets, (1 << groups) - 1])
        for group in range(groups)
        if (larger & ~smaller) >> group & 1
    ]
