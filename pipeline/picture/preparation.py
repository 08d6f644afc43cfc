"""Preparation: from picture to model input: resized, normalised, laid out.

Preparation is a stage in front of the model's own, so that it works on the next picture while they work on this one.
One compiled kernel does all of it, without the interpreter's lock.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from pipeline.core.model_card import Preparation
from pipeline.core.picture_layout import layout
from pipeline.core.plan.plan import TensorSpec
from pipeline.core.tensor_quantization import Quantization
from pipeline.errors import InputError
from pipeline.executor.picture_tables import LINES, MIXED, NARROWEST, PictureForm
from pipeline.picture.geometry import Geometry, fit
from pipeline.picture.kernel_arguments import Channels, KernelArguments, arguments
from pipeline.picture.pixels import Pixels
from pipeline.system import memory

if TYPE_CHECKING:
    from pipeline.executor.stage_code import StageCode

_BYTES = ("int8", "uint8")

_BEYOND = 4 * NARROWEST
"""Bytes that a kernel may read behind the last row of a narrow picture."""


class PictureInput:
    """A model's input, filled with pictures by the rules of a preparation.

    Raises `InputError` if it takes no pictures, or bytes that shall be normalised without a scale. `quantizations` are
    the scales of tensors by name, among them the input's if it has one. Without the bundle's `code` for pictures, this
    machine's kernels are compiled.
    """

    def __init__(
        self,
        spec: TensorSpec,
        preparation: Preparation,
        quantizations: Iterable[Quantization] = (),
        code: StageCode | None = None,
    ) -> None:
        self.spec, self.preparation, self.code = spec, preparation, code
        self.layout = layout(spec, preparation.layout)
        quantization = next((scales for scales in quantizations if scales.tensor == spec.name), None)
        self.channels = _channels(preparation, spec, self.layout.channels, quantization)
        self._kernels: dict[str, Any] = {}

    def kernel(self, pixel_format: str) -> Any:
        """Return the kernel for a format of pixels."""
        from pipeline.executor.picture_code import find_kernel

        # Asked for with each crop; TVM's table has a lock.
        if pixel_format not in self._kernels:
            form = PictureForm.of(self.layout, self.spec.dtype)
            self._kernels[pixel_format] = find_kernel(self.code, form, pixel_format)
        return self._kernels[pixel_format]

    def fit(self, width: int, height: int) -> Geometry:
        """Return the position of pictures of a size."""
        rules, room = self.preparation, (self.layout.width, self.layout.height)
        return fit(
            rules.resize,
            (width, height),
            room,
            margin=rules.margin,
            rounding=rules.rounding,
            fraction=rules.fraction,
        )

    def prepare(self, picture: np.ndarray) -> tuple[np.ndarray, Geometry]:
        """Return the input for a photo, uint8 [height, width, 3], and its position."""
        rules = self.preparation
        # Averages of photos have always been bicubic ones.
        rules = msgspec.structs.replace(rules, sampling="bicubic") if rules.sampling == "average" else rules
        stage = PreparationStage(Pixels("rgb24", picture.shape[1], picture.shape[0]), self, rules)
        return stage(picture), stage.geometry


def _channels(rules: Preparation, spec: TensorSpec, count: int, quantization: Quantization | None) -> Channels:
    """Return the scale, shift and margin of each channel."""
    mean, std = (np.resize(np.array(values, float), count) for values in (rules.mean, rules.std))
    scale, shift = rules.white / 255 / std, -mean / std
    if spec.dtype in _BYTES:
        lowest = -128 if spec.dtype == "int8" else 0
        scale, shift = _steps(rules, spec, (scale, shift), quantization) or (np.ones(count), np.full(count, lowest))
        fill = (rules.fill * scale + shift).round().clip(lowest, lowest + 255)
    else:
        fill = rules.fill * scale + shift
    return Channels(scale, shift, fill)


def _steps(
    rules: Preparation, spec: TensorSpec, values: tuple[np.ndarray, np.ndarray], quantization: Quantization | None
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return scale and shift of bytes on an input's own scale; None for the same bytes."""
    # Pictures have one scale: none is known with others for rows, columns or channels.
    if quantization is None or len(quantization.scale) != 1 or not rules.normalises:
        if any(rules.mean) or any(deviation != 1 for deviation in rules.std):
            raise InputError(
                f"the model's input {spec} takes bytes without a scale, which have no mean and std to be normalised by"
            )
        return None
    scale, shift = values[0] / quantization.scale[0], values[1] / quantization.scale[0] + quantization.zero_point[0]
    lowest = -128 if spec.dtype == "int8" else 0
    steps = (np.arange(256)[:, None] * scale + shift).round().clip(lowest, lowest + 255) - lowest
    # Most quantised models take a byte's own value.  TFLite's libraries hand it to all inputs of uint8, also where
    # -1 to 1 has steps of 1 / 128, and the exact one would be half a step away.
    tolerance = 1 if spec.dtype == "uint8" else 0
    is_same = (np.abs(steps - np.arange(256)[:, None]) <= tolerance).all()
    return None if is_same else (scale, shift)


class PreparationStage:
    """Stage function from a picture's bytes to an input.

    `pixels` is the pictures' format; `rules` replace the input's own.
    """

    def __init__(self, pixels: Pixels, picture_input: PictureInput, rules: Preparation | None = None) -> None:
        self._pixels, self._input, self._rules = pixels, picture_input, rules or picture_input.preparation
        self.geometry = picture_input.fit(pixels.width, pixels.height)
        self._kernel = picture_input.kernel(pixels.kernel)
        self._arguments: dict[int, KernelArguments] = {}

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """Return the model's input for a picture, in rows at any distance."""
        array = self._readable(array)
        tables = self._tables(array.strides[0])
        spec = self._input.spec
        target = memory.empty(spec.shape, spec.dtype)
        sizes = [(tables.columns * NARROWEST, "float32"), (MIXED, "float32"), (LINES, "float32"), (LINES, spec.dtype)]
        # Of this call alone, since replicas of the stage share the tables.
        scratch = [np.empty(size, dtype) for size, dtype in sizes]
        self._kernel(*map(_pointer, (array, target, tables.numbers, tables.weights, *scratch)))
        return target

    def _readable(self, array: np.ndarray) -> np.ndarray:
        """Return the picture with adjacent pixels, and memory behind a narrow one."""
        if array.shape != self._pixels.shape or array.dtype != np.uint8:
            raise ValueError(f"the picture is {array.dtype}{list(array.shape)}, not uint8{list(self._pixels.shape)}")
        # Planes of colours have half of the columns.
        if self._pixels.width < 2 * NARROWEST:
            copy = np.zeros(array.size + _BEYOND, np.uint8)[: array.size].reshape(array.shape)
            copy[...] = array
            return copy
        row = array[:1]
        return array if row.flags.c_contiguous else np.ascontiguousarray(array)

    def _tables(self, stride: int) -> KernelArguments:
        # Pictures of a source have one distance of rows; those of a caller may have any.
        if stride not in self._arguments:
            source = self._input
            tables = arguments(self._pixels, stride, source.layout, self.geometry, self._rules, source.channels)
            self._arguments = {stride: tables}
            return tables
        return self._arguments[stride]


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
