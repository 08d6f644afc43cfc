"""ModelProgram: a model of an application with its card, described, then running."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.core.card_file import convert_card
from pipeline.core.model_card import ModelCard, Preparation
from pipeline.errors import AppError, BoardError, InputError, ModelError, PlanError
from pipeline.io.decoders.registry import BOX_TASKS, find_family
from pipeline.io.planned_model import PlannedModel
from pipeline.io.result_reader import choose_card, make_reader
from pipeline.picture.preparation import PictureInput, PreparationStage
from pipeline.workflow.load import load

if TYPE_CHECKING:
    from pipeline.app.app_frame import AppFrame
    from pipeline.app.nodes import Model
    from pipeline.executor.bundle import Bundle
    from pipeline.picture.geometry import Geometry
    from pipeline.picture.pixels import Pixels
    from pipeline.scheduler.frame import FrameFuture


class ModelProgram:
    """A model of an application with its card, running from `start` on.

    The file's path is relative to `folder`, and a bundle takes the place of the node's file. `AppError` says what is
    wrong with the file, plan or card. The model's input has the `picture_size` of width and height, (0, 0) if it takes
    no picture.
    """

    def __init__(self, name: str, node: Model, bundle: Bundle | None = None, folder: Path = Path()) -> None:
        self._name, self._node, self._folder = name, node, folder
        self._model = PlannedModel(bundle or folder / node.file, _plan_choices(node, folder))
        self._read(self._model.describe)
        # By the format of pictures: preparing is made for one size.
        self._stages: dict[Pixels, PreparationStage] = {}

    def start(self) -> None:
        """Build the model on its first use, and run it."""
        bundle = self._read(self._model.load)
        self.running = load(bundle, admission="block", stage_timeout=self._node.stage_timeout)

    @property
    def gives_boxes(self) -> bool:
        """False if its results are known to have no boxes."""
        decodes_boxes = self.card.decodes and find_family(self.card.decoder).task in BOX_TASKS
        return self._node.for_each == "boxes" or decodes_boxes

    def _read(self, load_model: Callable[[], Bundle]) -> Bundle:
        """Return a bundle, and read its plan and card; the node's own fields win."""
        try:
            bundle = load_model()
            fields = self._node.card
            written = convert_card(dict(fields), "card", self._name, self._folder) if fields else ModelCard()
            self.plan, self.card = bundle.plan, choose_card(bundle.plan, written.merge(bundle.card or ModelCard()))
            self._reader = make_reader(bundle.plan, self.card)
        except (BoardError, InputError, ModelError, PlanError) as error:
            raise AppError(f"model {self._name!r}: {error}") from None
        self._input: PictureInput | None = None
        self.picture_size = 0, 0
        # It may take other frames than pictures.
        with contextlib.suppress(InputError):
            preparation = self.card.preparation or Preparation()
            self._input = PictureInput(self.plan.inputs[0], preparation, self.plan.quantization, bundle.pictures)
            self.picture_size = self._input.layout.width, self._input.layout.height
        return bundle

    def submit_frame(self, frame: AppFrame) -> tuple[FrameFuture, Geometry | None]:
        """Submit a whole frame; waits for a place."""
        source = frame.frame
        if source.pixels is None and source.picture is None:
            return self._submit(self._fit(source.inputs), frame), None
        if source.pixels is None or not isinstance(source.inputs, np.ndarray):
            return self.submit_picture(frame.picture, frame)
        stage = self._stages.get(source.pixels)
        if stage is None:
            stage = self._stages[source.pixels] = PreparationStage(source.pixels, self._picture_input())
        return self._submit(stage(source.inputs), frame), stage.geometry

    def _submit(self, inputs: Any, frame: AppFrame) -> FrameFuture:
        return self.running.submit(inputs, copy=False, timestamp=frame.frame.ready, stream=frame.stream)

    def _fit(self, inputs: Any) -> Any:
        """Return samples in the shape of the model's input."""
        spec = self.plan.inputs[0]
        if isinstance(inputs, np.ndarray) and len(self.plan.inputs) == 1 and inputs.size == np.prod(spec.shape):
            return np.ascontiguousarray(inputs).reshape(spec.shape)
        return inputs

    def submit_picture(self, picture: np.ndarray, frame: AppFrame) -> tuple[FrameFuture, Geometry | None]:
        """Submit a picture, uint8 RGB [height, width, 3]; waits for a place."""
        array, geometry = self._picture_input().prepare(picture)
        return self._submit(array, frame), geometry

    def _picture_input(self) -> PictureInput:
        if self._input is None:
            raise InputError(f"the model takes no pictures: its inputs are {', '.join(map(str, self.plan.inputs))}")
        return self._input

    def read(self, outputs: Mapping[str, Any], geometry: Geometry | None, size: tuple[int, int]) -> Any:
        """Return the result in a picture's pixels; the outputs of a model without a decoder."""
        return outputs if self._reader is None else self._reader.read(outputs, geometry, size)

    def forget(self, stream: str) -> None:
        """Let a stream's state begin anew."""
        self.running.reset(stream)

    def close(self) -> None:
        """Close the pipeline."""
        self.running.close()


def _plan_choices(node: Model, folder: Path) -> dict[str, Any]:
    """Return the options of a model's plan."""
    board = folder / node.board
    choices: dict[str, Any] = {"board": str(board) if board.is_file() else node.board, "stages": node.stages}
    return choices | ({"precision": node.precision} if node.precision else {})
