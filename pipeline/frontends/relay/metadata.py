"""Objects of TVM's old JSON (0.7 to 0.17): numbered nodes, base64 arrays."""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from pipeline.errors import ModelError
from pipeline.frontends.relay.arrays import decode

Metadata: TypeAlias = Mapping[str, Sequence[object]]
"""Values of ``meta[key][index]``, by keys such as ``relay.Constant``."""

_DEEPEST = 16
"""How far lists may nest in attributes."""

# Attributes whose decimal text is the value; in all others it is the number of a node.
_NUMBERS = {
    "a_max", "a_min", "align_corners", "aligned", "allowzero", "alpha", "axis", "batch_axis", "batch_dim",
    "beta", "bias", "block_size", "ceil_mode", "center", "clip", "constrain_body", "constrain_result",
    "coord_start", "count_include_pad", "deformable_groups",
    "device_type", "dst_dev_type", "is_fixed", "k1", "k2", "mask_value",
    "pad_value",
    "src_dev_type", "sub_diag_right_align", "super_diag_right_align",
    "cubic_alpha", "cubic_exclude", "depth", "dilation_value", "eps", "epsilon", "exclude",
    "extrapolation_value", "force_suppress", "groups", "id_index", "index", "invalid_to_bottom",
    "iou_threshold", "is_ascend", "keep_background", "keepdims", "lhs_axis", "lhs_begin", "momentum",
    "multiplier", "num_groups", "num_newaxis", "rate", "return_indices", "rhs_axis", "rhs_begin",
    "sample_ratio", "scale", "scale_d", "scale_h", "scale_w", "score_index", "score_threshold",
    "select_last_index", "seq_axis", "shift", "size", "spatial_scale", "threshold", "top_k", "transpose_a",
    "transpose_b", "unbiased", "upper", "value",
}  # fmt: skip
# Classes in which one of these is a list or an object after all.
_OBJECTS = {
    "axis": {
        "ArgReduce", "Gather", "L2Normalize", "Reduce", "Repeat", "Reverse", "Scanop", "Scatter",
        "ScatterAdd", "ScatterElements", "Squeeze", "Stack", "Take", "Variance",
    },
    "size": {"AffineGrid", "Resize", "Resize1D", "Resize2D", "Resize3D"},
}  # fmt: skip


@dataclass(frozen=True)
class JsonNode:
    """One object."""

    kind: str
    """Class of the node, such as ``relay.Call``; empty for None."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    """Text of a string or an operator's name."""
    keys: tuple[str, ...] = ()
    data: tuple[int, ...] = ()
    """The nodes in a list or a map."""


