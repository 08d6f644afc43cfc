"""StageCode: one built stage, in memory or in bundle files."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
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


class StageCode:
    """Kernels and parameters of a stage, ready for loading.

    Workers share one module; parameters are arrays aligned to 64 bytes, so that devices of the host use them in place.

    Parameters
    ----------
    module : callable
        Returns the TVM module; called once, when a device first asks.
    parameters : mapping of str to numpy.ndarray
        Parameters in the order of the function's arguments after the inputs.
    executable : tvm.relax.VMExecutable, optional
        Executable for `Bundle.save`, of a stage that was just compiled.
    library : VerifiedContent, optional
        Library for `Bundle.save`, of a stage that came from a bundle.
    parameter_file : StoredParameters, optional
        Source of its parameters, if they came unchanged from a bundle.
    file : str
        The path of its library, for messages, if that is a bundle's.
    machine, features : str, tuple of str
        The instruction set and its extensions that the code needs.
    runtimes : tuple of str
        Packages that compute operators of the stage, see `pipeline.core.packed_model`.
    suffix : str
        Suffix of the code's file in a bundle; one of `SUFFIXES`.
    runtime_version : str
        The runtime, with its version, that the stage was written for, where it is not TVM.
    calls : sequence of KernelCall, optional
        Calls of the stage in order, if it was just compiled and its kernels are this package's.
    processor : str
        LLVM's name of the processor that the code was written for, empty if that is unknown.
    variants : sequence of StageCode
        The same for other cores of the device, each with its `processor`.

    Attributes
    ----------
    signed : SignedManifest or None
        The manifest of the bundle that it came from, if that is signed.
    """

    def __init__(  # noqa: PLR0913 - all but the first two by keyword
        self,
        module: Callable[[], Any],
        parameters: Mapping[str, np.ndarray],
        *,
        executable: Any = None,
        library: VerifiedContent | None = None,
        parameter_file: StoredParameters | None = None,
        file: str = "",
        machine: str = "",
        features: tuple[str, ...] = (),
        runtimes: tuple[str, ...] = (),
        suffix: str = ".so",
        runtime_version: str = "",
        calls: Sequence[KernelCall] | None = None,
        processor: str = "",
        variants: Sequence[StageCode] = (),
    ) -> None:
        self.parameters = dict(parameters)
        self.executable, self.library, self.parameter_file = executable, library, parameter_file
        self.file, self.machine, self.features, self.runtimes = file, machine, features, runtimes
        self.suffix, self.runtime_version = suffix, runtime_version
        self.calls = None if calls is None else tuple(calls)
        self.processor, self.variants = processor, tuple(variants)
        self.signed: SignedManifest | None = None
        self._module = module
        self._tvm_module: Any = None
        self._lock = threading.Lock()

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
        return StageCode(
            self.module,
            {**self.parameters, **values},
            executable=self.executable,
            library=self.library,
            file=self.file,
            machine=self.machine,
            features=self.features,
            runtimes=self.runtimes,
            suffix=self.suffix,
            runtime_version=self.runtime_version,
            calls=self.calls,
            processor=self.processor,
            variants=variants,
        )

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
                self._tvm_module = self._module()
            return self._tvm_module


def share_parameters(codes: Sequence[StageCode | None]) -> list[Any]:
    """Return codes of a stage's sizes, with equal arrays shared."""
    members = [member for code in codes if code is not None for member in code.family]
    values = iter(parameter_arrays.share_arrays([member.parameters for member in members]))

    def share(code: StageCode) -> StageCode:
        parameters = next(values)
        return code.with_parameters(parameters, [share(variant) for variant in code.variants])

    return [code and share(code) for code in codes]
