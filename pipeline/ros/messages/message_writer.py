"""Writing: results as messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.core.plan.plan import TensorSpec
from pipeline.core.tensor_quantization import Quantization, numbers
from pipeline.errors import InputError, near
from pipeline.io.results import Classes, Detections, Mask, Result
from pipeline.picture.geometry import Geometry
from pipeline.ros.bag_source import IMAGE
from pipeline.ros.messages import cdr, tensors
from pipeline.ros.messages.detections import (
    CLASSIFICATION,
    DETECTIONS,
    check_rows,
    classification,
    detection_array,
    read_rows,
)
from pipeline.ros.messages.message_reader import TENSOR, message_header
from pipeline.ros.messages.types import create_message, fields

if TYPE_CHECKING:
    from pipeline.picture.pixels import Pixels
    from pipeline.ros.bridge import BridgeAnswer
    from pipeline.ros.configuration import Publication

CAMERA_INFO = "sensor_msgs/msg/CameraInfo"
WRITABLE = (DETECTIONS, CLASSIFICATION, IMAGE, CAMERA_INFO, TENSOR, *tensors.DTYPES)

ENCODINGS = {
    ("uint8", 1): "mono8", ("uint8", 3): "rgb8", ("uint8", 4): "rgba8",
    ("uint16", 1): "mono16", ("float32", 1): "32FC1", ("float32", 2): "32FC2", ("float32", 3): "32FC3",
}  # fmt: skip
"""dtype and channels -> encoding, unless the configuration says another."""

_RESULTS = {
    "detect": (DETECTIONS,), "segment": (DETECTIONS,), "pose": (DETECTIONS,), "obb": (DETECTIONS,),
    "classify": (CLASSIFICATION,), "mask": (IMAGE,),
}  # fmt: skip
"""Task -> types of its result."""

PARTS = {"points": (TENSOR, tensors.TYPES["float32"]), "masks": (IMAGE,), "annotated": (IMAGE,)}
"""Part of a result -> its types."""

Message = Callable[[np.ndarray, Any], Any]
"""Makes a message of an array and a header."""


class MessageWriter:
    """Makes the messages of one publication, for pictures at `geometry` in the model's input.

    Detections are published as the numbers that integers stand for by the outputs' quantization, other types unchanged.
    The task is that of the model's decoder, empty without one, and `guessed` if that was. Messages are of the decoded
    result, and not of an output, if `decodes` is True; and that is drawn if `draws` is. Raises `InputError` if there is
    no such output, or it does not fit the type.
    """

    def __init__(  # noqa: PLR0913 - what is published, and of what
        self,
        publication: Publication,
        outputs: Sequence[TensorSpec],
        geometry: Geometry | None = None,
        quantization: Sequence[Quantization] = (),
        task: str = "",
        *,
        guessed: bool = False,
    ) -> None:
        self._kind, self._publication = publication.type, publication
        part = publication.part
        self.draws, self.decodes = part == "annotated", not publication.output and self._kind in _RESULTS.get(task, ())
        if part and (not task or self._kind not in PARTS[part]):
            remedy = f"publish it as {' or '.join(PARTS[part])}" if task else "name a decoder: decode"
            raise InputError(f"topic {publication.topic!r}: there are no {part} in a {self._kind}; {remedy}")
        self.decodes = self.decodes or bool(part)
        if part or self._kind == CAMERA_INFO or (self.decodes and not guessed):
            return
        try:
            self._spec = find_output(publication, outputs)
            self._message = self._maker(publication, geometry)
        except InputError:
            if not self.decodes:
                raise
        # A named output is published as it is, and one that was published before a decoder was guessed, too.
        else:
            self.decodes = False
        # Scores are compared with a threshold, and boxes drawn; other types promise the bytes of the model.
        self._quantization = quantization if self._kind == DETECTIONS else ()

    def payload(
        self, answer: BridgeAnswer, result: Result | None = None, pixels: Pixels | None = None, camera_info: Any = None
    ) -> bytearray | None:
        """Return the bytes of an answer's message; None if there is none.

        Raises `InputError` if the output is of another shape than the type takes.
        """
        header = message_header(answer.header)
        if self._kind == CAMERA_INFO:
            return None if camera_info is None else cdr.encode(replace_header(camera_info, header), CAMERA_INFO)
        if self._publication.part:
            array = _part(self._publication.part, answer, result, pixels)
            return None if array is None else cdr.encode(self._part_message(array, header), self._kind)
        if self.decodes:
            return cdr.encode(self._result_message(result, header), self._kind)
        array = np.asarray(numbers(answer.outputs, self._quantization)[self._spec.name])
        return cdr.encode(self._message(array, header), self._kind)

    def _result_message(self, result: Result | None, header: Any) -> Any:
        publication = self._publication
        if isinstance(result, Detections):
            return detection_array(result, header, publication.score, publication.labels)
        if isinstance(result, Classes):
            return classification(result, header, publication.score, publication.labels)
        assert isinstance(result, Mask)  # noqa: S101 - by its task
        # Class numbers of the pixels; a decoder's result has them once it is at the picture's size.
        return image(np.asarray(result.classes), header, publication)

    def _part_message(self, array: np.ndarray, header: Any) -> Any:
        if self._kind == IMAGE:
            return image(array, header, self._publication)
        return tensor(array, header, self._publication.part) if self._kind == TENSOR else tensors.message(array)

    def _maker(self, publication: Publication, geometry: Geometry | None) -> Message:
        if self._kind == DETECTIONS:
            check_rows(self._spec.shape, self._spec.name)
            return lambda array, header: detection_array(
                read_rows(array, geometry), header, publication.score, publication.labels
            )
        if self._kind == CLASSIFICATION:
            raise InputError(f"topic {publication.topic!r}: the model is no classifier; decode: classes makes it one")
        if self._kind == IMAGE:
            # On an array without content: what does not fit is refused before the first frame.
            _picture(np.empty(self._spec.shape, self._spec.dtype), publication)
            return lambda array, header: image(array, header, publication)
        if self._kind == TENSOR:
            return lambda array, header: tensor(array, header, self._spec.name)
        if tensors.kind(self._spec.dtype) != self._kind:
            raise InputError(
                f"topic {publication.topic!r}: the output {self._spec} is a {tensors.kind(self._spec.dtype)}, "
                f"not a {self._kind}"
            )
        return lambda array, _: tensors.message(array)


def _part(part: str, answer: BridgeAnswer, result: Result | None, pixels: Pixels | None) -> np.ndarray | None:
    """Return key points [boxes, points, 3], numbers of boxes by pixel from 1 on, or the drawn picture."""
    if part == "annotated":
        if pixels is None or result is None:
            return None
        from pipeline.io.sinks.overlay import draw

        return pixels.rgb(draw(np.asarray(answer.inputs), result, pixels))
    if not isinstance(result, Detections):
        return None
    if part == "points":
        return result.points
    if result.masks is None:
        return None
    numbers_of_boxes = np.zeros(result.masks.shape[1:], np.uint16)
    # The best one last, so that it lies above the others.
    for number in range(len(result), 0, -1):
        numbers_of_boxes[result.masks[number - 1]] = number
    return numbers_of_boxes


def replace_header(message: Any, header: Any) -> Any:
    """Return a camera's facts with another header."""
    return create_message(CAMERA_INFO, header, *(getattr(message, field.name) for field in fields(CAMERA_INFO)[1:]))


