"""Transfer costs: seconds of workers on moving tensors.

Tensors travel between memories as arrays of the caller's memory: a stage elsewhere brings in what it reads from there,
and hands out what others read.  A stage in the caller's memory uses them where they are; what it spends is changing
their layout.
"""

from __future__ import annotations

import numpy as np

from pipeline.core.board.board import Amount, Board, Device

LAYOUT = 3.0
"""Cost of layouts at a cut for a CPU stage, as a multiple of fetching its tensors from memory: a cut is in the model's
layout, kernels have one of their own. Cuts in the middle of three networks took 0.5 to 5 on each side, by the time of
the stages one after the other over that of the whole model."""

Route = tuple[Device, Device]
"""Ends between which one worker moves a tensor."""


def enter_route(board: Board, source: Device | None, target: Device) -> Route | None:
    """Return the route of a tensor brought in; None in place.

    `source` is None for what the caller gives.
    """
    at_home = board.home
    origin = source or at_home
    if origin is None or at_home is None or target.memory in (origin.memory, at_home.memory):
        return None
    return (at_home, target) if _passes_home(board, origin, target) else (origin, target)


def leave_route(board: Board, source: Device, target: Device | None) -> Route | None:
    """Return the route of a tensor handed out; None in place.

    `target` is None for what the caller gets.
    """
    at_home = board.home
    reader = target or at_home
    if at_home is None or reader is None or source.memory in (reader.memory, at_home.memory):
        return None
    return (source, at_home) if _passes_home(board, source, reader) else None


def enter_s(board: Board, source: Device | None, target: Device, nbytes: Amount, tensors: Amount | int = 1) -> Amount:
    """Return a worker's seconds to bring in bytes, or raise `BoardError`; None is the caller.

    `nbytes` is one number, or an array of them, of so many `tensors` together: each is copied by itself.
    """
    if source is not None and source.memory == target.memory:
        # The reader's caches have to fetch them once; what the caller gives is read in any case.
        return board.transfer_s(source, target, nbytes) + _layout_s(target, nbytes)
    return _seconds(board, enter_route(board, source, target), nbytes, tensors)


def leave_s(board: Board, source: Device, target: Device | None, nbytes: Amount, tensors: Amount | int = 1) -> Amount:
    """Return a worker's seconds to hand out bytes, or raise `BoardError`; None is the caller.

    `nbytes` is one number, or an array of them, of so many `tensors` together: each is copied by itself.
    """
    if target is not None and source.memory == target.memory:
        return _layout_s(source, nbytes)
    return _seconds(board, leave_route(board, source, target), nbytes, tensors)


def link_ends(board: Board, route: Route | None) -> tuple[str, str] | None:
    """Return the ends of the link on a route, or None."""
    # A shared link moves nothing, so that no two transfers wait for each other on it.
    link = None if route is None else board.link(route[0].memory, route[1].memory)
    return None if link is None or link.shared else link.ends


def _seconds(board: Board, route: Route | None, nbytes: Amount, tensors: Amount | int) -> Amount:
    if route is None or not np.any(nbytes):
        return 0.0 * nbytes
    link = board.link(route[0].memory, route[1].memory)
    latency_s = link.latency_s if link is not None else 0.0
    # Where nothing crosses, nothing is sent, which does not even take the link's latency.
    return (board.transfer_s(*route, nbytes) + latency_s * (tensors - 1)) * (nbytes > 0)


def _layout_s(device: Device, nbytes: Amount) -> Amount:
    return LAYOUT * nbytes / device.bytes_per_s if device.capabilities.is_processor else 0.0 * nbytes


def _passes_home(board: Board, source: Device, target: Device) -> bool:
    """Check if bytes between two memories pass the caller's."""
    at_home = board.home
    if at_home is None or at_home.memory in (source.memory, target.memory):
        return True
    # The scheduler's copies go through arrays of the caller; only devices without a way there use a link of their
    # own.
    return all(board.link(device.memory, at_home.memory) is not None for device in (source, target))


def replicas_on(device: Device, replicas: int = 1) -> int:
    """Return a stage's replicas: two per computed frame with overlap."""
    return 2 * replicas if device.overlaps else replicas


def own_cores(device: Device, cores: tuple[int, ...]) -> tuple[int, ...]:
    """Return a stage's planned cores; a server divides its own."""
    return cores if device.capabilities.assigns_cores else ()
