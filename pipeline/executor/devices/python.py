"""Python device: stages as functions, such as resizing or decoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pipeline.core.plan.plan import StagePlan, TensorSpec
from pipeline.errors import PipelineError
from pipeline.executor.devices.null import NullRuntime
from pipeline.system.memory import snapshot


class FreshOutputs(NamedTuple):
    """Function with fresh arrays in every call, so nobody copies them."""

    call: Callable[..., Any]


class StageFunction(NamedTuple):
    """Function of a stage, its output specs and copying."""

    call: Callable[..., Any]
    outputs: tuple[TensorSpec, ...]
    needs_copy: bool


class PythonRuntime(NullRuntime):
    """Calls a function with the stage's input arrays, in plan order.

    It returns an array, or several as a sequence or as a mapping by name.  Inputs may be shared with other stages, so
    they are read-only; what is returned is copied, unless the function is given as `FreshOutputs`.
    Python code of different stages takes turns; NumPy and other native code inside it runs at the same time.
    """

    def load(self, stage: StagePlan, code: Any) -> StageFunction:
        """Return the function: the stage's code."""
        is_fresh = isinstance(code, FreshOutputs)
        code = code.call if is_fresh else code
        if not callable(code):
            raise PipelineError(
                f"stage {stage.name!r} on device {self.device.name!r} needs a function, and got {code!r}; "
                "a saved bundle does not hold functions: add the stage again after loading"
            )
        return StageFunction(code, stage.outputs, not is_fresh)

    def run(self, program: StageFunction, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Call the function and check its outputs against the plan."""
        result = program.call(*(_read_only(array) for array in inputs))
        arrays = _in_order(result, program.outputs)
        # Checked here, where the function is known: behind the channel it would be the next stage's failure.
        for array, spec in zip(arrays, program.outputs, strict=True):
            if (array.shape, array.dtype) != (spec.shape, np.dtype(spec.dtype)):
                raise ValueError(f"the function returned {array.dtype}{list(array.shape)} as {spec}")
        return [snapshot(array) for array in arrays] if program.needs_copy else arrays


def _read_only(array: np.ndarray) -> np.ndarray:
    # A view: the array itself stays as writable as its owner needs it.
    view: np.ndarray = array.view()
    view.flags.writeable = False
    return view


def _in_order(result: Any, outputs: Sequence[TensorSpec]) -> list[np.ndarray]:
    if isinstance(result, Mapping):
        if result.keys() != {spec.name for spec in outputs}:
            raise ValueError(
                f"the function returned {sorted(result)}; its outputs are {[spec.name for spec in outputs]}"
            )
        result = [result[spec.name] for spec in outputs]
    elif not isinstance(result, (tuple, list)):
        result = [result]
    if len(result) != len(outputs):
        raise ValueError(f"the function returned {len(result)} arrays; its outputs are {len(outputs)}")
    return [np.asarray(array) for array in result]
