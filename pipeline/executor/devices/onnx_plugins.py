"""Plug-in execution providers of ONNX Runtime: libraries that it loads by their file or package."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.core.board.board import Device
from pipeline.errors import BoardError, BuildError, reason
from pipeline.system.optional import require

# No other module is imported by a plan's name for it.
_PACKAGE = re.compile(r"onnxruntime[-_][\w-]+", re.ASCII)
_DEVICE = re.compile(r"(CPU|GPU|NPU)(?:\.(\d+))?", re.ASCII)
_CHOICES = ("AUTO", "HETERO", "MULTI")

# A library is registered once per process.
_lock = threading.Lock()


def check(device: Device, providers: Sequence[str]) -> None:
    """Raise `BoardError` if a target's plug-in is none."""
    target = device.target or {}
    name, kind = target.get("library", ""), target.get("device", "CPU")
    if not isinstance(name, str) or not isinstance(kind, str) or not _DEVICE.fullmatch(kind):
        raise BoardError(f"library is {name!r} and device {kind!r}; they must be a file or package, and such as 'NPU'")
    if "device" in target and not name:
        raise BoardError("device is of plug-in providers; name their library, or the provider's own option instead")
    for provider in providers:
        if provider.partition(".")[2] in _CHOICES and not target.get("allow_fallback"):
            raise BoardError(
                f"provider {provider!r} chooses where operators run; name one device, or set allow_fallback = true"
            )


def library(device: Device) -> str:
    """Return the file of a device's plug-in, empty without one."""
    name = str((device.target or {}).get("library", ""))
    module = name.replace("-", "_")
    if not _PACKAGE.fullmatch(name):
        return str(Path(name).expanduser()) if name else ""
    if importlib.util.find_spec(module) is None:
        return name
    return str(importlib.import_module(module).get_library_path())


def devices(device: Device, provider: str) -> list[Any]:
    """Return the provider's device in a list, for ONNX Runtime; raise `BuildError` without."""
    file = library(device)
    try:
        with _lock:
            _register(file, os.getpid())
    except Exception as error:
        raise BuildError(f"the provider library {file!r} cannot be loaded: {reason(error)}") from error
    found = _library().get_ep_devices()
    own = [each for each in found if each.ep_name == provider]
    match = _DEVICE.fullmatch(str((device.target or {}).get("device", "")))
    candidates = [each for each in own if match is None or each.device.type.name == match[1]]
    number = int(match[2] or 0) if match else 0
    if number < len(candidates):
        return candidates[number : number + 1]
    names = ", ".join(f"{each.ep_name} on {each.device.type.name}" for each in found)
    title = f"{provider} on {match[0]}" if match else provider
    raise BuildError(f"ONNX Runtime finds no {title} with the library {file!r}; it finds {names}")


@cache
def _register(file: str, _: int) -> None:
    if not Path(file).is_file():
        raise FileNotFoundError("there is no such file or package")
    _library().register_execution_provider_library(file, file)


def _library() -> Any:
    return require("onnxruntime", "onnxruntime", "stages that ONNX Runtime runs")
