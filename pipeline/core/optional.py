"""Optional packages: imported where they are used, missed with one clear message."""

from __future__ import annotations

import importlib
import importlib.util
import os
from types import ModuleType

from pipeline.core.distribution import install_command
from pipeline.errors import MissingExtra

# Set before a package is imported, unless the user has.  From 1.31 on, ONNX Runtime reports how it is used over the
# network, also on Linux; it keeps the reports in a database in the user's cache, and a process that ends waits for
# another one's up to twenty seconds.
_VARIABLES = {"onnxruntime": {"ORT_DISABLE_TELEMETRY": "1"}}


def is_installed(package: str) -> bool:
    """Return whether there is a package of this name, without importing it."""
    return importlib.util.find_spec(package) is not None


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import and return an optional module.

    Parameters
    ----------
    module : str
        What to import, such as ``"sklearn.datasets"``.
    extra : str
        The extra of this distribution that brings it.
    purpose : str
        What it is needed for; begins the message, such as ``"the demo's images"``.

    Raises
    ------
    MissingExtra
        If the package is not installed.  A package that is there but broken raises its own error.
    """
    package = module.partition(".")[0]
    for name, value in _VARIABLES.get(package, {}).items():
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise MissingExtra(f"{purpose}: needs {package}; {install_command(extra)}") from None
