"""Loader: a vendor's runtime, named by an entry point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pipeline.core.compiled_file import LOADERS
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import BoardError, near, reason
from pipeline.system.entry_points import entry_names, load_entry

GROUP = LOADERS
"""Entry-point group of loaders."""

EXAMPLES = ("hailo", "rknn", "tensorrt")
"""Loaders that come along as examples."""

_METHODS = ("open", "run", "close")


class Loader(Protocol):
    """A device in use by one thread, with the ``options`` of its target; only `stop` comes from others.

    A device beside the CPU has no host cores. Three methods are optional: ``stop()``, called in another thread to end a
    run that hangs; and two static ones. ``why_absent(options)`` returns why this machine has no such device, or an
    empty text. ``describe(path)`` returns the chip of a compiled file, and its inputs and its outputs, each a name, a
    shape and a dtype.
    """

    def __init__(self, options: Mapping[str, Any], cores: Sequence[int]) -> None: ...

    def open(self, artifact: Path, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Any:
        """Load a stage; `artifact` exists until `close`."""

    def run(self, program: Any, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Run one frame; outputs follow `open`'s order, in lasting arrays."""

    def close(self) -> None:
        """Release the device with everything opened."""


def find_loader(name: str) -> type[Loader]:
    """Return the loader of a name, or raise `BoardError`."""
    loader = load_entry(GROUP, name)
    if loader is None:
        names = entry_names(GROUP)
        example = f", such as one made of examples/vendors/{name}.py" if name in EXAMPLES else ""
        raise BoardError(
            f"there is no loader {name!r}; install a package with an entry point of this name in the group {GROUP!r}"
            f"{example} (installed are {', '.join(names) or 'none'}){near(name, names)}"
        )
    missing_methods = [method for method in _METHODS if not callable(getattr(loader, method, None))]
    if not isinstance(loader, type) or missing_methods:
        raise BoardError(f"the loader {name!r} is {loader!r}; it must be a class with {', '.join(_METHODS)}")
    return loader


def why_absent(name: str, options: Mapping[str, Any]) -> str:
    """Explain why this machine lacks a loader's device, empty if not."""
    try:
        ask = getattr(find_loader(name), "why_absent", None)
        return "" if ask is None else str(ask(options))
    except BoardError as error:
        return str(error)
    # Whatever a driver may raise where its device is missing.
    except Exception as error:  # noqa: BLE001
        return f"the loader {name!r} finds no device: {reason(error)}"
