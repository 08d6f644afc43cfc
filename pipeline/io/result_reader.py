"""Result reader: outputs of a frame as a result in its picture's pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pipeline.core.model_card import ModelCard
from pipeline.core.picture_layout import layout
from pipeline.core.plan.plan import Plan, TensorSpec
from pipeline.core.tensor_quantization import numbers
from pipeline.errors import InputError
from pipeline.io.decoders.base import ModelInterface
from pipeline.io.decoders.registry import complete_card, make_decoder
from pipeline.picture.geometry import Geometry

if TYPE_CHECKING:
    from pipeline.io.results import Result
    from pipeline.io.source_frame import SourceFrame


class ModelEnds(Protocol):
    """Inputs and outputs of a model, as a graph and its plans have."""

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """Inputs in the model's order."""

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """Outputs in the model's order."""


class ResultReader:
    """Decodes a model's outputs by its card, which has a decoder; see `choose_card`.

    The plan is that of the model itself, without a stage for pictures in front. Raises `InputError` if the decoder is
    unknown, or the outputs are not its.
    """

    def __init__(self, plan: Plan, card: ModelCard) -> None:
        self.card, self._quantization = card, plan.quantization
        interface = model_interface(plan, card)
        self._decode, self._size = make_decoder(card, interface), interface.size

    def read(self, outputs: Mapping[str, Any], geometry: Geometry | None, size: tuple[int, int] | None) -> Result:
        """Return the result of a frame, by the pipeline's outputs.

        The picture of that width and height lies in the model's input as `geometry` says; without one they are the
        same.
        """
        result = self._decode(numbers(outputs, self._quantization))
        if geometry is None or size is None:
            # A picture of the input's size lies there as it is; without any size there is nothing to map.
            size, geometry = self._size, Geometry(*self._size, 0, 0, 1, 1, self._size)
        return result.to_picture(geometry, size) if all(size) else result

    def read_frame(self, frame: SourceFrame, outputs: Mapping[str, Any], geometry: Geometry | None) -> Result:
        """Return the result of a source's frame; its own geometry wins."""
        return self.read(outputs, *frame.placement(geometry))


def make_reader(plan: Plan, card: ModelCard) -> ResultReader | None:
    """Return the reader of a card's decoder; None without one."""
    return ResultReader(plan, card) if card.decodes else None


def model_interface(ends: ModelEnds, card: ModelCard) -> ModelInterface:
    """Return the interface of a model; its size is (0, 0) unless it takes one picture."""
    try:
        order = card.preparation.layout if card.preparation else ""
        shape = layout(ends.inputs[0], order) if len(ends.inputs) == 1 else None
    except InputError:
        shape = None
    size = (shape.width, shape.height) if shape else (0, 0)
    return ModelInterface(size, ends.outputs, card.labels)


def choose_card(ends: ModelEnds, card: ModelCard | None) -> ModelCard:
    """Return the card with what can be guessed from the model's outputs."""
    card = card or ModelCard()
    return complete_card(card, model_interface(ends, card))
