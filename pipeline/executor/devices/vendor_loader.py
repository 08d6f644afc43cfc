"""Loader: a vendor's runtime, which an entry point of another package names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import BoardError, near, reason
from pipeline.system.entry_points import entry_names, load_entry

GROUP = "soc_pipeline.loaders"
"""Of the entry points that name loaders."""

EXAMPLES = ("hailo", "rknn", "tensorrt")
"""Loaders that come along as examples."""

_METHODS = ("open", "run", "close")


class Loader(Protocol):
    """A device in use by one thread, which calls everything but `stop`.

    Two methods are optional: ``stop()``, called in another thread to end a run that hangs; and the static
    ``why_absent(options)``, which returns why this machine has no such device, or an empty text.

    Parameters
    ----------
    options : mapping
        ``options`` of the device's target.
    cores : sequence of int
        Host cores of the stage; empty for a device beside the CPU.
    """

    def __init__(self, options: Mapping[str, Any], cores: Sequence[int]) -> None: ...

    def open(self, artifact: Path, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Any:
        """Return a stage that is ready to run; `artifact` is there until `close`."""

    def run(self, program: Any, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Return the outputs of one frame, in the order of `open`, in arrays that no later run changes."""

    def close(self) -> None:
        """Give back the device, with all that was opened."""


def find_loader(name: str) -> type[Loader]:
    """Return the loader of a name.

    Raises
    ------
    BoardError
        If no package has it, or it is broken.
    """
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
    """Return the reason why this machine cannot run what a loader opens; empty if it can."""
    try:
        ask = getattr(find_loader(name), "why_absent", None)
        return "" if ask is None else str(ask(options))
    except BoardError as error:
        return str(error)
    # Whatever a driver may raise where its device is missing.
    except Exception as error:  # noqa: BLE001
        return f"the loader {name!r} finds no device: {reason(error)}"
