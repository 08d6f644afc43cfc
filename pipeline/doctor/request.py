"""Request: what a machine is asked to run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import boards
from pipeline.core import compiled_headers
from pipeline.core.board.board import Device
from pipeline.core.compiled_file import device_chips
from pipeline.core.compiled_headers.header import Header
from pipeline.errors import BundleError
from pipeline.executor import manifest
from pipeline.executor.bundle_folder import REPLACING
from pipeline.executor.devices.vendor import ARTIFACT
from pipeline.executor.manifest import Manifest


@dataclass(frozen=True)
class Request:
    """Devices and sources that a machine has to have."""

    name: str = ""
    """Name of the board; empty if none is named, so that what is there is checked."""
    devices: tuple[Device, ...] = ()
    sources: tuple[str, ...] = ()
    bundle: Manifest | None = None
    compiled: tuple[tuple[str, Header], ...] = ()
    """Devices of the bundle's compiled files, and what these state."""

    @property
    def is_open(self) -> bool:
        """True if no board is named."""
        return not self.devices

    def chips(self, device: Device) -> Sequence[str]:
        """Return the chips that a device's files are for: by the bundle's files, else its own."""
        chips = [header.chip.casefold() for name, header in self.compiled if name == device.name and header.chip]
        # The first is the device's own; files for the others run there, too.
        return chips or device_chips(device)[:1]

    def drivers(self, *names: str) -> list[Device]:
        """Return the devices whose kind, loader, delegate or provider begins so."""
        return [device for device in self.devices if any(word.startswith(names) for word in _driver_names(device))]


def make_request(name: str | None, sources: Sequence[str] = ()) -> Request:
    """Return the request for a board's name or file, or a bundle; None names no board.

    Raises `BoardError` or `BundleError` if there is no such board, or the bundle is damaged.
    """
    if name is None or name == boards.HOST:
        return Request(sources=tuple(sources))
    bundle = manifest.read(Path(name)) if Path(name).is_dir() or name.endswith(".bundle") else None
    board = boards.get(name) if bundle is None else bundle.plan.board
    # Those of other machines are checked there, and simulated ones are none.
    devices = [device for device in board.devices if not device.address and not (device.target or {}).get("simulated")]
    compiled = () if bundle is None else tuple(_read_compiled(Path(name), bundle))
    return Request(board.name, tuple(devices), tuple(sources), bundle, compiled)


def _read_compiled(folder: Path, bundle: Manifest) -> Iterator[tuple[str, Header]]:
    for stage, files in bundle.pairs:
        content = (folder / files.library.file).read_bytes() if files and files.library.file.endswith(ARTIFACT) else b""
        try:
            if compiled_headers.find_kind(content):
                yield stage.device.partition("/")[0], compiled_headers.read_header(content)
        except ValueError as error:
            problem = f"stage {stage.name!r} is damaged: {error}; copy or build it again ({REPLACING})"
            raise BundleError(f"{str(folder)!r}: {problem}") from None


def _driver_names(device: Device) -> Iterator[str]:
    target = device.target or {}
    yield device.kind
    yield from (str(target[key]) for key in ("loader", "delegate", "device") if key in target)
    providers = target.get("providers", ())
    for provider in providers if isinstance(providers, (list, tuple)) else ():
        yield str(provider if isinstance(provider, str) else provider[0])
