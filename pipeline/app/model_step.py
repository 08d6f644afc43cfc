"""ModelStep: a model on frames or on their crops, as a pipeline of its own."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pipeline.app import crops as crop_pictures
from pipeline.app.app_frame import SKIPPED, AppFrame
from pipeline.app.crops import Crop
from pipeline.app.steps import Condition, Finish, Step
from pipeline.errors import FrameDropped, InputError, PipelineClosed
from pipeline.io.results import Detections

if TYPE_CHECKING:
    from pipeline.app.books import Books
    from pipeline.app.model_program import ModelProgram
    from pipeline.app.nodes import Model
    from pipeline.scheduler.frame import FrameFuture


class _Submission(NamedTuple):
    """What was submitted for a frame, and how its results come together."""

    frame: AppFrame
    finish: Finish
    boxes: Detections | None
    crops: Sequence[Crop]
    futures: Sequence[tuple[FrameFuture, Any]]
    error: BaseException | None
    skipped: bool = False


class ModelStep(Step):
    """Submits frames or crops in the node's thread, and reads results in another.

    Boxes have to fulfil the condition `where`; the books are those of crops.
    """

    def __init__(self, name: str, node: Model, program: ModelProgram, where: Condition | None, books: Books) -> None:
        self._name, self._node, self.program, self._where, self._books = name, node, program, where, books
        # Not bounded: a stream's frames in flight are.
        self._line: SimpleQueue[_Submission | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._deliver, name=f"results {name}", daemon=True)
        self._thread.start()

    def begin(self, frame: AppFrame, finish: Finish) -> None:
        """Submit a frame or its crops."""
        boxes, parts = self._cut(frame)
        futures: list[tuple[FrameFuture, Any]] = []
        error: BaseException | None = None
        if self._node.for_each:
            self._books.note(self._name, "taken", len(parts))
        try:
            if self._node.for_each:
                futures += (self.program.submit_picture(crop.picture, frame) for crop in parts)
            else:
                futures.append(self.program.submit_frame(frame))
        except BaseException as cause:  # noqa: BLE001 - the frame ends with it, behind those before
            error = cause
        self._line.put(_Submission(frame, finish, boxes, parts, futures, error))

    def skip(self, frame: AppFrame, finish: Finish) -> None:
        """Leave a frame out, behind those that wait for their results."""
        self._line.put(_Submission(frame, finish, None, (), (), None, skipped=True))

    def forget(self, stream: str) -> None:
        """Forget a stream's place in conditions, and its state."""
        if self._where is not None:
            self._where.forget(stream)
        self.program.forget(stream)

    def close(self) -> None:
        """Wait for all results, and close the pipeline."""
        self._line.put(None)
        self._thread.join()
        self.program.close()

    def _cut(self, frame: AppFrame) -> tuple[Detections | None, Sequence[Crop]]:
        """Return the boxes, best first, and a crop for each."""
        node = self._node
        if node.for_each == "tiles":
            tile = node.tile or self.program.picture_size
            regions = crop_pictures.tile_regions(frame.size, tile, node.overlap)
            return None, [crop_pictures.cut(frame.picture, region) for region in regions]
        if not node.for_each:
            return None, ()
        boxes = next(frame.results[name] for name in node.reads if name in frame.results)
        if not isinstance(boxes, Detections):
            raise InputError(f"{self._name!r} runs for each box, but {node.reads[0]!r} gives none")
        if self._where is not None:
            boxes = self._where.choose(frame, boxes)
        # The best ones win; their order stays that of the result.
        rows = sorted(np.argsort(-boxes.scores, kind="stable")[: node.most].tolist())
        regions = crop_pictures.box_regions(boxes, rows, margin=node.margin, square=node.square, upright=node.upright)
        return boxes, [crop_pictures.cut(frame.picture, region) for region in regions]

    def _deliver(self) -> None:
        while (submission := self._line.get()) is not None:
            frame = submission.frame
            try:
                result = SKIPPED if submission.skipped else self._read(submission)
            except BaseException as error:  # noqa: BLE001 - the frame ends with it
                frame.fail(error, _end_of(error))
                result = SKIPPED
            submission.finish(frame, result)

    def _read(self, submission: _Submission) -> Any:
        """Wait for all results of a frame; raise the first error once all have ended."""
        outputs, error = [], submission.error
        # Crops that were not submitted end as what kept them back.
        ends = [_end_of(error)] * (len(submission.crops) - len(submission.futures)) if error else []
        for future, geometry in submission.futures:
            try:
                outputs.append((future.outputs(), geometry))
                ends.append("delivered")
            except (Exception, CancelledError) as cause:  # noqa: BLE001, PERF203 - noted, and raised below
                error = error or cause
                ends.append(_end_of(cause))
        if self._node.for_each:
            for end in ends:
                self._books.note(self._name, end)
        if error is not None:
            raise error
        if not self._node.for_each:
            (values, geometry) = outputs[0]
            return self.program.read(values, geometry, submission.frame.size)
        results = [
            self.program.read(values, geometry, (crop.picture.shape[1], crop.picture.shape[0]))
            for (values, geometry), crop in zip(outputs, submission.crops, strict=True)
        ]
        if submission.boxes is None:
            return crop_pictures.merge_tiles(submission.crops, results)
        if not results:
            return submission.boxes[:0]
        return crop_pictures.join(self._name, submission.boxes, submission.crops, results)


def _end_of(error: BaseException) -> str:
    """Return the end of a frame with an error, see `pipeline.app.books.ENDS`."""
    if isinstance(error, FrameDropped):
        return "dropped"
    return "cancelled" if isinstance(error, (CancelledError, PipelineClosed)) else "failed"
