"""Open inputs: builds for frames of varying shapes, with padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.core.plan.plan import TensorSpec
from pipeline.core.shapes import Build, OpenShapes, Size, describe_shape, describe_size
from pipeline.errors import InputError
from pipeline.scheduler.inputs import AcceptedInputs, Crop, InputCheck, read_array


class UnknownSize(InputError):
    """Raised when a frame fits the model, but no build's size.

    `arrays`: the frame's inputs, in the plan's order.
    """

    def __init__(self, size: Size, arrays: Sequence[np.ndarray], message: str) -> None:
        super().__init__(message)
        self.size, self.arrays = size, arrays


class OpenInputCheck(InputCheck):
    """Matches frames to builds: exact size first, then symbolic, then larger.

    The builds have inputs of the same names, dtypes and ranks.
    """

    def __init__(self, builds: Sequence[Build], shapes: OpenShapes) -> None:
        specs = builds[0].plan.inputs
        super().__init__(specs)
        self._open = shapes
        self._shapes = [(spec, np.dtype(spec.dtype), shapes.inputs[spec.name]) for spec in specs]
        # Keyed by the shapes of all inputs: one look-up for each frame, with however many builds.
        self._exact = {
            tuple(build.inputs.values()): number for number, build in enumerate(builds) if not build.symbolic
        }
        self._symbolic = next((number for number, build in enumerate(builds) if build.symbolic), None)
        self._sizes = [(shapes.size(build.inputs), number) for number, build in enumerate(builds) if not build.symbolic]

    def accept(self, inputs: Any) -> AcceptedInputs:
        """Return arrays, their build, and its outputs' crop.

        Raises `InputError` if `InputCheck.accept` raises it; `UnknownSize` if no build takes the frame's size.
        """
        arrays_by_name = self._name_arrays(inputs)
        arrays = [read_array("input", spec.name, arrays_by_name[spec.name]) for spec, _, _ in self._shapes]
        for array, (spec, dtype, pattern) in zip(arrays, self._shapes, strict=True):
            if array.dtype != dtype:
                actual = f"{array.dtype}{list(array.shape)}"
                raise InputError(
                    f"wrong dtype for the input {spec.name!r}: {actual} given, "
                    f"{spec.dtype}{describe_shape(pattern)} expected"
                )
        build = self._exact.get(tuple(array.shape for array in arrays))
        return self._substitute(arrays) if build is None else AcceptedInputs(self, arrays, build)

    def _fits(self, spec: TensorSpec, array: np.ndarray) -> bool:
        pattern = self._open.inputs[spec.name]
        return len(pattern) == array.ndim and all(
            isinstance(expected, str) or extent == expected
            for extent, expected in zip(array.shape, pattern, strict=True)
        )

    def _substitute(self, arrays: list[np.ndarray]) -> AcceptedInputs:
        size = self._size(arrays)
        # Before padding: it computes nothing that is thrown away.
        if self._symbolic is not None:
            return AcceptedInputs(self, arrays, self._symbolic)
        if self._open.padded and (larger := self._find_larger(size)) is not None:
            return self._pad_inputs(arrays, size, larger)
        raise UnknownSize(size, arrays, self._describe_builds(size))

    def _size(self, arrays: Sequence[np.ndarray]) -> Size:
        shapes = {spec.name: array.shape for array, (spec, _, _) in zip(arrays, self._shapes, strict=True)}
        return self._open.size(shapes)

    def _find_larger(self, size: Size) -> int | None:
        """Return the cheapest build at least as large in every extent."""
        candidates = [
            (int(np.prod(list(larger.values()))), number)
            for larger, number in self._sizes
            if all(larger[name] >= extent > 0 for name, extent in size.items())
        ]
        return min(candidates)[1] if candidates else None

    def _pad_inputs(self, arrays: Sequence[np.ndarray], size: Size, build: int) -> AcceptedInputs:
        keys = next(key for key, number in self._exact.items() if number == build)
        crop: Crop = {
            name: tuple(slice(None) if factor is None else slice(size[factor[0]] * factor[1]) for factor in axes)
            for name, axes in self._open.padded.items()
        }
        padded = [_pad(array, shape) for array, shape in zip(arrays, keys, strict=True)]
        return AcceptedInputs(self, padded, build, crop)

    def _describe_builds(self, size: Size) -> str:
        sizes = "; ".join(describe_size(size) for size, _ in self._sizes)
        return (
            f"no build for {describe_size(size)}: there are builds for {sizes}; give frames of these sizes, or build "
            f"the bundle for {describe_size(size)} as well"
        )


def _pad(array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    # Zeros, as at the borders of a convolution; only models whose outputs can be cropped get here.
    padded = np.zeros(shape, array.dtype)
    padded[tuple(map(slice, array.shape))] = array
    return padded


def make_input_check(builds: Sequence[Build], shapes: OpenShapes | None) -> InputCheck:
    """Return the check for a pipeline's inputs."""
    return InputCheck(builds[0].plan.inputs) if shapes is None else OpenInputCheck(builds, shapes)
