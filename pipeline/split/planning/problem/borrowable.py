"""Borrowable devices, by the capabilities of their kinds."""

from __future__ import annotations

from pipeline.core.board.board import Board, Device
from pipeline.errors import PlanError, near


def is_borrowable(device: Device) -> bool:
    """Check for a local device without cores, open to borrowing."""
    kind = device.capabilities
    return not device.cores and not device.address and kind.computes and not kind.occupies_cores


def may_borrow(device: Device) -> bool:
    """Check for a device of local cores, whose workers may borrow."""
    return bool(device.cores) and not device.address and device.capabilities.occupies_cores


def split_name(board: Board, name: str) -> tuple[str, tuple[str, ...]]:
    """Return own and borrowed devices of a name such as ``"cpu+vta"``.

    Raises `PlanError` if one of them cannot be borrowed, or the first one not borrow; `BoardError` if the board has no
    such device.
    """
    home, *borrowed = name.split("+")
    if borrowed and not may_borrow(board.device(home)):
        raise PlanError(f"{name!r}: {home!r} has no cores of this machine whose workers could borrow a device")
    for device in borrowed:
        if not is_borrowable(board.device(device)):
            names = [device.name for device in board.devices if is_borrowable(device)]
            raise PlanError(
                f"{name!r}: {device!r} cannot be borrowed; board {board.name!r} has "
                f"{', '.join(names) or 'nothing that can be'}{near(device, names)}"
            )
    return home, tuple(borrowed)
