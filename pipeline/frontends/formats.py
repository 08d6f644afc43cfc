"""Formats of models: a registry of the readable ones, and advice for others.

A new format is a folder beside this file, and one entry below.  The modules of the folder:

- the package itself has ``load(path, shapes)``, and ``from_object(model, shapes)`` if there are such models in memory.
  Both also take ``params`` where a format has its parameters elsewhere, and ``fallback`` where it has a library;
- ``reference`` and ``merging`` belong to the library: it runs a frame through a model (``ALTERNATIVE``, ``evaluate``,
  ``intermediates``), and joins islands (``merge``), see `references`, `fallback` and `pipeline.split.island_merging`;
- ``extraction`` has ``Extractor``, which cuts a part out of a model, see `extraction`.
"""

from __future__ import annotations

import importlib
import mmap
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.core import packed_model
from pipeline.core.compiled_headers import find_kind
from pipeline.core.packed_model import RUNTIMES, SourceRuntime
from pipeline.errors import ModelError
from pipeline.frontends import archives
from pipeline.system.files import check_regular
from pipeline.tvm.runtime import add_function

_HEAD = 1 << 16
"""Bytes looked at; comments may stand in front of a program."""

_COMMENTS = rb"\s*(?:(?://[^\n]*\n|/\*.*?\*/)\s*)*"
# What astext() begins with: its version, or a definition, when somebody has cut the version off.
_RELAY_TEXT = re.compile(
    _COMMENTS + rb"(?:#\[\s*version|v0\.0\.\d|def\s+@|fn\s*[(\[]|type\s+\w+\s*[\[{]|extern\s+type)", re.DOTALL
)
# The two ways in which module.script() begins, after imports: with the class, or with its constants.
_SCRIPT = re.compile(rb"^(?:@I\.ir_module|metadata = tvm\.ir\.load_json\()", re.MULTILINE)
_PYTHON = re.compile(rb"^(?:import \w|from [\w.]+ import |def \w+\(|class \w+|@\w+)", re.MULTILINE)
_HTML = re.compile(rb"<(?:!doctype\s+html|html)\b", re.IGNORECASE)
_JSON = re.compile(rb"\s*\{")
# No control characters but white space; bytes above 127 may be UTF-8 that the head cuts in two.
_LETTERS = re.compile(rb"[\t\n\f\r\x20-\x7e\x80-\xff]*\Z")


def _holds(*words: bytes) -> Callable[[bytes], bool]:
    return lambda head: _JSON.match(head) is not None and all(word in head for word in words)


def _is_relay(head: bytes) -> bool:
    # A Relax module in JSON has types of nodes as well; its root tells the two apart.
    is_json = _holds(b'"nodes"', b'"type_key"')(head) and not _holds(b'"root_index"', b'"nodes"')(head)
    return _RELAY_TEXT.match(head) is not None or is_json


def _is_relax(head: bytes) -> bool:
    return _holds(b'"root_index"', b'"nodes"')(head)


def _is_tflite(head: bytes) -> bool:
    # A flatbuffer begins with the offset of its root, then has the identifier of its schema.
    return head[4:8] == b"TFL3"


def _is_onnx(head: bytes) -> bool:
    # A protobuf has no mark of its own; all exporters write the version of the format first.
    # Tag 8 is field 1 (ir_version) as a varint. The length rules out a text of one letter.
    # A flatbuffer, whose four letters stand in bytes 4 to 8, may begin so, too.
    return head[:1] == b"\x08" and len(head) > 2 and head[4:8] not in (b"TFL3", b"ORTM", b"ET12")


