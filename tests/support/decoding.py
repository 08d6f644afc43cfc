"""Decoding of outputs made by a test, through the public names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.core.model_card import ModelCard
from pipeline.core.plan.plan import TensorSpec
from pipeline.io.decoders.base import ModelInterface
from pipeline.io.decoders.registry import complete_card, make_decoder


def interface_of(
    size: tuple[int, int], outputs: Mapping[str, np.ndarray], labels: Sequence[str] = ()
) -> ModelInterface:
    """Interface of a model with these outputs."""
    return ModelInterface(
        size, [TensorSpec(name, array.shape, str(array.dtype)) for name, array in outputs.items()], labels
    )


def guess(size: tuple[int, int], outputs: Mapping[str, np.ndarray], labels: Sequence[str] = ()) -> ModelCard:
    """Card guessed from the outputs alone."""
    return complete_card(ModelCard(), interface_of(size, outputs, labels))


def decode(
    family: str,
    size: tuple[int, int],
    outputs: Mapping[str, np.ndarray],
    labels: Sequence[str] = (),
    /,
    **parameters: Any,
) -> Any:
    """Result by a family and its parameters, completed by what the outputs tell."""
    interface = interface_of(size, outputs, labels)
    return make_decoder(complete_card(ModelCard(decoder=family, parameters=parameters), interface), interface)(outputs)
