"""Pins: allowed devices of fused groups, by users or annotations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pipeline.core.board.board import Board, Device
from pipeline.core.board.device_kinds import device_kind
from pipeline.errors import PlanError, near
from pipeline.split.cuts import operators_by_name
from pipeline.split.graph import Graph


@dataclass(frozen=True)
class Pin:
    """Allowed devices of a fused group, with the reason."""

    devices: tuple[str, ...]
    reason: str
    """Reason, such as ``"'conv1' is pinned to 'vta'"``."""


Pins = Mapping[int, Pin]
"""Pins of fused groups, by index."""


def resolve_pins(graph: Graph, board: Board, pin: Mapping[str, str] | None = None) -> dict[int, Pin]:
    """Return the groups' pins, `pin` before the model's annotations.

    Raises `PlanError` if a name or a device is unknown, or two pins contradict each other.

    `pin`: device of the board for an operator, a tensor, a module, or a device that the model's annotations name, such
    as ``"cuda:0"``.
    """
    devices = dict(pin or {})
    for name, device in devices.items():
        _check_device(board, name, device)
    virtual = {annotation.device for annotation in graph.annotations}
    # Keys that name no operator but a device of the annotations: what they stand for, and no pins themselves.
    substitutes = {name: devices.pop(name) for name in virtual & devices.keys()}
    pins: dict[int, Pin] = {}
    for name, device in devices.items():
        _add(pins, _groups(graph, name), Pin((device,), f"{name!r} is pinned to {device!r}"))
    # Before the annotations add theirs: what the user says goes before what the model says.
    explicit = set(pins)
    operators = operators_by_name(graph)
    for note in graph.annotations:
        # A model input, or what was folded away, is computed nowhere.
        if note.tensor in operators and (group := graph.operators[operators[note.tensor]].group) not in explicit:
            reason = f"{note.tensor!r} is annotated to run on {note.device!r}"
            if note.device in substitutes:
                names: tuple[str, ...] = (substitutes[note.device],)
            else:
                names = _annotation_devices(board, note.device, reason)
            _add(pins, [group], Pin(names, reason))
    return pins


def _check_device(board: Board, name: str, device: str) -> None:
    names = [known_device.name for known_device in board.devices]
    if device not in names:
        raise PlanError(
            f"{name!r} is pinned to {device!r}, but board {board.name!r} has no such device; it has "
            f"{', '.join(names)}{near(str(device), names)}"
        )


def _groups(graph: Graph, name: str) -> list[int]:
    """Return the groups of an operator, tensor or module."""
    operators = operators_by_name(graph)
    # Exporters name what a module holds by its path, with one of these between the parts.
    module_groups = [
        operator.group for operator in graph.operators if operator.name.startswith((f"{name}.", f"{name}/"))
    ]
    if name in operators:
        exact = name not in graph.aliases
        return sorted({graph.operators[operators[name]].group, *([] if exact else module_groups)})
    if module_groups:
        return sorted(set(module_groups))
    if graph.aliases.get(name, name) in {spec.name for spec in graph.inputs}:
        raise PlanError(f"{name!r} is a model input, which no device computes; pin an operator that reads it")
    raise PlanError(
        f"there is no {name!r} to pin{near(name, operators) or '; soc-pipeline inspect lists the operators'}"
    )


def _add(pins: dict[int, Pin], groups: Iterable[int], pin: Pin) -> None:
    for group in groups:
        earlier_pin = pins.get(group, pin)
        common = tuple(device for device in earlier_pin.devices if device in pin.devices)
        if not common:
            raise PlanError(
                f"{earlier_pin.reason} and {pin.reason}, but the compiler fuses both into one kernel; pin them to one "
                "device, or divide the kernel by cuts with allow_unfused=True (--allow-unfused)"
            )
        pins[group] = Pin(common, earlier_pin.reason)


def _annotation_devices(board: Board, name: str, reason: str) -> tuple[str, ...]:
    """Return the board's devices for an annotation such as ``"cuda:0"``."""
    kind, _, index = name.partition(":")
    candidates = [device for device in board.devices if _is_of(device, kind)]
    if index:
        # By the board's own index, or else by the order among those of the kind.
        exact = [device for device in candidates if device.index == int(index)]
        candidates = exact or candidates[int(index) : int(index) + 1]
    if not candidates:
        names = ", ".join(device.name for device in board.devices)
        raise PlanError(
            f"{reason}, which board {board.name!r} does not have; say which of its devices ({names}) stands for it, "
            f"such as pin={{{name!r}: {board.devices[0].name!r}}} (--pin {name}={board.devices[0].name})"
        )
    return tuple(device.name for device in candidates)


def _is_of(device: Device, kind: str) -> bool:
    """Return True for a device of a kind, or its remote stand-in."""
    # A device of another machine is of its server's kind, and has the target of what is behind it.
    target = (device.target or {}).get("kind")
    return kind in (device.kind, device.name.rstrip("0123456789")) or target == device_kind(kind).target


def check_pins(graph: Graph, pins: Pins, runnable: Mapping[str, list[bool]]) -> None:
    """Raise `PlanError` if no device of a pin runs its group."""
    for operator in graph.operators:
        pin = pins.get(operator.group)
        if pin and not any(runnable[device][operator.group] for device in pin.devices):
            raise PlanError(
                f"{pin.reason}, but {_join_names(pin.devices)} cannot run {operator.name!r} ({operator.kind})"
            )


def stage_devices(board: Board, pins: Pins, stages: Iterable[tuple[int, int]]) -> Iterator[Device]:
    """Yield the first allowed device of each stage's range of groups; `PlanError` if there is none."""
    for index, (start, end) in enumerate(stages):
        stage_pins = [pins[group] for group in range(start, end) if group in pins]
        candidates = [device for device in board.devices if all(device.name in pin.devices for pin in stage_pins)]
        if not candidates:
            first = stage_pins[0]
            rival = next(pin for pin in stage_pins if not set(pin.devices) & set(first.devices))
            raise PlanError(
                f"stage {index} cannot run on one device: {first.reason} and {rival.reason}; cut between the two"
            )
        yield candidates[0]


def _join_names(devices: tuple[str, ...]) -> str:
    return " and ".join(map(repr, devices))
