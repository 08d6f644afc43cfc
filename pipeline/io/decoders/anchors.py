"""Anchors: boxes at fixed positions that a detector corrects.

Anchors are arrays [N, 4] of centre x, centre y, width and height as fractions of the input.  They follow from rules, so
that a card has a few numbers instead of thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import msgspec
import numpy as np

from pipeline.core.model_card import Preparation
from pipeline.core.plan.plan import TensorSpec
from pipeline.io.decoders.activation import activate, logit
from pipeline.io.decoders.base import Decode, DecoderFamily, Guess, ModelInterface, check_labels, mismatch
from pipeline.io.decoders.grid import grid_sizes
from pipeline.io.decoders.suppression import BoxParameters, best_boxes, best_classes, box_overlap, make_detections
from pipeline.io.results import Detections, Result

Rule = Callable[[tuple[int, int], Any], np.ndarray]
"""Lays anchors over an input of a width and height, by a family's parameters."""


class AnchorParameters(BoxParameters, frozen=True, forbid_unknown_fields=True):
    """Parameters of detectors with anchors."""

    strides: tuple[int, ...] = (8, 16, 32)
    """Pixels between the cells of each level."""
    anchors: tuple[tuple[float, float, float, float], ...] = ()
    """Centre x, centre y, width and height of each as fractions; by default they follow from the family's rule."""
    order: Literal["xywh", "yxhw"] = "xywh"
    """``"xywh"``, or ``"yxhw"`` with y and the height first."""
    variances: tuple[float, float] = (0.1, 0.2)
    """Factors of the outputs for centre and size."""
    exponential: bool = True
    """True if sizes are logarithms."""
    decoded: bool | None = False
    """True if boxes are corners already, as fractions; None if a frame's values shall tell."""
    background: bool = False
    """True if the first score is that of the background."""
    sigmoid: bool | None = None
    """True if scores are logits; by default values outside of 0 to 1 tell."""


def lay_anchors(
    size: tuple[int, int], strides: Sequence[int], shapes: Sequence[Any], *, exact: bool = False
) -> np.ndarray:
    """Lay anchors of `shapes` [K, 2], width and height, over the cells of each level.

    Cells are one stride apart if `exact`; else they divide the input evenly.
    """
    levels = []
    for (rows, columns), stride, shape in zip(grid_sizes(size, strides), strides, shapes, strict=True):
        extent = np.array(size) / stride if exact else np.array((columns, rows))
        centres = (np.mgrid[:rows, :columns].reshape(2, -1)[::-1].T + 0.5) / extent
        array = np.asarray(shape, np.float64)
        levels.append(np.hstack([np.repeat(centres, len(array), 0), np.tile(array, (len(centres), 1))]))
    return np.concatenate(levels).astype(np.float32)


def correct_anchors(values: np.ndarray, anchors: np.ndarray, parameters: AnchorParameters) -> np.ndarray:
    """Return corners and points [N, 2 + K, 2] of values [N, 4 + 2 K]: a centre, a size, and points."""
    pairs = _pairs(values, parameters)
    centre, size = anchors[:, None, :2], anchors[:, None, 2:]
    shift, growth = parameters.variances
    places = pairs * shift * size + centre
    with np.errstate(over="ignore"):
        factors = np.exp(pairs[:, 1:2] * growth) if parameters.exponential else pairs[:, 1:2] * growth
    half = factors * size / 2
    return np.concatenate([places[:, :1] - half, places[:, :1] + half, places[:, 2:]], 1)


def merge_boxes(pairs: np.ndarray, scores: np.ndarray, parameters: BoxParameters) -> tuple[np.ndarray, np.ndarray]:
    """Return the means of boxes that overlap the best, weighted by score, and the best scores.

    By "BlazeFace: Sub-millisecond Neural Face Detection on Mobile GPUs", arXiv 1907.05047, where boxes of a video jump
    less than the best ones do.
    """
    # A network whose numbers overflow says nothing about a position.
    finite = np.isfinite(pairs).all((1, 2))
    pairs, scores = pairs[finite], scores[finite]
    overlap = box_overlap(_boxes(pairs), parameters.iou)
    order = np.argsort(-scores, kind="stable")
    means: list[np.ndarray] = [pairs[:0]]
    best: list[float] = []
    while len(order) and len(best) < parameters.most:
        group = overlap(order[:1], order)[0]
        # A box without an area overlaps nothing, not even itself.
        group[0] = True
        means.append(np.average(pairs[order[group]], 0, scores[order[group]])[None].astype(np.float32))
        best.append(scores[order[0]])
        order = order[~group]
    return np.concatenate(means), np.array(best, np.float32)


def find_outputs(
    interface: ModelInterface, count: int, widths: Mapping[str, int | None]
) -> dict[str, TensorSpec] | None:
    """Return outputs [1, count, width] by role, or None; a width of None, for any, comes last."""
    specs = [spec for spec in interface.outputs if tuple(spec.shape[:-1]) == (1, count)]
    roles = {}
    for role, width in widths.items():
        spec = next((spec for spec in specs if width in (None, spec.shape[-1])), None)
        if spec is None:
            return None
        roles[role] = spec
        specs.remove(spec)
    return roles if len(roles) == len(interface.outputs) else None


