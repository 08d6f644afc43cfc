"""Prepared bundle: a bundle with a stage in front that takes pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.core.model_card import Preparation
from pipeline.errors import InputError
from pipeline.picture.geometry import Geometry
from pipeline.picture.pixels import Pixels
from pipeline.picture.preparation import PictureInput, PreparationStage

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle


def prepare_bundle(bundle: Bundle, pixels: Pixels | None, preparation: Preparation) -> tuple[Bundle, Geometry | None]:
    """Return a bundle for pictures and their geometry, unchanged if unnecessary.

    Raises `InputError` if the model takes no pictures; `PlanError` if the bundle is one for several sizes.

    `pixels`: format of the pixels; None if frames come as the model takes them.
    """
    if pixels is None:
        return bundle, None
    if len(bundle.plan.inputs) != 1:
        names = ", ".join(spec.name for spec in bundle.plan.inputs)
        raise InputError(f"a picture is one input, but the model has {names}; give a .npz with these names")
    spec = bundle.plan.inputs[0]
    # The model takes these very bytes: there is nothing to prepare.
    same_bytes = (spec.shape, spec.dtype) == (pixels.shape, "uint8") and not preparation.normalises
    if same_bytes and pixels.format in ("gray", f"{preparation.channels}24"):
        return bundle, None
    picture_input = PictureInput(spec, preparation, bundle.plan.quantization, bundle.pictures)
    stage = PreparationStage(pixels, picture_input)
    # The model may have stages and tensors of these names.
    name = _unique_name("prepare", {stage.name for stage in bundle.plan.stages})
    tensors = {spec.name for spec in (*bundle.plan.inputs, *bundle.plan.outputs)}
    tensors |= {spec.name for part in bundle.plan.stages for spec in part.outputs}
    picture = pixels.spec(_unique_name("picture", tensors))
    extension = bundle.with_stage(stage, inputs=[picture], outputs=[spec.name], name=name, fresh=True)
    return extension, stage.geometry


def _unique_name(name: str, taken_names: set[str]) -> str:
    return name if name not in taken_names else _unique_name(f"{name}_", taken_names)
