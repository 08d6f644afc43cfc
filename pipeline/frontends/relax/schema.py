"""Nodes of TVM's JSON, checked against its classes. TVM's reader takes them on trust.

TVM builds each node from what the file says and looks at it later, without asking: a node of another class, or none,
where one must be ends the process.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import tvm

from pipeline.errors import reason
from pipeline.tvm.access import tvm_ffi

_DEEPEST = 400
"""Nodes inside of nodes; TVM follows them by recursion.  Each operator of a sum over all operators is one."""

_CONTAINERS = ("ffi.Array", "ffi.Map")
_PLAIN: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "bool": (bool,),
    "float": (int, float),
    "ffi.BigInt": (int,),
    "ffi.String": (str,),
    "ffi.Tensor": (str,),
    "DataType": (str,),
    # These two by their names.
    "ir.Op": (str,),
    "ir.SourceName": (str,),
}
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_MOST_AXES = 32
_HEAD = 400
"""Characters in front of a tensor's values."""

_INLINE = {1: (int,), 2: (bool,), 3: (int, float), 5: (str,), 6: (list,)}
"""Static types inside their field, without a node of their own: numbers, dtypes and devices."""

_MAY_LACK = {"span", "attrs", "vdevice", "source_map", "layout"}
"""Fields allowed to be empty, against TVM's own declaration."""

_KNOWN_BETTER: dict[tuple[str, str], dict[str, Any]] = {("ir.GenericConst", "value"): {"type": "ffi.Tensor"}}
"""Fields narrower in TVM's own tools than in its declaration."""

_FOREIGN = {"ir.EnvFunc", "relax.expr.ExternFunc", "ffi.Module", "ffi.Function", "ffi.OpaquePtr", "ffi.OpaquePyObject"}
"""Classes of code outside the file."""


@dataclass(frozen=True)
class _SchemaField:
    name: str
    inline: int
    schema: Mapping[str, Any]
    is_required: bool


@dataclass(frozen=True)
class _SchemaClass:
    ancestors: frozenset[str]
    fields: Mapping[str, _SchemaField]


@cache
def _class(key: str) -> _SchemaClass | None:
    """Look up a class of TVM by name, or return None."""
    try:
        info = tvm_ffi.core._lookup_or_register_type_info_from_type_key(key)  # noqa: SLF001 - there is no public way
    except Exception:  # noqa: BLE001 - whatever it raises, TVM has no such class
        return None
    ancestors, fields = [], {}
    while info is not None:
        ancestors.append(info.type_key)
        for entry in info.fields:
            # Without a schema a field may hold anything, as TVM itself allows.
            schema = json.loads((entry.metadata or {}).get("type_schema", '{"type": "Any"}'))
            schema = _KNOWN_BETTER.get((key, entry.name), schema)
            fields[entry.name] = _SchemaField(
                entry.name, entry.field_static_type_index, schema, not entry.c_has_default
            )
        # Fields of base classes stand in the same object.
        info = info.parent_type_info
    return _SchemaClass(frozenset(ancestors), fields)


def check(document: Any) -> None:
    """Check everything TVM would trust.

    Raises `ValueError` if something is missing or of another class; the message names the node.
    """
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
        raise ValueError("it has no list of nodes")  # noqa: TRY004 - the caller expects one type
    nodes, root = document["nodes"], document.get("root_index")
    if not _is_index(root, len(nodes)):
        raise ValueError(f"its root is node {root!r}, but it has {len(nodes)} nodes")
    _SchemaChecker(nodes).check()


def _is_index(value: Any, end: int) -> bool:
    return type(value) is int and 0 <= value < end