def anchor_family(  # noqa: PLR0913 - all but the first three by keyword
    name: str,
    rule: Rule,
    variants: Sequence[AnchorParameters],
    *,
    widths: Mapping[str, int | None],
    preparation: Preparation,
    labels: Sequence[str] = (),
    merge: bool = False,
) -> DecoderFamily:
    """Return the registry entry of a family of detectors with anchors.

    Variants, of the models published, are recognised by their number of anchors. `widths` are those of the outputs, see
    `find_outputs`: ``boxes`` with points behind, ``points`` if they are apart, and ``scores``. With `merge`, boxes that
    overlap become their mean.
    """

    def make(interface: ModelInterface, parameters: AnchorParameters) -> Decode:
        interface = replace(interface, labels=interface.labels or labels)
        stated = np.array(parameters.anchors, np.float32)
        anchors = stated if len(stated) else rule(interface.size, parameters)
        roles = find_outputs(interface, len(anchors), widths)
        if roles is None:
            shapes = ", ".join(f"[1, {len(anchors)}, {width or 'classes'}]" for width in widths.values())
            raise mismatch(name, f"{shapes}, since there are {len(anchors)} anchors", interface)
        scores = roles["scores"]
        check_labels(interface, scores.shape[-1] - parameters.background, scores.name)

        def decode(outputs: Mapping[str, np.ndarray]) -> Result:
            arrays = {role: outputs[spec.name][0] for role, spec in roles.items()}
            return read_anchors(arrays, anchors, parameters, interface, merge=merge)

        return decode

    def recognise(interface: ModelInterface) -> Guess | None:
        for variant in variants if min(interface.size) > 0 else ():
            count = len(rule(interface.size, variant))
            if find_outputs(interface, count, widths):
                shapes = " and ".join(f"[1, {count}, {width or 'classes'}]" for width in widths.values())
                values, defaults = map(msgspec.to_builtins, (variant, type(variant)()))
                stated = {key: value for key, value in values.items() if value != defaults[key]}
                reason = f"its outputs are {shapes}, for the {count} anchors of {interface.size[0]}x{interface.size[1]}"
                return Guess(reason, stated, preparation)
        return None

    return DecoderFamily(name, "detect", type(variants[0]), make, recognise)


def read_anchors(
    arrays: Mapping[str, np.ndarray],
    anchors: np.ndarray,
    parameters: AnchorParameters,
    interface: ModelInterface,
    *,
    merge: bool = False,
) -> Detections:
    """Return the detections of ``boxes``, ``scores`` and ``points``, one row for each anchor."""
    # 1. Anchors with something in them.
    cells, classes, scores = _best_scores(arrays["scores"], parameters)
    # 2. Their corners and points.
    values = np.hstack([arrays[role][cells] for role in ("boxes", "points") if role in arrays])
    decoded = parameters.decoded
    if decoded is None:
        # Corners are in order for all anchors; corrections are so only by chance.
        decoded = bool((arrays["boxes"][:, 2:4] >= arrays["boxes"][:, :2]).all())
    pairs = _pairs(values, parameters) if decoded else correct_anchors(values, anchors[cells], parameters)
    pairs *= np.array(interface.size, np.float32)
    # 3. One for each thing.
    if merge:
        pairs, scores = merge_boxes(pairs, scores, parameters)
        result = make_detections(_boxes(pairs), scores, np.zeros(len(scores)), interface)
    else:
        result, winners = best_boxes(_boxes(pairs), scores, classes, parameters, interface)
        pairs = pairs[winners]
    points = pairs[:, 2:]
    # Points have no scores of their own.
    points = np.concatenate([points, np.ones_like(points[..., :1])], -1)
    return replace(result, points=points) if points.shape[1] else result


def _boxes(pairs: np.ndarray) -> np.ndarray:
    return pairs[:, :2].reshape(-1, 4)


def _pairs(values: np.ndarray, parameters: AnchorParameters) -> np.ndarray:
    """Return values [N, 2 K] as pairs of x and y."""
    pairs = values.reshape(len(values), values.shape[1] // 2, 2).astype(np.float32)
    return pairs[..., ::-1] if parameters.order == "yxhw" else pairs


def _best_scores(scores: np.ndarray, parameters: AnchorParameters) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    scores = scores[:, 1:] if parameters.background else scores
    is_logit = parameters.sigmoid
    if is_logit is None:
        is_logit = scores.size > 0 and bool(scores.min() < 0 or scores.max() > 1)
    if not is_logit:
        return best_classes(scores.T, parameters.score)
    # The threshold's logit, so that few exponentials are needed.
    cells, classes, logits = best_classes(scores.T, logit(parameters.score))
    return cells, classes, activate(logits, "sigmoid", 0)
