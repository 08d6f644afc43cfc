"""Inputs: what a frame has to look like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pipeline.errors import InputError, near
from pipeline.plans import TensorSpec

Crop = Mapping[str, tuple[slice, ...]]
"""For each output, the part of it that the caller gets."""


class Accepted(NamedTuple):
    """A frame's inputs, checked.

    Attributes
    ----------
    check : InputCheck
        Whose builds are meant.
    arrays : list of ndarray
        In the plan's order.
    build : int
        Which of the pipeline's builds takes them.
    crop : mapping, optional
        What of the outputs is the result, of a frame that was padded.
    """

    check: InputCheck
    arrays: list[np.ndarray]
    build: int = 0
    crop: Crop | None = None


class InputCheck:
    """Compares what the caller gives with what the plan expects, before anything else happens to it.

    Parameters
    ----------
    specs : sequence of TensorSpec
        The pipeline's inputs.
    """

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._expected = tuple((spec.name, np.dtype(spec.dtype), spec.shape) for spec in specs)

    def accept(self, inputs: Any) -> Accepted:
        """Return the arrays in the plan's order, and the build that takes them.

        Parameters
        ----------
        inputs : mapping of str to array, or array
            The inputs by name; an array alone if there is only one.

        Raises
        ------
        InputError
            If a name is unknown or missing, or a dtype, rank or shape differs.
        """
        named = self._named(inputs)
        arrays = []
        for name, dtype, shape in self._expected:
            array = np.asarray(named[name])
            if array.dtype != dtype or array.shape != shape:
                raise InputError(_wrong_kind(self._specs[name], array))
            arrays.append(array)
        return Accepted(self, arrays)

    def find(self, accepted: Accepted) -> Accepted:
        """Return what another check has accepted, with the build that takes it here.

        Raises
        ------
        InputError
            If none does.
        """
        named = zip(self._specs, accepted.arrays, strict=True)
        return self.accept(dict(named))._replace(crop=accepted.crop)

    def array(self, name: str, value: Any) -> np.ndarray:
        """Return one input as an array; raise `InputError` if there is no such input or it does not fit."""
        if name not in self._specs:
            raise InputError(self._unknown(name))
        array = np.asarray(value)
        spec = self._specs[name]
        if array.dtype != np.dtype(spec.dtype) or not self._fits(spec, array):
            raise InputError(_wrong_kind(spec, array))
        return array

    def _fits(self, spec: TensorSpec, array: np.ndarray) -> bool:
        return array.shape == spec.shape

    def _named(self, inputs: Any) -> Mapping[str, Any]:
        named = inputs if isinstance(inputs, Mapping) else self._single(inputs)
        if named.keys() != self._specs.keys():
            raise InputError(self._wrong_names(named))
        return named

    def _single(self, value: Any) -> Mapping[str, Any]:
        if len(self._specs) != 1:
            raise InputError(f"give the inputs by name: there are {len(self._specs)}: {', '.join(self._specs)}")
        return dict.fromkeys(self._specs, value)

    def _wrong_names(self, named: Mapping[str, Any]) -> str:
        if unknown := [name for name in named if name not in self._specs]:
            return self._unknown(unknown[0])
        missing = [name for name in self._specs if name not in named]
        return f"no value for the input {missing[0]!r}; the inputs are {', '.join(map(str, self._specs.values()))}"

    def _unknown(self, name: object) -> str:
        return f"no input is called {name!r}; the inputs are {', '.join(self._specs)}{near(str(name), self._specs)}"


def _wrong_kind(spec: TensorSpec, array: np.ndarray) -> str:
    what = "dtype" if array.dtype != np.dtype(spec.dtype) else "rank" if array.ndim != len(spec.shape) else "shape"
    given, expected = f"{array.dtype}{list(array.shape)}", f"{spec.dtype}{list(spec.shape)}"
    return f"wrong {what} for the input {spec.name!r}: {given} given, {expected} expected"