@dataclass(frozen=True, eq=False)
class Format:
    """A readable format with everything it can do."""

    title: str
    """Name with an article."""
    package: str
    """The frontend, imported when it is needed, as each needs libraries of its own."""
    matches: Callable[[bytes], bool] = lambda _: False
    """Test for the first bytes of a file of the format; at most one format accepts them."""
    holds_archive: Callable[[Path], bool] = lambda _: False
    """Test for the path of a ZIP file of the format."""
    types: tuple[str, ...] = ()
    """Classes of models in memory."""
    suffix: str = ""
    """Suffix of files that are taken for this format in doubt."""
    external_parameters: bool = False
    """True if parameters may come from elsewhere."""
    symbolic: bool = False
    """True if extents may stay open in the imported module."""
    parts: str = ""
    """Suffix of the files of stages that are cut out of a model; empty if none are. The library runs these."""
    library: SourceRuntime | None = None
    """Library that runs such models: it is compared with, and computes operators that cannot be imported."""

    def __str__(self) -> str:
        """Return the format's name with an article."""
        return self.title

    @property
    def required_library(self) -> SourceRuntime:
        """Library for these models; `ModelError` without one."""
        if self.library is None:
            raise ModelError(f"{self} cannot be verified: no other library runs it")
        return self.library

    def module(self, name: str = "") -> Any:
        """Import the frontend, or one of its modules."""
        return importlib.import_module(f"{self.package}.{name}" if name else self.package)


FORMATS: list[Format] = []
"""Formats that can be read, in the order in which messages name them."""


def register(entry: Format) -> Format:
    """Add a format, with its library."""
    FORMATS.append(entry)
    if entry.library is not None and entry.library.kind not in RUNTIMES:
        RUNTIMES[entry.library.kind] = entry.library
        add_function(entry.library.kind)
    return entry


def of_library(library: SourceRuntime) -> Format:
    """Return the format of a library's models."""
    return next(entry for entry in FORMATS if entry.library == library)


# A name, not __name__ of the packages: they are imported only when a file of theirs is read.
_FOLDER = "pipeline.frontends"

ONNX = register(Format(
    "an ONNX file", f"{_FOLDER}.onnx", _is_onnx, types=("onnx.onnx_ml_pb2.ModelProto",), suffix=".onnx",
    symbolic=True, parts=".onnx", library=packed_model.ONNX_RUNTIME,
))  # fmt: skip
RELAY = register(Format("a Relay program", f"{_FOLDER}.relay", _is_relay, external_parameters=True, symbolic=True))
RELAX = register(Format(
    "a Relax module", f"{_FOLDER}.relax", _is_relax, types=("tvm.ir.module.IRModule", "tvm.relax.expr.Function"),
    external_parameters=True, symbolic=True,
))  # fmt: skip
TORCH = register(Format(
    "an exported PyTorch program", f"{_FOLDER}.torch", holds_archive=archives.is_exported_program,
    types=("torch.export.exported_program.ExportedProgram",), library=packed_model.PYTORCH,
))  # fmt: skip
TFLITE = register(
    Format("a TFLite model", f"{_FOLDER}.tflite", _is_tflite, parts=".tflite", library=packed_model.LITERT)
)


COMPILED = register(Format("a file compiled for a chip (.rknn, .hef, .engine)", f"{_FOLDER}.compiled"))

EDGE_TPU = b"edgetpu-custom-op"
"""Custom operator of Coral's compiler."""

EP_CONTEXT = b"\x22\x09EPContext"
"""Kind of a node that is a provider's context, with its tag and length in ONNX's message."""


def _begins(*signatures: bytes) -> Callable[[bytes], bool]:
    return lambda head: head.startswith(signatures)


def compiled_kind(path: Path) -> str:
    """Return the kind of a file that a vendor's compiler has made, or ""."""
    with path.open("rb") as stream:
        head = stream.read(_HEAD)
        kind = find_kind(head) or ("epcontext" if _is_onnx(head) and EP_CONTEXT in head else "")
        # Somewhere in the tables, behind the weights of other operators.
        if not kind and _is_tflite(head):
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
                kind = "edgetpu" if content.find(EDGE_TPU) >= 0 else ""
    return kind


