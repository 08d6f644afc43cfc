"""Compiled headers: facts that files of vendors' compilers state."""

from __future__ import annotations

from pipeline.core.compiled_headers import hef, rknn
from pipeline.core.compiled_headers.header import Header


def find_kind(head: bytes) -> str:
    """Return the key of `COMPILED_FORMATS` of a file that only its chip's library reads, by its first bytes, or ""."""
    return {b"RKNN": "rknn", b"\x01HEF": "hef", b"ftrt": "engine"}.get(_skip_json(head)[:4], "")


def read_header(content: bytes) -> Header:
    """Return the facts of a file that has such a kind; `ValueError` if it is damaged."""
    readers = {"rknn": rknn.read_header, "hef": hef.read_header, "engine": _read_engine}
    return readers[find_kind(content)](content)


def _skip_json(content: bytes) -> bytes:
    # Ultralytics writes a description in front of an engine, and its length in front of that.
    return content[4 + int.from_bytes(content[:4], "little") :] if content[4:5] == b"{" else content


def _read_engine(content: bytes) -> Header:
    """Return an engine's version, where NVIDIA's trtexec reads it; only TensorRT itself can tell tensors and chip."""
    form, version = (_skip_json(content)[part] for part in (slice(4, 8), slice(24, 28)))
    return Header("engine", version=".".join(map(str, version)) if form == bytes(4) and any(version) else "")