def find_output(publication: Publication, outputs: Sequence[TensorSpec]) -> TensorSpec:
    """Return a publication's output.

    Raises `InputError` if it is none of the model's, not said, or nothing can be published as this type.
    """
    if publication.type not in WRITABLE:
        raise InputError(
            f"topic {publication.topic!r}: results cannot be published as {publication.type}"
            f"{near(publication.type, WRITABLE)}; there are {', '.join(WRITABLE)}"
        )
    names = [spec.name for spec in outputs]
    # Of one output, the name may be left out.
    if publication.output not in (names if len(names) > 1 else [*names, ""]):
        problem = (
            f"has no output {publication.output!r}" if publication.output else "has several outputs; name one: output"
        )
        raise InputError(
            f"topic {publication.topic!r}: the model {problem}{near(publication.output, names)}; "
            f"they are {', '.join(names)}"
        )
    return next(spec for spec in outputs if publication.output in (spec.name, ""))


def image(array: np.ndarray, header: Any, publication: Publication) -> Any:
    """Return a `sensor_msgs/Image`."""
    picture, encoding = _picture(array, publication)
    height, width = picture.shape[:2]
    # An output without rows has no step.
    step = picture.nbytes // height if height else 0
    return create_message(IMAGE, header, height, width, encoding, 0, step, picture.reshape(-1).view(np.uint8))


def _picture(array: np.ndarray, publication: Publication) -> tuple[np.ndarray, str]:
    # Models have a batch of one in front, which messages have not.
    shape = array.shape[1:] if array.ndim > 2 and array.shape[0] == 1 else array.shape
    channels = shape[2] if len(shape) == 3 else 1
    encoding = publication.encoding or ENCODINGS.get((str(array.dtype), channels), "")
    if len(shape) not in (2, 3) or not encoding:
        raise InputError(
            f"topic {publication.topic!r}: the output of {array.dtype} {list(array.shape)} is no picture: "
            f"[height, width] or [height, width, channels]; or give its encoding, or publish it as {TENSOR}"
        )
    return np.ascontiguousarray(array).reshape(shape), encoding


def tensor(array: np.ndarray, header: Any, name: str) -> Any:
    """Return a `soc_pipeline_msgs/Tensor`: any array, with a header."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return create_message(TENSOR, header, name, str(array.dtype), np.array(array.shape, np.uint64), flat)