# The first that fits is said. No suffix says better what these are.
_REFUSED: tuple[tuple[Callable[[bytes], bool], str], ...] = (
    (lambda head: not head, "is empty"),
    (
        _begins(b"version https://git-lfs.github.com/"),
        "is a pointer of Git LFS, without the file that it stands for; run 'git lfs pull' in its repository",
    ),
    (
        lambda head: head.lstrip()[:1] == b"<" and _HTML.search(head[:4096]) is not None,
        "is an HTML page, maybe what a download said in place of the file; download the file itself",
    ),
    (lambda head: head[4:8] == b"ORTM", "is an .ort file, which ONNX Runtime has made for itself; give its ONNX file"),
    (_begins(b"CYPTRKNN"), "is an encrypted .rknn file; give it unencrypted, or the ONNX file that it was made of"),
    (
        lambda head: head[4:8] == b"ET12",
        "is a program of ExecuTorch (.pte), built already; export it: torch.export.save",
    ),
    (_begins(b"LITERTLM"), "is a language model for LiteRT-LM, with its tokenizer; give a .tflite file"),
    # The magic number 0x1950a86a20f9469cfc6c, pickled, with which torch.save began before version 1.6.
    (lambda head: head.startswith(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19"), archives.CHECKPOINT),
    (lambda head: head.startswith(b"\x1f\x8b"), "is compressed with gzip; unpack it"),
    (
        lambda head: head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"),
        "is a pickle, which is never loaded",
    ),
    (lambda head: head.startswith(b"\x89HDF"), "is an HDF5 file, such as Keras writes; convert that to TFLite or ONNX"),
    (
        # Eight bytes with the length of the header, in which no real header needs the upper two; then JSON.
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
    # The magic number of relay.save_param_dict, 0xF7E58D4F05049CB7, in little-endian order.
    (lambda head: head.startswith(b"\xb7\x9c\x04\x05\x4f\x8d\xe5\xf7"), "holds parameters only; give its program"),
    (_begins(b"\x89PNG", b"\xff\xd8\xff"), "is a picture"),
)

# Guesses, from the surer to the vaguer: a suffix weighs more.
_GUESSES: tuple[tuple[Callable[[bytes], bool], str], ...] = (
    (_holds(b'"nodes"', b'"arg_nodes"'), "is a compiled graph of TVM's graph executor; give the program it is made of"),
    (lambda head: _JSON.match(head) is not None, "is JSON of another kind"),
    (
        lambda head: _SCRIPT.search(head) is not None and _LETTERS.match(head) is not None,
        "is TVMScript, which is Python and not executed; write tvm.ir.save_json(module) to a file, and give that",
    ),
    (
        lambda head: _PYTHON.search(head) is not None and _LETTERS.match(head) is not None,
        "is Python, which is never executed",
    ),
    (lambda head: _LETTERS.match(head) is not None, "is text of another kind"),
)


def supported_formats() -> str:
    """Return all formats, as a phrase."""
    names = list(map(str, FORMATS))
    return f"{', '.join(names[:-1])}, or {names[-1]}"


def recognise(path: Path) -> Format:
    """Return a file's format; ``.onnx`` decides in doubt.

    Raises `ModelError` if it is none of those that can be read; the message says what it is, where that is known.
    """
    try:
        # A pipe would be opened and read to no end.
        check_regular(path)
        with path.open("rb") as stream:
            head = stream.read(_HEAD)
    except OSError as error:
        raise ModelError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    if compiled_kind(path):
        return COMPILED
    is_archive = head.startswith(b"PK")
    for entry in FORMATS:
        if entry.matches(head) or (is_archive and entry.holds_archive(path)):
            return entry
    refusal = archives.describe_refusal(path) if is_archive else _find_refusal(_REFUSED, head)
    # Only in doubt: a suffix may lie, a signature does not.
    for entry in FORMATS:
        if not refusal and path.suffix and path.suffix == entry.suffix:
            return entry
    refusal = refusal or _find_refusal(_GUESSES, head) or "is of an unknown format"
    raise ModelError(f"{str(path)!r} {refusal}; supported is {supported_formats()}")


def _find_refusal(refusals: Iterable[tuple[Callable[[bytes], bool], str]], head: bytes) -> str:
    return next((text for fits, text in refusals if fits(head)), "")
