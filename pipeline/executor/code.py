"""StageCode: one built stage, in memory or in a bundle's files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from pipeline.executor.parameters import Entry


class KernelCall(NamedTuple):
    """One call of a kernel in a stage that was just compiled.

    Attributes
    ----------
    function : str
    rule : str
        Which rule wrote it; ``"general"`` if none did.
    results : tuple of str
        The model's tensors that it makes, those inside the kernel too; none if it only changes a layout.
    """

    function: str
    rule: str
    results: tuple[str, ...]


class Stored(NamedTuple):
    """Where a stage's parameters lie in a bundle's file, which may have those of the stage for other sizes as well.

    Attributes
    ----------
    path : Path
    entries : tuple of Entry
    """

    path: Path
    entries: tuple[Entry, ...]


class StageCode:
    """A stage's kernels and parameters, ready for a device to load.

    Workers share one module; parameters are arrays aligned to 64 bytes, so that devices of the host use them in place.

    Parameters
    ----------
    module : callable
        Returns the TVM module; called once, when a device first asks.
    parameters : mapping of str to numpy.ndarray
        In the order of the function's arguments behind the inputs.
    executable : tvm.relax.VMExecutable, optional
        What `Bundle.save` exports, of a stage that was just compiled.
    library : Path, optional
        What `Bundle.save` copies, of a stage that came from a bundle.
    stored : Stored, optional
        Where its parameters came from, if they came from a bundle and are as they were there.
    machine, features : str, tuple of str
        The instruction set and its extensions that the code needs.
    calls : sequence of KernelCall, optional
        What the stage calls, in order, if it was just compiled and its kernels are this package's.
    """

    def __init__(  # noqa: PLR0913 - all but the first two by keyword
        self,
        module: Callable[[], Any],
        parameters: Mapping[str, np.ndarray],
        *,
        executable: Any = None,
        library: Path | None = None,
        stored: Stored | None = None,
        machine: str = "",
        features: tuple[str, ...] = (),
        calls: Sequence[KernelCall] | None = None,
    ) -> None:
        self.parameters = dict(parameters)
        self.executable, self.library, self.stored = executable, library, stored
        self.machine, self.features = machine, features
        self.calls = None if calls is None else tuple(calls)
        self._module = module
        self._loaded: Any = None
        self._lock = threading.Lock()

    def with_parameters(self, values: Mapping[str, np.ndarray]) -> StageCode:
        """Return the same kernels with other values for some parameters; the arrays are used as they are."""
        return StageCode(
            self.module,
            {**self.parameters, **values},
            executable=self.executable,
            library=self.library,
            machine=self.machine,
            features=self.features,
            calls=self.calls,
        )

    def module(self) -> Any:
        """Return the TVM module, loaded on first use."""
        with self._lock:
            if self._loaded is None:
                self._loaded = self._module()
            return self._loaded
