"""Optional packages: imported where they are used, missed with one clear message."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

from pipeline.errors import MissingExtra


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
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if (error.name or "").partition(".")[0] != package:
            raise
        raise MissingExtra(f"{purpose}: needs {package}; pip install 'soc-pipeline[{extra}]'") from None
