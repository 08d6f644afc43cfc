"""Annotations of devices for tensors and readers. They compute nothing."""

from __future__ import annotations

from typing import Any

from pipeline.errors import ModelError
from pipeline.frontends.relay.attributes import Attributes
from pipeline.frontends.relay.builder import BindingBuilder
from pipeline.frontends.relay.operators.common import Converter

_KINDS = {1: "cpu", 2: "cuda", 3: "cpu", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 12: "vta", 15: "webgpu"}
"""Device kinds by DLPack's number; 12, the accelerators beside TVM (``ext_dev``), had VTA's driver only."""


def _device(attrs: Attributes, virtual: str, number: str) -> str | None:
    """Return an annotation's device: virtual, or an old version's number."""
    virtual_device = attrs.get(virtual)
    kind: object = attrs.integer(number, -1)
    index: object = -1
    if isinstance(virtual_device, dict):
        kind, index = (
            virtual_device.get("device_type", virtual_device.get("device_type_int")),
            virtual_device.get("virtual_device_id", -1),
        )
    # DLPack has no kind 0; TVM writes it, or -1, for "anywhere".
    if kind in (None, -1, 0):
        return None
    if not isinstance(kind, int) or kind not in _KINDS:
        raise ModelError(f"devices of the kind {kind!r} are not supported")
    return f"{_KINDS[kind]}:{index}" if isinstance(index, int) and index >= 0 else _KINDS[kind]


def _on_device(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    """Place `x` on a device, and if constrained, its readers."""
    device = _device(attrs, "virtual_device", "device_type")
    body = attrs.flag("constrain_body", True)
    # Older versions say is_fixed for constrain_result.
    result = attrs.flag("is_fixed") | attrs.flag("constrain_result")
    if device and body:
        builder.place(x, device)
    return builder.read_on(x, device) if device and result else x


def _device_copy(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    source = _device(attrs, "src_virtual_device", "src_dev_type")
    target = _device(attrs, "dst_virtual_device", "dst_dev_type")
    if source:
        builder.place(x, source)
    return builder.read_on(x, target) if target else x


TABLE: dict[str, Converter] = {"on_device": _on_device, "device_copy": _device_copy}
