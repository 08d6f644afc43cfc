"""The Python device: stages that are functions, such as a resize before the model or decoding behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pipeline.errors import PipelineError
from pipeline.executor.devices.null import NullRuntime
from pipeline.plans import StagePlan, TensorSpec


class Function(NamedTuple):
    """A stage's function, and what it has to return."""

    call: Callable[..., Any]
    outputs: tuple[TensorSpec, ...]


class PythonRuntime(NullRuntime):
    """Calls a function with the stage's inputs as arrays, in the plan's order.

    It returns an array, or several as a sequence or as a mapping by name.  Inputs may be shared with other stages, so
    they are read-only; what is returned travels by reference, so the function must not change it afterwards.
    Python code of different stages takes turns; NumPy and other native code inside it runs at the same time.
    """

    def load(self, stage: StagePlan, code: Any) -> Function:
        """Return the function, which is the stage's code."""
        if not callable(code):
            raise PipelineError(
                f"stage {stage.name!r} on device {self.device.name!r} needs a function, and got {code!r}; "
                "a saved bundle does not hold functions: add the stage again after loading"
            )
        return Function(code, stage.outputs)

    def run(self, program: Function, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Call the function and compare what it returns with the plan."""
        made = program.call(*(_read_only(array) for array in inputs))
        arrays = _in_order(made, program.outputs)
        for array, spec in zip(arrays, program.outputs, strict=True):
            if (array.shape, array.dtype) != (spec.shape, np.dtype(spec.dtype)):
                raise ValueError(f"the function returned {array.dtype}{list(array.shape)} as {spec}")
        return arrays


def _read_only(array: np.ndarray) -> np.ndarray:
    view: np.ndarray = array.view()
    view.flags.writeable = False
    return view


def _in_order(made: Any, outputs: Sequence[TensorSpec]) -> list[np.ndarray]:
    if isinstance(made, Mapping):
        if made.keys() != {spec.name for spec in outputs}:
            raise ValueError(f"the function returned {sorted(made)}; its outputs are {[spec.name for spec in outputs]}")
        made = [made[spec.name] for spec in outputs]
    elif not isinstance(made, (tuple, list)):
        made = [made]
    if len(made) != len(outputs):
        raise ValueError(f"the function returned {len(made)} arrays; its outputs are {len(outputs)}")
    return [np.asarray(each) for each in made]
