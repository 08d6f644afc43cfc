"""Graph + board -> Problem: groups as items, clusters and devices as processors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pipeline.core.board.board import Board, Device
from pipeline.prediction.contention import WAKING_S
from pipeline.split.cuts import crossing_counts
from pipeline.split.graph import Graph
from pipeline.split.planning.problem.board_processors import BoardProcessor, board_processors
from pipeline.split.planning.problem.border_kinds import board_borders
from pipeline.split.planning.problem.choice_builder import DeviceTimes, Seconds, Spans, Variants, board_choices
from pipeline.split.planning.problem.footprint import Footprint
from pipeline.split.planning.problem.problem import MemoryLimit, Problem, Processor
from pipeline.split.planning.problem.request import ANY_REQUEST, PlanRequest
from pipeline.split.planning.problem.resources import add_links, add_memories, add_turns


def build_problem(  # noqa: PLR0913 - all but the first three by keyword
    graph: Graph,
    board: Board,
    seconds: Seconds,
    *,
    variants: Variants = lambda device: device.variants,
    spans: Spans = lambda _: None,
    queue_depth: int = 1,
    replicas: bool = True,
    request: PlanRequest = ANY_REQUEST,
    extend: Callable[[Problem], Problem] = lambda problem: problem,
) -> Problem:
    """Return the problem of dividing `graph` among the board's devices.

    `seconds` are those of each fused group under some threads on a device, or without cores under one; `spans` returns
    the times of spans where they are not the sums of those. `variants` names a device with those of its runtimes that
    stages may have. `extend` adds other choices, while the problem has all of its items.
    """
    processors, footprint = board_processors(board), Footprint.of(graph)
    counts = np.array([len(graph.frame_inputs), *crossing_counts(graph), len(graph.frame_outputs)], np.float64)
    borders = board_borders(board, [processor.device for processor in processors], footprint.border_bytes, counts)
    problem = Problem(
        processors=tuple(_processor(processor) for processor in processors),
        choices=tuple(
            board_choices(board, processors, DeviceTimes(seconds, variants, spans), request, replicas=replicas)
        ),
        enter=borders.enter,
        leave=borders.leave,
        memories=_memories(board, processors),
        parameters=footprint.parameters,
        workspace=footprint.workspace,
        hop_s=WAKING_S,
        queue_bytes=footprint.border_bytes * queue_depth,
        stages=tuple(_processors_of(processors, devices) for devices in request.devices),
        runtimes=tuple(
            # A device by its own name is TVM's, unless any of the board's will do.
            frozenset()
            if devices == board.devices
            else frozenset({request.name(stage)} - {""} or {device.name for device in devices})
            for stage, devices in enumerate(request.devices)
        ),
    )
    devices = [processor.device for processor in processors]
    problem = add_turns(problem, devices, borders)
    problem = add_links(problem, devices, borders)
    problem = extend(add_memories(problem, graph, board, devices, borders))
    return problem.merge_items(request.edges) if request.edges else problem


def _processors_of(processors: Sequence[BoardProcessor], devices: Sequence[Device]) -> tuple[int, ...]:
    return tuple(
        index
        for index, processor in enumerate(processors)
        if any(processor.device.is_called(device.name) for device in devices)
    )


def memory_sizes(board: Board) -> dict[str, int]:
    """Return the bytes of each memory of known size."""
    sizes: dict[str, list[int]] = {}
    for device in board.devices:
        if device.memory_bytes:
            sizes.setdefault(device.memory, []).append(device.memory_bytes)
    # Devices that disagree on a memory's size: the smallest is safe.
    return {name: min(candidates) for name, candidates in sizes.items()}


def _processor(processor: BoardProcessor) -> Processor:
    device = processor.device
    name = device.name if len(device.clusters) < 2 or not processor.cores else f"{device.name} cores {processor.cores}"
    if processor.cores:
        return Processor(name, len(processor.cores))
    return Processor(name, device.places, overlaps=device.overlaps)


def _memories(board: Board, processors: Sequence[BoardProcessor]) -> tuple[MemoryLimit, ...]:
    return tuple(
        MemoryLimit(size, tuple(index for index, processor in enumerate(processors) if processor.device.memory == name))
        for name, size in memory_sizes(board).items()
    )
