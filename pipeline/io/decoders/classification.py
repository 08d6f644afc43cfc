"""Classification: the best classes of scores along one axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from pipeline.errors import InputError
from pipeline.io.decoders.activation import activate, check_activation
from pipeline.io.decoders.base import Decode, DecoderFamily, Guess, ModelInterface, check_labels
from pipeline.io.results import Classes


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of classification."""

    top: int = 5
    """Classes in the result."""
    activation: str = "auto"
    """``"auto"``, ``"none"``, ``"sigmoid"`` or ``"softmax"``; see `pipeline.io.decoders.activation.activate`."""

    def __post_init__(self) -> None:
        check_activation(self.activation)
        if self.top < 1:
            raise InputError(f"top is {self.top}; it must be 1 or more classes")


def _is_scores(shape: Sequence[int]) -> bool:
    # Of one picture: a batch of them, or a map of scores, has no one best class.
    return sum(extent != 1 for extent in shape) <= 1


def _make(interface: ModelInterface, parameters: Parameters) -> Decode:
    labels = tuple(interface.labels)
    for output in interface.outputs[:1]:
        _check(output.shape, f"the output {output.name!r}")
        count = max(output.shape, default=1)
        if count > 0:
            check_labels(interface, count, output.name)

    def decode(outputs: Mapping[str, np.ndarray]) -> Classes:
        scores = np.asarray(next(iter(outputs.values())))
        _check(scores.shape, "the output")
        scores = activate(scores.reshape(-1), parameters.activation, 0)
        best = np.argsort(-scores, kind="stable")[: parameters.top]
        return Classes(best.astype(np.int64), scores[best], labels)

    return decode


def _check(shape: Sequence[int], subject: str) -> None:
    if not _is_scores(shape):
        raise InputError(
            f"labels are for scores along one axis, such as [1, 1000], but {subject} is {list(shape)}, which is no "
            "classifier's"
        )


def _recognise(interface: ModelInterface) -> Guess | None:
    if len(interface.outputs) != 1 or not all(interface.size):
        return None
    shape = interface.outputs[0].shape
    if not _is_scores(shape) or max(shape, default=1) < 2:
        return None
    return Guess(
        f"its only output {list(shape)} has a score for each class", certain=len(interface.labels) == max(shape)
    )


FAMILIES = (DecoderFamily("classes", "classify", Parameters, _make, _recognise),)
