"""Borrowings of a board: workers and devices, by capabilities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pipeline.core.board.board import Device
from pipeline.split.planning.borrowing.heterogeneous_choices import Borrowing
from pipeline.split.planning.problem.board_processors import BoardProcessor
from pipeline.split.planning.problem.request import PlanRequest, is_borrowable, may_borrow

MOST_DEVICES = 3
"""Most devices that one stage borrows unasked: the time to look for paths grows with the square of their number."""


def board_borrowings(
    processors: Sequence[BoardProcessor], request: PlanRequest, *, replicas: bool
) -> Iterator[Borrowing]:
    """Yield the requested borrowings, or each device and all together."""
    devices = [index for index, processor in enumerate(processors) if is_borrowable(processor.device)]
    for home, processor in enumerate(processors):
        if not may_borrow(processor.device):
            continue
        for group in _groups(processors, processor.device, devices, request):
            names = [processors[index].device.name for index in group]
            yield Borrowing(
                own=home,
                devices=group,
                name="+".join((processor.device.name, *names)),
                most_units=request.spare_units(processor.device),
                others=tuple(
                    index
                    for index, candidate in enumerate(processors)
                    if index != home and candidate.device is processor.device and candidate.cores
                ),
                replicas=replicas,
                # Whoever asks for several such stages gets them, and may let them share a device.
                exclusive=not request.devices,
                on_request=bool(request.devices),
            )


def _groups(
    processors: Sequence[BoardProcessor], home: Device, devices: Sequence[int], request: PlanRequest
) -> list[tuple[int, ...]]:
    if request.devices:
        names = [processor.device.name for processor in processors]
        return list(
            dict.fromkeys(
                tuple(names.index(name) for name in borrowed)
                for stage, borrowed in zip(request.devices, request.borrowed, strict=False)
                if borrowed and any(home.is_called(device.name) for device in stage)
            )
        )
    # Of those that are alike, such as the cores of an NPU, one: a stage has what it borrows for itself.
    unlike = list({_description(processors[index].device): index for index in reversed(devices)}.values())[::-1]
    together = [tuple(unlike)] if 1 < len(unlike) <= MOST_DEVICES else []
    return [*((device,) for device in unlike), *together]


def _description(device: Device) -> str:
    # As a text, since targets are no keys; which one of several it is, only options say.
    return repr(replace(device, name="", index=0, target={**(device.target or {}), "options": None}))
