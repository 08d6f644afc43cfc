"""Operators with attributes as operands, converted for constants."""

from __future__ import annotations

from typing import Any

from pipeline.frontends.relay.attributes import Attributes
from pipeline.frontends.relay.builder import BindingBuilder, constant_values
from pipeline.frontends.relay.operators import images, indexing, reductions, shapes
from pipeline.frontends.relay.operators.common import Converter


def _with_constants(convert: Converter, *operands: str) -> Converter:
    """Convert with constants as attributes; an empty name stays an operand."""

    def converter(builder: BindingBuilder, attrs: Attributes, *arguments: Any) -> Any:
        values = {
            # Lists, as attributes are in text, so that converters check them by the same rules.
            name: constant_values(argument, name).tolist()
            for name, argument in zip(operands, arguments, strict=False)
            if name
        }
        tensors = [argument for name, argument in zip(operands, arguments, strict=False) if not name]
        return convert(builder, attrs.replace_values(**values), *tensors, *arguments[len(operands) :])

    return converter


TABLE: dict[str, Converter] = {
    "dyn.expand_dims": _with_constants(shapes.TABLE["expand_dims"], "", "axis"),
    "dyn.image.resize2d": _with_constants(images.TABLE["image.resize2d"], "", "size", "roi"),
    "dyn.nn.pad": _with_constants(shapes.TABLE["nn.pad"], "", "pad_width"),
    "dyn.nn.upsampling": _with_constants(images.TABLE["nn.upsampling"], "", "scale_h", "scale_w"),
    "dyn.nn.upsampling3d": _with_constants(images.TABLE["nn.upsampling3d"], "", "scale_d", "scale_h", "scale_w"),
    "dyn.one_hot": _with_constants(indexing.TABLE["one_hot"], "", "", "", "depth"),
    "dyn.squeeze": _with_constants(shapes.TABLE["squeeze"], "", "axis"),
    "dyn.strided_slice": _with_constants(indexing.TABLE["strided_slice"], "", "begin", "end", "strides"),
    "dyn.tile": _with_constants(shapes.TABLE["tile"], "", "reps"),
    "dyn.topk": _with_constants(reductions.TABLE["topk"], "", "k"),
}
