"""Board: devices and links of a plan, as an immutable value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from pipeline.core.board.board_checks import check_devices, check_links
from pipeline.core.board.device import Accuracy, Cluster, Device, Link
from pipeline.errors import BoardError, near

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Accuracy", "Board", "Cluster", "Device", "Link"]

Amount = TypeVar("Amount", float, "NDArray[np.float64]")
"""One number, or an array of them: the planner asks for all positions of a long chain at once."""


@dataclass(frozen=True)
class Board:
    """Devices of a plan and the links between their memories.

    Raises
    ------
    BoardError
        If there is no device, two have one name, or a number is impossible; the message names it.
    """

    name: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...] = field(default=())
    about: str = ""
    """Description for people."""

    def __post_init__(self) -> None:
        check_devices(self.name, self.devices)
        check_links(self.name, self.devices, self.links)

    def device(self, name: str) -> Device:
        """Return a device by name; `BoardError` lists the names.

        A name such as ``"cpu/onnxruntime"`` is the device with another one of its runtimes.
        """
        # A board has a handful of devices: a search is as fast as an index, and needs no second field in a frozen
        # value.
        for device in self.devices:
            if device.name == name:
                return device
        base, _, runtime = name.rpartition("/")
        for device in self.devices:
            if device.name == base and runtime in device.runtimes:
                return device.with_runtime(runtime)
        names = [variant for device in self.devices for variant in dict.fromkeys((device.name, *device.variants))]
        raise BoardError(f"board {self.name!r} has no device {name!r}; it has {', '.join(names)}{near(name, names)}")

    @cached_property
    def home(self) -> Device | None:
        """Device of the caller's memory; None on a board without one."""
        local = [device for device in self.devices if not device.address]
        host_devices = [device for device in local if device.memory == "host"]
        return next(iter((*host_devices, *(device for device in local if device.capabilities.is_processor))), None)

    def is_one_device(self, first: str, second: str) -> bool:
        """Compare two names of devices, without their runtimes."""
        return any(device.is_called(first) and device.is_called(second) for device in self.devices)

    def with_target(self, name: str, keys: Mapping[str, object]) -> Board:
        """Return the board with keys of a device's target set."""
        device = self.device(name)
        if device not in self.devices:
            raise BoardError(f"the target of {name!r} cannot be set: give the runtime a device of its own kind")
        target_device = replace(device, target={**(device.target or {}), **keys})
        return replace(
            self, devices=tuple(target_device if candidate is device else candidate for candidate in self.devices)
        )

    def with_runtimes(self, runtimes: Sequence[str]) -> Board:
        """Return the board with other runtimes for CPU stages."""
        devices = [
            replace(device, runtimes=tuple(runtimes))
            if device.capabilities.is_processor and device.cores and not device.address
            else device
            for device in self.devices
        ]
        return replace(self, devices=tuple(devices))

    def link(self, source: str, target: str) -> Link | None:
        """Return the link between two memories, or None."""
        return next((link for link in self.links if set(link.ends) == {source, target}), None)

    def transfer_s(self, source: Device, target: Device, nbytes: Amount) -> Amount:
        """Return the seconds to move `nbytes`, a number or an array.

        Within one memory nothing is copied, but the reader's caches have to fetch the bytes once.
        """
        if source.memory == target.memory:
            return nbytes / target.bytes_per_s
        link = self.link(source.memory, target.memory)
        if link is None:
            raise BoardError(
                f"board {self.name!r} has no link between {source.memory!r} (device {source.name!r}) and "
                f"{target.memory!r} (device {target.name!r}); add one to the board"
            )
        return link.latency_s + nbytes / (target.bytes_per_s if link.shared else link.bytes_per_s)
