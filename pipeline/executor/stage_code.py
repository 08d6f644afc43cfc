"""StageCode: one built stage, in memory or in bundle files."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from pipeline.executor import parameters as parameter_arrays
from pipeline.executor import source_runtimes
from pipeline.executor.parameters import ParameterEntry
from pipeline.executor.signature import SignedManifest
from pipeline.executor.verified_file import VerifiedContent

SUFFIXES = (".so", ".onnx", ".tflite", ".artifact")
"""Suffixes of code files: a library, a model for another runtime, or a vendor compiler's output."""

EXTERNAL = "external"
"""Mark in place of a rule for calls into a library, see `pipeline.executor.source_runtimes`."""


class KernelCall(NamedTuple):
    """One kernel call of a newly compiled stage."""

    function: str
    rule: str
    """Rule that wrote it; ``"general"`` if none did, `EXTERNAL` if a library computes it."""
    results: tuple[str, ...]
    """The model's tensors that it makes, those inside the kernel too; none if it only changes a layout."""
    error: float = 0.0
    """Bound on its rounding errors, as a share of the largest value, where it rewrites sums; else 0."""


class StoredParameters(NamedTuple):
    """Parameter file of a bundle, possibly shared with other sizes."""

    content: VerifiedContent
    entries: tuple[ParameterEntry, ...]
    """Position of this stage's parameters in it."""


@dataclass(eq=False)
class StageCode:
    """Kernels and parameters of a stage, ready for loading.

    Workers share one module; parameters are arrays aligned to 64 bytes, so that devices of the host use them in place.
    """

    load_module: Callable[[], Any]
    """Returns the TVM module; called once, when a device first asks."""
    parameters: Mapping[str, np.ndarray]
    """Parameters in the order of the function's arguments after the inputs."""
    _: KW_ONLY
    executable: Any = None
    """TVM's executable for `Bundle.save`, of a stage that was just compiled."""
    library: VerifiedContent | None = None
    """Library for `Bundle.save`, of a stage that came from a bundle."""
    parameter_file: StoredParameters | None = None
    """Source of its parameters, if they came unchanged from a bundle."""
    file: str = ""
    """The path of its library, for messages, if that is a bundle's."""
    # The instruction set and its extensions that the code needs.
    machine: str = ""
    features: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    """Packages that compute operators of the stage, see `pipeline.core.packed_model`."""
    suffix: str = ".so"
    """Suffix of the code's file in a bundle; one of `SUFFIXES`."""
    runtime_version: str = ""
    """The runtime, with its version, that the stage was written for, where it is not TVM."""
    calls: tuple[KernelCall, ...] | None = None
    """Calls of the stage in order, if it was just compiled and its kernels are this package's."""
    processor: str = ""
    """LLVM's name of the processor that the code was written for, empty if that is unknown."""
    variants: tuple[StageCode, ...] = ()
    """The same for other cores of the device, each with its `processor`."""
    signed: SignedManifest | None = field(default=None, init=False)
    """The manifest of the bundle that it came from, if that is signed."""
    _tvm_module: Any = field(default=None, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @property
    def family(self) -> tuple[StageCode, ...]:
        """The stage for all kinds of cores, itself first."""
        return (self, *self.variants)

    def for_processor(self, name: str) -> StageCode:
        """Return the variant for a kind of core, or itself."""
        return next((code for code in self.variants if code.processor == name), self)

    def with_parameters(self, values: Mapping[str, np.ndarray], variants: Sequence[StageCode] = ()) -> StageCode:
        """Return the kernels with some parameters replaced, without copying.

        Variants keep weights in layouts of their own, so that they are left out unless they are given anew.
        """
        # Without the file of the parameters, which holds their former values.
        values = {**self.parameters, **values}
        return replace(self, load_module=self.module, parameters=values, parameter_file=None, variants=tuple(variants))

    def module(self) -> Any:
        """Return the TVM module, loaded on first use."""
        # Replicas open in threads of their own: the first one loads the module, the others wait for it.
        with self._lock:
            if self._tvm_module is None:
                if self.runtimes:
                    # Not when a pipeline closes: the code may be loaded again, as by a swap.
                    packed_models = source_runtimes.digests(self.parameters.values())
                    source_runtimes.retain(packed_models)
                    weakref.finalize(self, source_runtimes.release, packed_models)
                self._tvm_module = self.load_module()
            return self._tvm_module


def share_parameters(codes: Sequence[StageCode | None]) -> list[Any]:
    """Return codes of a stage's sizes, with equal arrays shared."""
    members = [member for code in codes if code is not None for member in code.family]
    values = iter(parameter_arrays.share_arrays([member.parameters for member in members]))

    def share(code: StageCode) -> StageCode:
        parameters = next(values)
        return code.with_parameters(parameters, [share(variant) for variant in code.variants])

    return [code and share(code) for code in codes]
