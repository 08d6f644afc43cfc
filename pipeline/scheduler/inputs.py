"""Inputs: callers' arrays of any library, checked against the plan."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pipeline.core import packed_value
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError, describe_error, near

Crop = Mapping[str, tuple[slice, ...]]
"""Crop per output: the caller's part."""


class AcceptedInputs(NamedTuple):
    """A frame's inputs, checked."""

    check: InputCheck
    """Check whose builds are meant."""
    arrays: list[np.ndarray]
    """Arrays in the plan's order."""
    build: int = 0
    """Number of the pipeline's build that takes them."""
    crop: Crop | None = None
    """Part of the outputs that is the result, of a frame that was padded."""


class InputCheck:
    """Check of the caller's inputs against the plan, before anything else."""

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        self._specs = {spec.name: spec for spec in specs}
        # The dtypes are made here, once: to compare with a name, NumPy would look it up for each frame.
        self._signature = tuple((spec.name, np.dtype(spec.dtype), spec.shape) for spec in specs)
        self._packed = [spec.name for spec in specs if packed_value.is_packed(spec)]

    def accept(self, inputs: Any) -> AcceptedInputs:
        """Return arrays in plan order, with their build; a sole input may come without its name.

        Raises `InputError` if a name is unknown or missing, a value is no array, or a dtype, rank or shape differs.
        """
        arrays_by_name = self._name_arrays(inputs)
        if self._packed:
            arrays_by_name = {**arrays_by_name, **{name: _pack(arrays_by_name[name]) for name in self._packed}}
        # Compared one by one, without a list of differences: all of them fit nearly always.
        arrays = []
        for name, dtype, shape in self._signature:
            value = arrays_by_name[name]
            array = value if type(value) is np.ndarray else read_array("input", name, value)
            if array.dtype != dtype or array.shape != shape:
                raise InputError(_wrong_kind(self._specs[name], array))
            arrays.append(array)
        return AcceptedInputs(self, arrays)

    def find(self, frame_inputs: AcceptedInputs) -> AcceptedInputs:
        """Rematch inputs accepted by another check to a build here, or raise `InputError`."""
        arrays_by_name = zip(self._specs, frame_inputs.arrays, strict=True)
        # By name, since another bundle may have its inputs in another order; the crop is that of the frame as it was
        # padded.
        return self.accept(dict(arrays_by_name))._replace(crop=frame_inputs.crop)

    def array(self, name: str, value: Any) -> np.ndarray:
        """Return one input as an array; raise `InputError` on a misfit."""
        if name not in self._specs:
            raise InputError(self._describe_unknown(name))
        array = read_array("input", name, _pack(value) if name in self._packed else value)
        spec = self._specs[name]
        if array.dtype != np.dtype(spec.dtype) or not self._fits(spec, array):
            raise InputError(_wrong_kind(spec, array))
        return array

    def _fits(self, spec: TensorSpec, array: np.ndarray) -> bool:
        return array.shape == spec.shape

    def _name_arrays(self, inputs: Any) -> Mapping[str, Any]:
        # The usual types first: asking for a mapping takes as long as all the rest.
        is_mapping = type(inputs) is dict or (type(inputs) is not np.ndarray and isinstance(inputs, Mapping))
        arrays_by_name = inputs if is_mapping else self._single(inputs)
        # Views of keys compare as sets: the caller's order does not matter.
        if arrays_by_name.keys() != self._specs.keys():
            raise InputError(self._wrong_names(arrays_by_name))
        return arrays_by_name

    def _single(self, value: Any) -> Mapping[str, Any]:
        if len(self._specs) != 1:
            raise InputError(f"give the inputs by name: there are {len(self._specs)}: {', '.join(self._specs)}")
        return dict.fromkeys(self._specs, value)

    def _wrong_names(self, arrays_by_name: Mapping[str, Any]) -> str:
        if unknown := [name for name in arrays_by_name if name not in self._specs]:
            return self._describe_unknown(unknown[0])
        missing_name = next(name for name in self._specs if name not in arrays_by_name)
        return f"no value for the input {missing_name!r}; the inputs are {', '.join(map(str, self._specs.values()))}"

    def _describe_unknown(self, name: object) -> str:
        return f"no input is called {name!r}; the inputs are {', '.join(self._specs)}{near(str(name), self._specs)}"


def _pack(value: Any) -> np.ndarray:
    """Pack a value as bytes, unless packed by an earlier build."""
    is_done = isinstance(value, np.ndarray) and packed_value.is_packed_array(value)
    return value if is_done else packed_value.pack(value)


def _wrong_kind(spec: TensorSpec, array: np.ndarray) -> str:
    aspect = "dtype" if array.dtype != np.dtype(spec.dtype) else "rank" if array.ndim != len(spec.shape) else "shape"
    actual, expected = f"{array.dtype}{list(array.shape)}", f"{spec.dtype}{list(spec.shape)}"
    return f"wrong {aspect} for the input {spec.name!r}: {actual} given, {expected} expected"


def read_array(role: str, name: str, value: Any) -> np.ndarray:
    """Return a value as an array, sharing memory where possible.

    Takes what NumPy takes, PyTorch's tensors also with a gradient or of bfloat16, and whatever has only ``__dlpack__``,
    on the CPU. Raises `InputError`, with the value's `role`, such as ``"input"``, if it is none, or lies where NumPy
    cannot read it.
    """
    # The usual case first: this is asked for each input of each frame.
    if type(value) is np.ndarray:
        return value
    try:
        # Not imported: a tensor of PyTorch's can only be there if its caller has done so.
        if (torch := sys.modules.get("torch")) is not None and isinstance(value, torch.Tensor):
            # NumPy refuses a tensor that has a gradient.
            return _read_tensor(torch, value.detach())
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
            # `asarray` does not know the protocol: it would make an array of one Python object.
            return np.from_dlpack(value)
        return np.asarray(value)
    except Exception as error:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        reason = " ".join(describe_error(error, kind=False).split())
        raise InputError(f"cannot read the {role} {name!r} as an array: a {kind} is given: {reason}") from error


def _read_tensor(torch: Any, tensor: Any) -> np.ndarray:
    if tensor.dtype != torch.bfloat16:
        array: np.ndarray = np.asarray(tensor)
        return array
    try:
        kind = np.dtype("bfloat16")
    except TypeError:  # no package that brings it has been imported, so that no input is of it, either
        raise TypeError("its dtype is bfloat16, which NumPy does not know; give tensor.float()") from None
    # PyTorch converts no bfloat16 to NumPy, but the same bits under another name.
    return np.asarray(tensor.view(torch.int16)).view(kind)
