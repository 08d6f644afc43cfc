"""CompiledFile: a model that a vendor's compiler has made for one chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pipeline.core.board.board import Device


class CompiledFormat(NamedTuple):
    """A format of compiled files, with what runs them.

    A device runs such files if the key of its target has the word in its value.
    """

    title: str
    key: str
    word: str


COMPILED_FORMATS = {
    "rknn": CompiledFormat("Rockchip's NPU (.rknn)", "loader", "rknn"),
    "hef": CompiledFormat("Hailo's NPU (.hef)", "loader", "hailo"),
    "engine": CompiledFormat("TensorRT (.engine)", "loader", "tensorrt"),
    "edgetpu": CompiledFormat("the Edge TPU (.tflite)", "delegate", "edgetpu"),
    # The chip of these is the name of the provider that has made the context.
    "epcontext": CompiledFormat("ONNX Runtime's provider (EPContext)", "providers", ""),
}
"""Formats by the kind of their operator in a graph."""


LOADERS = "soc_pipeline.loaders"
"""Entry-point group of vendors' loaders."""


@dataclass(frozen=True)
class CompiledFile:
    """A file that is one operator of a graph."""

    tensor: str
    """First tensor that it makes."""
    format: str
    """Key of `COMPILED_FORMATS`."""
    chip: str = ""
    """Name of the chip in its vendor's words, such as ``"rk3588"``; empty if nothing says it."""
    seconds: float = 0.0
    """Measured time of a frame by the card; 0 if unknown."""

    def __str__(self) -> str:
        """Name the chip, and the format."""
        title = COMPILED_FORMATS[self.format].title
        return f"{self.chip}, {title}" if self.chip else title

    @property
    def has_library(self) -> bool:
        """True for files of a model format, which its library opens and can be asked about."""
        return COMPILED_FORMATS[self.format].key != "loader"

    def fits_format(self, device: Device) -> bool:
        """Test if a device's runtime opens files of this format."""
        _, key, word = COMPILED_FORMATS[self.format]
        text = str((device.target or {}).get(key, "")).casefold()
        return bool(text) and (word or self.chip.casefold()) in text

    def describe_misfit(self, device: Device) -> str:
        """Return why a device does not run the file, or ""."""
        if not device.capabilities.computes:
            return ""
        if not self.fits_format(device):
            return f"it is compiled for {self}; choose a board with such a device"
        chips = device_chips(device)
        is_other = self.chip and chips and self.format != "epcontext" and self.chip.casefold() not in chips
        problem = f"it is compiled for {self.chip}, and {device.name} is {' or '.join(chips)}; compile it for that"
        return problem if is_other else ""


def device_chips(device: Device) -> Sequence[str]:
    """Return the chips whose files a device runs, its own first, in lower case; empty if its target does not say."""
    chips = (device.target or {}).get("chip", ())
    listed = chips if isinstance(chips, list | tuple) else [chips]
    return [str(chip).casefold() for chip in listed]
