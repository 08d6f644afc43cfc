"""Formats: what kind of model a file holds, by its first bytes."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from pathlib import Path

from pipeline.errors import ModelError
from pipeline.split.frontends import archives


class Format(Enum):
    """A format that can be read; the value is its name with an article."""

    ONNX = "an ONNX file"
    RELAY = "a Relay program"
    RELAX = "a Relax module"
    TORCH = "an exported PyTorch program"
    TFLITE = "a TFLite model"


_HEAD = 1 << 16
"""Bytes that are looked at; comments may stand in front of a program."""

_COMMENTS = rb"\s*(?:(?://[^\n]*\n|/\*.*?\*/)\s*)*"
_RELAY_TEXT = re.compile(
    _COMMENTS + rb"(?:#\[\s*version|v0\.0\.\d|def\s+@|fn\s*[(\[]|type\s+\w+\s*[\[{]|extern\s+type)", re.DOTALL
)
_SCRIPT = re.compile(rb"^(?:@I\.ir_module|metadata = tvm\.ir\.load_json\()", re.MULTILINE)
_PYTHON = re.compile(rb"^(?:import \w|from [\w.]+ import |def \w+\(|class \w+|@\w+)", re.MULTILINE)
_JSON = re.compile(rb"\s*\{")
_LETTERS = re.compile(rb"[\t\n\f\r\x20-\x7e\x80-\xff]*\Z")


def _holds(*words: bytes) -> Callable[[bytes], bool]:
    return lambda head: _JSON.match(head) is not None and all(word in head for word in words)


_RECOGNISED: tuple[tuple[Callable[[bytes], bool], Format], ...] = (
    (lambda head: _RELAY_TEXT.match(head) is not None, Format.RELAY),
    (_holds(b'"root_index"', b'"nodes"'), Format.RELAX),
    (_holds(b'"nodes"', b'"type_key"'), Format.RELAY),
    (lambda head: _SCRIPT.search(head) is not None and _LETTERS.match(head) is not None, Format.RELAX),
    (lambda head: head[4:8] == b"TFL3", Format.TFLITE),
    # A protobuf has no mark of its own; all exporters write the version of the format first.
    (lambda head: head[:1] == b"\x08" and len(head) > 2, Format.ONNX),
)
_REFUSED: tuple[tuple[Callable[[bytes], bool], str], ...] = (
    (lambda head: not head, "is empty"),
    (lambda head: head.startswith(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19"), archives.CHECKPOINT),
    (lambda head: head.startswith(b"\x1f\x8b"), "is compressed with gzip; unpack it"),
    (
        lambda head: head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"),
        "is a pickle, which is never loaded",
    ),
    (lambda head: head.startswith(b"\x89HDF"), "is an HDF5 file, such as Keras writes; convert that to TFLite or ONNX"),
    (
        lambda head: head[8:10] == b'{"' and head[6:8] == b"\0\0",
        "holds parameters only (safetensors); export the program",
    ),
    (lambda head: head.startswith(b"GGUF"), "holds parameters only (GGUF); export the program"),
    (
        lambda head: head.lstrip().startswith(b"<?xml") and b"<net" in head,
        "is an OpenVINO model; give the ONNX file it is made of",
    ),
    (lambda head: head.startswith(b"\x7fELF"), "is a compiled library"),
    (lambda head: head.startswith(b"\x93NUMPY"), "is a NumPy array"),
    (lambda head: head.startswith(b"\xb7\x9c\x04\x05\x4f\x8d\xe5\xf7"), "holds parameters only; give its program"),
    (_holds(b'"nodes"', b'"arg_nodes"'), "is a compiled graph of TVM's graph executor; give the program it is made of"),
    (lambda head: _JSON.match(head) is not None, "is JSON of another kind"),
    (
        lambda head: _PYTHON.search(head) is not None and _LETTERS.match(head) is not None,
        "is Python, but no module of TVMScript (a class decorated by @I.ir_module)",
    ),
    (lambda head: _LETTERS.match(head) is not None, "is text of another kind"),
)


def supported() -> str:
    """Return all formats, as a phrase."""
    names = [each.value for each in Format]
    return f"{', '.join(names[:-1])}, or {names[-1]}"


def recognise(path: Path) -> Format:
    """Return the format of the file at `path`; one that is called ``.onnx`` is taken for that in doubt.

    Raises
    ------
    ModelError
        If it is none of those that can be read; the message says what it is, where that is known.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD)
    except OSError as error:
        raise ModelError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    archive = head.startswith(b"PK")
    if archive and archives.is_exported_program(path):
        return Format.TORCH
    for fits, found in _RECOGNISED:
        if fits(head):
            return found
    if path.suffix == ".onnx":
        return Format.ONNX
    if archive:
        reason = archives.reason(path)
    else:
        reason = next((text for fits, text in _REFUSED if fits(head)), "is of an unknown format")
    raise ModelError(f"{str(path)!r} {reason}; supported is {supported()}")
