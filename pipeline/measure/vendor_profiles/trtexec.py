"""TensorRT's profile: the JSON of ``trtexec --exportProfile``."""

from __future__ import annotations

import msgspec

from pipeline.measure.vendor_profiles import LayerTime, VendorProfile


class _Layer(msgspec.Struct):
    # The first entry has the number of frames alone.
    name: str = ""
    averageMs: float = 0.0  # noqa: N815 - TensorRT's own name


def read(text: str) -> VendorProfile:
    """Return the times of each layer; fused ones have their operators' names between plus signs."""
    entries = msgspec.json.decode(text, type=list[_Layer])
    layers = tuple(LayerTime(tuple(entry.name.split(" + ")), entry.averageMs / 1e3) for entry in entries if entry.name)
    return VendorProfile(sum(layer.seconds for layer in layers), layers)
