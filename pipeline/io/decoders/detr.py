"""DETR and its like: a set of boxes, without a suppression.

``detr`` has one more class for no object, by "End-to-End Object Detection with Transformers", arXiv 2005.12872;
``rtdetr`` an independent score per class, as Deformable DETR (arXiv 2010.04159), RT-DETR and RF-DETR.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from pipeline.core.model_card import Preparation
from pipeline.core.plan.plan import TensorSpec
from pipeline.io.decoders.activation import activate
from pipeline.io.decoders.base import Decode, DecoderFamily, Guess, ModelInterface, check_labels, mismatch
from pipeline.io.decoders.grid import corners
from pipeline.io.decoders.suppression import Fraction, ScoreParameters, best_boxes
from pipeline.io.results import Result

COCO_GAPS = (0, 12, 26, 29, 30, 45, 66, 68, 69, 71, 83)
"""Numbers of COCO's 91 categories that name nothing. Other networks count the 80 others in a row."""

_PLAIN = Preparation(sampling="bilinear")
_IMAGENET = Preparation(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), sampling="bilinear")


class DetrParameters(ScoreParameters, frozen=True, forbid_unknown_fields=True):
    """Parameters of DETR and its like."""

    score: Fraction = 0.5


def _find_outputs(interface: ModelInterface) -> tuple[TensorSpec, TensorSpec] | None:
    """Return logits and boxes, by the four numbers of these, or None."""
    pair = [spec for spec in interface.outputs if len(spec.shape) == 3 and spec.shape[0] == 1]
    if len(pair) != 2 or len(interface.outputs) != 2 or pair[0].shape[1] != pair[1].shape[1]:
        return None
    # Where there are four classes too, names tell.
    boxes, logits = sorted(pair, key=lambda spec: (spec.shape[2] != 4, "box" not in spec.name))
    return (logits, boxes) if boxes.shape[2] == 4 else None


def _spread_labels(labels: Sequence[str], classes: int) -> Sequence[str]:
    """Return COCO's 80 names at the numbers of its 91 categories, for outputs with so many classes."""
    if (len(labels), classes) != (80, 91):
        return labels
    names = iter(labels)
    return ["N/A" if number in COCO_GAPS else next(names) for number in range(classes)]


def _make(family: str, *, is_set: bool) -> Callable[[ModelInterface, DetrParameters], Decode]:
    def make(interface: ModelInterface, parameters: DetrParameters) -> Decode:
        outputs = _find_outputs(interface)
        if outputs is None:
            raise mismatch(family, "[1, queries, classes] and [1, queries, 4]", interface)
        logits, boxes = outputs
        interface = replace(interface, labels=_spread_labels(interface.labels, logits.shape[2] - is_set))
        check_labels(interface, logits.shape[2] - is_set, logits.name)
        size = np.array(interface.size * 2, np.float32)

        def decode(arrays: Mapping[str, np.ndarray]) -> Result:
            # 1. One class for each query, or every class above the threshold.
            scores = activate(arrays[logits.name][0], "softmax" if is_set else "sigmoid", -1)
            if is_set:
                best = scores[:, :-1].argmax(1)
                scores = scores[:, :-1] * (np.arange(scores.shape[1] - 1) == best[:, None])
            queries, classes = np.nonzero(scores > parameters.score)
            # 2. Their boxes, the best first.
            places = corners(*arrays[boxes.name][0, queries].T) * size
            return best_boxes(places, scores[queries, classes], classes, parameters, interface)[0]

        return decode

    return make


def _family(name: str, *, is_set: bool) -> DecoderFamily:
    def recognise(interface: ModelInterface) -> Guess | None:
        outputs = _find_outputs(interface)
        queries, classes = outputs[0].shape[1:] if outputs else (0, 0)
        # The numbers of queries of the published models.
        if queries not in (100, 300) or is_set != (queries == 100):
            return None
        reason = f"its outputs have {classes} scores and a box for each of {queries} queries"
        names = {spec.name for spec in interface.outputs}
        # RF-DETR's own exporter has the second ones.
        certain = names in ({"logits", "pred_boxes"}, {"labels", "dets"}) or classes - is_set == len(
            _spread_labels(interface.labels, classes - is_set)
        )
        return Guess(reason, {}, _IMAGENET if is_set or "dets" in names else _PLAIN, certain)

    return DecoderFamily(name, "detect", DetrParameters, _make(name, is_set=is_set), recognise)


FAMILIES = (_family("detr", is_set=True), _family("rtdetr", is_set=False))