class _SchemaChecker:
    def __init__(self, nodes: Sequence[Any]) -> None:
        self._nodes = nodes
        self._kinds: list[str] = []
        self._depths: list[int] = []

    def check(self) -> None:
        for number, node in enumerate(self._nodes):
            kind = node.get("type") if isinstance(node, dict) else None
            if not isinstance(kind, str):
                raise ValueError(f"node {number} has no type")  # noqa: TRY004 - the caller expects one type
            try:
                read = self._node(number, kind, node.get("data"))
            except ValueError as error:
                raise ValueError(f"node {number} ({kind}): {error}") from None
            self._kinds.append(kind)
            # Nodes refer to earlier ones only, so that their depths are known here.
            self._depths.append(1 + max((self._depths[node_number] for node_number in read), default=0))
            if self._depths[-1] > _DEEPEST:
                raise ValueError(f"nodes nest more than {_DEEPEST} deep")

    def _node(self, number: int, kind: str, data: Any) -> list[int]:
        """Check one node and return its references."""
        # An EnvFunc is looked up by name among all functions of the process, and could be called.
        if kind in _FOREIGN:
            raise ValueError("it calls code outside of the file, which is not supported")
        if kind == "None":
            return []
        if kind in _PLAIN:
            _plain(data, _PLAIN[kind])
            if kind == "ffi.Tensor":
                _check_tensor(data)
            return []
        if kind in _CONTAINERS:
            return self._container(number, kind, data)
        schema_class = _class(kind)
        if schema_class is None or "ffi.Object" not in schema_class.ancestors:
            raise ValueError("TVM has no such class")
        if not isinstance(data, dict):
            raise ValueError("its fields are missing")  # noqa: TRY004 - the caller expects one type
        return self._fields(number, schema_class, data)

    def _container(self, number: int, kind: str, data: Any) -> list[int]:
        _plain(data, (list,))
        if not all(_is_index(item, number) for item in data) or (kind == "ffi.Map" and len(data) % 2):
            raise ValueError("it holds what is no earlier node")
        return list(data)

    def _fields(self, number: int, schema_class: _SchemaClass, data: Mapping[str, Any]) -> list[int]:
        # Dictionaries of attributes state their one field by another way.
        if "ir.DictAttrs" in schema_class.ancestors:
            return self._read(number, "__dict__", {"type": "ffi.Map"}, data.get("__dict__"))
        if unknown := data.keys() - schema_class.fields.keys():
            raise ValueError(f"it has no field {min(unknown)!r}")
        if missing_fields := {entry.name for entry in schema_class.fields.values() if entry.is_required} - data.keys():
            raise ValueError(f"its field {min(missing_fields)!r} is missing")
        read = []
        for name, value in data.items():
            field = schema_class.fields[name]
            if field.inline in _INLINE:
                _plain(value, _INLINE[field.inline])
            else:
                read += self._read(number, name, field.schema, value)
        return read

    def _read(self, number: int, name: str, schema: Mapping[str, Any], value: Any) -> list[int]:
        # Only earlier ones: a node that refers to itself would be followed for ever.
        if not _is_index(value, number):
            raise ValueError(f"its field {name!r} is no earlier node")
        if not self._fits(value, schema) and not (name in _MAY_LACK and self._kinds[value] == "None"):
            raise ValueError(f"its field {name!r} is of the class {self._kinds[value]}, not {schema['type']}")
        return [value]

    def _fits(self, number: int, schema: Mapping[str, Any]) -> bool:
        kind, expected_kind = self._kinds[number], schema["type"]
        if expected_kind == "Any" or (expected_kind == "ffi.BigInt" and kind == "int"):
            return True
        if expected_kind in ("Optional", "Union"):
            is_none = expected_kind == "Optional" and kind == "None"
            return is_none or any(self._fits(number, variant) for variant in schema.get("args", ()))
        if expected_kind in ("ffi.Array", "ffi.Map"):
            return kind == expected_kind and self._holds(number, schema.get("args", ()))
        schema_class = _class(kind)
        return kind == expected_kind or (schema_class is not None and expected_kind in schema_class.ancestors)

    def _holds(self, number: int, elements: Sequence[Mapping[str, Any]]) -> bool:
        data = self._nodes[number]["data"]
        return not elements or all(self._fits(node, elements[index % len(elements)]) for index, node in enumerate(data))


def _plain(value: Any, types: tuple[type, ...]) -> list[int]:
    if type(value) not in types:
        raise ValueError(f"it holds a {type(value).__name__}")
    return []


def _check_tensor(text: str) -> None:
    """Compare a base64 tensor with its stated size. TVM would make room for the stated size."""
    if len(text) % 4 or not _BASE64.fullmatch(text):
        raise ValueError("it is not in base64")
    # Only the head: the values themselves may be gigabytes, and TVM decodes them anyway.
    head = base64.b64decode(text[:_HEAD])
    length = len(text) // 4 * 3 - text[-2:].count("=")
    try:
        # The header of TVM's NDArray format: magic, reserved, device (2), axes, and the dtype's three fields.
        *_, rank, _, bits, lanes = struct.unpack_from("<QQiiiBBH", head)
        extents = struct.unpack_from(f"<{rank}q", head, 32) if 0 <= rank <= _MOST_AXES else ()
        (size,) = struct.unpack_from("<q", head, 32 + 8 * rank)
    except struct.error:
        raise ValueError("it is too short for a tensor") from None
    elements = math.prod(extents) if min(extents, default=0) >= 0 else -1
    if not 0 <= rank <= _MOST_AXES or length != 40 + 8 * rank + size or size != elements * ((bits * lanes + 7) // 8):
        raise ValueError(f"{length} bytes are no tensor of the shape {extents}")


def parse(text: str) -> Any:
    """Return the object of a JSON text; `ValueError` if it is no JSON, or is not consistent."""
    try:
        # TVM ends the process on some texts that are no JSON.
        check(json.loads(text))
        return tvm.ir.load_json(text)
    except RecursionError:
        raise ValueError("it nests deeper than is supported") from None
    except Exception as error:  # TVM raises what its classes' checks meet
        raise ValueError(reason(error)) from error
