"""Optional packages: imported on use, missed with one clear message."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from types import ModuleType

from pipeline.errors import MissingExtra
from pipeline.system.distribution import install_command

# Set before a package is imported, unless the user has.  From 1.31 on, ONNX Runtime reports how it is used over the
# network, also on Linux; it keeps the reports in a database in the user's cache, and a process that ends waits for
# another one's up to twenty seconds.
_VARIABLES = {"onnxruntime": {"ORT_DISABLE_TELEMETRY": "1"}}

# Not there for a package that is imported.  OpenVINO reports over the network that somebody has imported it, and forks
# this process for that, whatever threads it has; it does without where this package is missing.
_HIDDEN = {"openvino": "openvino_telemetry"}


def is_installed(package: str) -> bool:
    """Look for a package without importing it."""
    return importlib.util.find_spec(package) is not None


def hide_telemetry(package: str) -> None:
    """Keep a package from reporting its import."""
    if package in _HIDDEN and package not in sys.modules:
        # None is how Python writes down that there is no such module.
        sys.modules.setdefault(_HIDDEN[package], None)  # type: ignore[arg-type]


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import and return an optional module.

    `extra` is the one of this distribution that brings it; `purpose` begins the message, such as ``"the demo's
    images"``. Raises `MissingExtra` if the package is not installed. A package that is there but broken raises its own
    error.
    """
    package = module.partition(".")[0]
    for name, value in _VARIABLES.get(package, {}).items():
        os.environ.setdefault(name, value)
    hide_telemetry(package)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise MissingExtra(f"{purpose}: needs {package}; {install_command(extra)}") from None