class JsonObjects:
    """The objects in one JSON text; `ModelError` if it is not such JSON."""

    def __init__(self, text: str, source: str) -> None:
        self.source = source
        content = self._content(text)
        self.nodes = [self._node(number, node) for number, node in enumerate(content["nodes"])]
        self.root = self._check_index(content.get("root"), "'root'")
        self._encoded_arrays = content.get("b64ndarrays", [])
        # What several nodes refer to is read once, so that no file grows in memory beyond its own size.
        self._arrays: dict[int, np.ndarray] = {}
        self._values: dict[int, object] = {}

    def _content(self, text: str) -> dict[str, Any]:
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{self.source} is not valid JSON: {error}") from None
        if not isinstance(content, dict) or not isinstance(content.get("nodes"), list):
            raise ModelError(f"{self.source} is not JSON of TVM; expected an object with 'root' and 'nodes'")
        if not isinstance(content.get("b64ndarrays", []), list):
            raise ModelError(f"{self.source}: expected a list in 'b64ndarrays'")
        return content

    def error(self, number: int, message: str) -> ModelError:
        """Return an error about one node."""
        return ModelError(f"{self.source}, node {number}: {message}")

    def _node(self, number: int, raw: object) -> JsonNode:
        if not isinstance(raw, dict) or not isinstance(raw.get("type_key"), str):
            raise self.error(number, "expected an object with a 'type_key'")
        attributes, keys, data = raw.get("attrs", {}), raw.get("keys", []), raw.get("data", [])
        if not isinstance(attributes, dict) or not all(isinstance(attribute, str) for attribute in attributes.values()):
            raise self.error(number, "expected strings in 'attrs'")
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise self.error(number, "expected a list of strings in 'keys'")
        if not isinstance(data, list) or not all(type(item) is int for item in data):
            raise self.error(number, "expected a list of numbers in 'data'")
        return JsonNode(raw["type_key"], attributes, self._text(number, raw), tuple(keys), tuple(data))

    def _text(self, number: int, raw: Mapping[str, object]) -> str:
        text = raw.get("repr_str", raw.get("global_key", ""))
        try:
            return binascii.a2b_base64(str(raw["repr_b64"])).decode() if "repr_b64" in raw else str(text)
        except ValueError:
            raise self.error(number, "'repr_b64' is not valid base64") from None

    def _check_index(self, number: object, source: str) -> int:
        if type(number) is not int or not 0 <= number < len(self.nodes):
            raise ModelError(
                f"{self.source}: {source} refers to node {number!r}, but there are {len(self.nodes)} nodes"
            )
        return number

    def node(self, number: int, *kinds: str) -> JsonNode:
        """Return a node of one of these kinds, or of any."""
        node = self.nodes[self._check_index(number, "something")]
        if kinds and node.kind not in kinds:
            raise self.error(number, f"expected {' or '.join(kinds)}, found {node.kind or 'nothing'}")
        return node

    def follow(self, number: int, attribute: str) -> int:
        """Return the node number in an attribute."""
        text = self.node(number).attributes.get(attribute, "")
        if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
            raise self.error(number, f"expected the number of a node in {attribute!r}, found {text!r}")
        return self._check_index(int(text), f"{attribute!r} of node {number}")

    def items(self, number: int) -> tuple[int, ...]:
        """Return the nodes in a list; none without it."""
        return self.node(number, "Array", "").data

    def entries(self, number: int) -> list[tuple[str, int]]:
        """Return the keys and values of a map."""
        node = self.node(number, "Map", "")
        if node.keys or not node.data:
            return list(zip(node.keys, node.data, strict=False))
        keys = [self.node(index) for index in node.data[::2]]
        names = [
            key.text or self.node(self.follow(index, "name_hint")).text
            for key, index in zip(keys, node.data[::2], strict=True)
        ]
        return list(zip(names, node.data[1::2], strict=False))

    def constant(self, number: int) -> np.ndarray:
        """Return the array of a ``relay.Constant``."""
        text = self.node(number, "relay.Constant").attributes.get("data", "")
        if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or int(text) >= len(self._encoded_arrays):
            raise self.error(number, f"refers to array {text!r}, but there are {len(self._encoded_arrays)}")
        index = int(text)
        try:
            if index not in self._arrays:
                self._arrays[index] = decode(binascii.a2b_base64(self._encoded_arrays[index]))
        except (TypeError, ValueError) as error:
            raise self.error(number, f"its array is damaged: {error}") from None
        return self._arrays[index]

    def plain(self, number: int, depth: int = 0) -> object:
        """Return an object as a plain value, unknown kinds by name."""
        if depth > _DEEPEST:
            raise self.error(number, f"lists nest more than {_DEEPEST} deep")
        if number not in self._values:
            self._values[number] = self._plain(number, depth)
        return self._values[number]

    def _plain(self, number: int, depth: int) -> object:
        node = self.node(number)
        if node.kind in ("IntImm", "FloatImm"):
            return _number(node.attributes.get("value", ""))
        if node.kind in ("runtime.String", "StringImm"):
            return node.text or node.attributes.get("value", "")
        if node.kind == "Array":
            return [self.plain(item, depth + 1) for item in node.data]
        if node.kind == "Map":
            return {key: self.plain(item, depth + 1) for key, item in self.entries(number)}
        if node.kind == "VirtualDevice":
            return {name: _number(node.attributes.get(name, "-1")) for name in ("device_type_int", "virtual_device_id")}
        return self.constant(number) if node.kind == "relay.Constant" else node.kind or None

    def attributes(self, number: int) -> dict[str, object]:
        """Return an operator's attributes as plain values."""
        node = self.node(number)
        family = node.kind.removeprefix("relay.attrs.").removesuffix("Attrs")
        return {name: self._attribute(family, name, text) for name, text in node.attributes.items()}

    def _attribute(self, family: str, name: str, text: str) -> object:
        if re.fullmatch(r"\d{1,9}", text, re.ASCII) and (name not in _NUMBERS or family in _OBJECTS.get(name, set())):
            return self.plain(int(text))
        return _number(text)


def _number(text: str) -> object:
    """Return a text's number, or itself."""
    try:
        return int(text) if re.fullmatch(r"-?\d{1,19}", text, re.ASCII) else float(text[:400])
    except ValueError:
        return text


def read_metadata(text: str, source: str) -> Metadata:
    """Read the section after ``#[metadata]`` in a Relay text; `ModelError` if it is damaged."""
    objects = JsonObjects(text, source)
    return {
        key: [objects.plain(item) for item in objects.items(number)] for key, number in objects.entries(objects.root)
    }
