"""PyTorch programs, exported by ``torch.export`` -> Relax, with the names of modules and of the exported graph."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.errors import MissingExtra, ModelError
from pipeline.split.frontends.imported import Imported
from pipeline.tvm_access import compiler_lock, quiet

try:
    import torch
except ImportError as error:
    message = "reading PyTorch models needs the 'torch' extra; run: pip install 'soc-pipeline[torch]'"
    raise MissingExtra(message) from error

from pipeline.split.frontends.torch import names, reference, signature
from pipeline.split.frontends.torch.decompose import decompose
from pipeline.split.frontends.torch.importer import Importer, unsupported


def load(path: Path, shapes: Mapping[str, Sequence[int]]) -> Imported:
    """Read a file of ``torch.export.save``.

    Raises
    ------
    ModelError
        If this PyTorch cannot read it, or it uses what is not supported; all such operators are named.
    """
    return from_program(open_program(path), shapes, path.stem)


def open_program(path: Path) -> Any:
    """Return the ``ExportedProgram`` in a file.

    Raises
    ------
    ModelError
        If this PyTorch cannot read it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.export.load(path)
        except OSError as error:
            raise ModelError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
        except Exception as error:  # noqa: BLE001 - PyTorch raises what its deserializers meet
            lines = str(error).strip().splitlines()
            raise ModelError(
                f"{str(path)!r}: PyTorch {torch.__version__} cannot read this exported program: "
                f"{lines[0] if lines else type(error).__name__}; export it again with this version"
            ) from None


def from_program(program: Any, shapes: Mapping[str, Sequence[int]], name: str = "") -> Imported:
    """Import an ``ExportedProgram``; `shapes` gives extents to inputs that it leaves open.

    Raises
    ------
    ModelError
        If it uses what is not supported; all such operators are named.
    """
    name = name or names.of_model(program)
    with compiler_lock, quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = decompose(program)
        signature.check(whole, name)
        if missing := unsupported(whole.graph.nodes):
            raise ModelError(f"{name!r} uses operators that are not supported: {'; '.join(missing)}")
        return _import(name, whole, names.of_outputs(program), shapes)


def evaluate(model: Any, frame: Mapping[str, Any]) -> list[Any]:
    """Return the outputs that PyTorch computes of a frame, for a program or the path of one."""
    return reference.evaluate(open_program(Path(model)) if isinstance(model, str | Path) else model, frame)


def _import(name: str, program: Any, outputs: Sequence[str], shapes: Mapping[str, Sequence[int]]) -> Imported:
    inputs = signature.inputs(program, name, shapes)
    importer = Importer()
    try:
        module = importer.run(program, inputs, signature.constants(program))
    except ModelError:
        raise
    except Exception as error:  # TVM raises whatever its converters meet
        reason = str(error).strip().splitlines()
        raise ModelError(
            f"{name!r}: TVM cannot import {importer.where}: {reason[-1] if reason else type(error).__name__}"
        ) from error
    modules = names.of_modules(program, importer.tensors)
    return Imported(
        name=name,
        module=module,
        outputs=tuple(outputs),
        names=importer.names,
        operators=names.of_operators(modules),
        aliases={**modules, **importer.aliases},
    )
