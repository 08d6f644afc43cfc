"""Devices of a plan mapped to devices of the loading machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pipeline.core.board.board import Device
from pipeline.core.board.device_kinds import device_kind, find_kind
from pipeline.core.plan.plan import Plan
from pipeline.core.remote_address import alternatives
from pipeline.errors import BoardError, near

DeviceMap = Mapping[str, "str | Device"]
"""Substitutes of a plan's devices by name, as text or description."""

_FORMS = "such as 'cuda:1', 'cpu', or 'remote://127.0.0.1:9123/cpu'"


def map_devices(plan: Plan, devices: DeviceMap) -> Plan:
    """Return the plan on other devices of the same code.

    Raises `BoardError` if the plan has no such device, a text is none of these, or the other device cannot run what was
    built.

    `devices`: kind and index (``"cuda:1"``), address (``"remote://..."``, ``"rpc://..."``, alternatives separated by
    spaces), or full description, for each device of the plan's board.
    """
    if not devices:  # the usual case, in which the plan need not be made and checked anew
        return plan
    board = plan.board
    names = [device.name for device in board.devices]
    for name in devices:
        if name not in names:
            raise BoardError(f"the plan has no device {name!r}; it has {', '.join(names)}{near(name, names)}")
    new_devices = tuple(
        _check_code(device, _make_replacement(plan, device, devices[device.name])) if device.name in devices else device
        for device in board.devices
    )
    # Links are named after memories, which may have gone; they say what transfers were expected to cost.
    memories = {device.memory for device in new_devices}
    links = tuple(link for link in board.links if memories.issuperset(link.ends))
    return replace(plan, board=replace(board, devices=new_devices, links=links))


def _make_replacement(plan: Plan, device: Device, substitute: str | Device) -> Device:
    if isinstance(substitute, Device):
        # Stages name their device by the plan's name, which has to stay.
        return replace(substitute, name=device.name)
    kind, index, address = _parse_form(device.name, substitute)
    return replace(device, kind=kind, index=index, address=address, memory=_memory(plan, device, address))


def _parse_form(name: str, text: str) -> tuple[str, int, str]:
    """Return kind, index and address from `text`."""
    # The members of a pool are of one kind; those that announce themselves are servers.
    scheme = text.removeprefix("pool:").partition("://")[0]
    if text.startswith("pool:") and "://" not in text.partition("?")[0]:
        scheme = "remote"
    if device_kind(scheme).is_remote:
        alternatives(text)  # raises if one is none
        return scheme, 0, text
    kind, separator, index = text.partition(":")
    if find_kind(kind) is None or (separator and not (index.isdecimal() and len(index) < 4)):
        raise BoardError(f"device {name!r} cannot be {text!r}; give a kind and an index or an address, {_FORMS}")
    return kind, int(index or 0), ""


def _memory(plan: Plan, device: Device, address: str) -> str:
    """Return the memory of a device's substitute.

    Memory on another machine is nobody else's; that of cores here is the caller's.
    """
    if bool(device.address) == bool(address):
        return device.memory
    if address:
        return f"{device.name} elsewhere"
    local = [
        candidate.memory
        for candidate in plan.board.devices
        if candidate.capabilities.is_processor and not candidate.address
    ]
    return next(iter(local), "host")


def _check_code(device: Device, substitute: Device) -> Device:
    if code_kind(device) != code_kind(substitute):
        raise BoardError(
            f"device {device.name!r} cannot be {substitute.address or substitute.kind!r}: its stages were built for "
            f"{code_kind(device)!r}, not for {code_kind(substitute)!r}; build the bundle again for a board with that "
            "device"
        )
    return substitute


def code_kind(device: Device) -> str:
    """Return the kind of device that runs the code, on any machine."""
    return alternatives(device.address)[0].device if device.address else device.kind
