"""ModelProgram: a model of an application, running, with its card."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.core.card_file import convert_card
from pipeline.core.model_card import ModelCard, Preparation
from pipeline.errors import AppError, BoardError, InputError, ModelError, PlanError
from pipeline.executor.bundle import Bundle
from pipeline.executor.bundle_description import describe_bundle
from pipeline.io.result_reader import choose_card, make_reader
from pipeline.io.result_stream import load_bundle
from pipeline.picture.preparation import PictureInput, PreparationStage
from pipeline.workflow import model_cache
from pipeline.workflow.load import load

if TYPE_CHECKING:
    from pipeline.app.app_frame import AppFrame
    from pipeline.app.nodes import Model
    from pipeline.core.plan.plan import Plan
    from pipeline.io.result_reader import ResultReader
    from pipeline.picture.geometry import Geometry
    from pipeline.picture.pixels import Pixels
    from pipeline.scheduler.frame import FrameFuture


class ModelProgram:
    """A bundle that runs, and what its card says of pictures and results.

    The file's path is relative to `folder`, and a bundle takes the place of the node's file; the options are those of
    `pipeline.load`. The model's input has the `picture_size` of width and height, (0, 0) if it takes no picture.
    """

    def __init__(
        self, name: str, node: Model, bundle: Bundle | None = None, folder: Path = Path(), **options: Any
    ) -> None:
        choices = _plan_choices(node, folder)
        bundle, self.card, self._reader = _read(
            name, node, folder, lambda: bundle or load_bundle(folder / node.file, choices)
        )
        self._plan, preparation = bundle.plan, self.card.preparation or Preparation()
        self._input: PictureInput | None = None
        self.picture_size = 0, 0
        try:
            self._input = PictureInput(bundle.plan.inputs[0], preparation, bundle.plan.quantization, bundle.pictures)
            self.picture_size = self._input.layout.width, self._input.layout.height
        except InputError:
            # It takes other frames than pictures.
            pass
        # By the format of pictures: preparing is made for one size.
        self._stages: dict[Pixels, PreparationStage] = {}
        self.running = load(bundle, admission="block", stage_timeout=node.stage_timeout, **options)

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
        spec = self._plan.inputs[0]
        if isinstance(inputs, np.ndarray) and len(self._plan.inputs) == 1 and inputs.size == np.prod(spec.shape):
            return np.ascontiguousarray(inputs).reshape(spec.shape)
        return inputs

    def submit_picture(self, picture: np.ndarray, frame: AppFrame) -> tuple[FrameFuture, Geometry | None]:
        """Submit a picture, uint8 RGB [height, width, 3]; waits for a place."""
        array, geometry = self._picture_input().prepare(picture)
        return self._submit(array, frame), geometry

    def _picture_input(self) -> PictureInput:
        if self._input is None:
            raise InputError(f"the model takes no pictures: its inputs are {', '.join(map(str, self._plan.inputs))}")
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


def describe_model(name: str, node: Model, folder: Path = Path()) -> Plan:
    """Return the plan of a node's file, not built; raise what `ModelProgram` raises for the file, plan and card."""

    def describe() -> Bundle:
        path = folder / node.file
        if not model_cache.is_model(path):
            return describe_bundle(path)
        model_cache.check_model(path)
        # What plans is not part of the runtime's distribution.
        from pipeline.workflow import plan, read

        graph = read.read(path)
        return Bundle(plan.plan(graph, **_plan_choices(node, folder)), (), card=graph.card)

    return _read(name, node, folder, describe)[0].plan


def _read(
    name: str, node: Model, folder: Path, load_model: Callable[[], Bundle]
) -> tuple[Bundle, ModelCard, ResultReader | None]:
    """Return a bundle, its card with the node's own fields in front, and the reader of results."""
    try:
        bundle = load_model()
        written = convert_card(dict(node.card), "card", name, folder) if node.card else ModelCard()
        card = choose_card(bundle.plan, written.merge(bundle.card or ModelCard()))
        return bundle, card, make_reader(bundle.plan, card)
    except (BoardError, InputError, ModelError, PlanError) as error:
        raise AppError(f"model {name!r}: {error}") from None


def _plan_choices(node: Model, folder: Path) -> dict[str, Any]:
    """Return the options of a model's plan."""
    board = folder / node.board
    choices: dict[str, Any] = {"board": str(board) if board.is_file() else node.board, "stages": node.stages}
    return choices | ({"precision": node.precision} if node.precision else {})
