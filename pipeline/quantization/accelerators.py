"""Limits of a board's accelerators for a quantised model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.core.scale_limits import ScaleLimits

if TYPE_CHECKING:
    from pipeline.core.board.board import Board


def limits_of(board: Board | str | None, *, power_of_two: bool = False) -> ScaleLimits | None:
    """Return the scale limits common to a board's accelerators.

    Parameters
    ----------
    power_of_two : bool
        True if scales shall be powers of two whatever the board has; then with VTA's limits at least.

    Returns
    -------
    ScaleLimits or None
        Limits, or None if the scales may be any.

    Raises
    ------
    BoardError
        If there is no such board.
    """
    limits = [ScaleLimits()] if power_of_two else []
    if board is not None:
        import boards
        from pipeline.executor import devices

        described_board = boards.get(board) if isinstance(board, str) else board
        # Processors have no compiler but TVM, and compute with any scales.
        accelerator_limits = [
            compiler.scale_limits()
            for compiler in map(devices.compiler, described_board.devices)
            if compiler is not None
        ]
        limits += [limit for limit in accelerator_limits if limit is not None]
    if not limits:
        return None
    # The strictest of each, since one model runs on all of them.
    return ScaleLimits(*(min(getattr(limit, name) for limit in limits) for name in ("shift", "factor", "sum_bits")))
