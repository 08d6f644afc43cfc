"""TFLite files -> Relax, with the names of the model's tensors."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.errors import MissingExtra, ModelError, near
from pipeline.split.frontends.imported import Imported
from pipeline.tvm_access import compiler_lock, quiet

try:
    import tflite
except ImportError as error:
    message = "reading TFLite models needs the 'tflite' extra; run: pip install 'soc-pipeline[tflite]'"
    raise MissingExtra(message) from error

from tvm import relax
from tvm.relax.frontend.tflite.tflite_frontend import OperatorConverter, from_tflite

from pipeline.split.frontends.tflite_mended import MENDED


class Importer(OperatorConverter):  # type: ignore[misc]
    """Imports a graph and remembers which variable holds which tensor.

    Attributes
    ----------
    names : dict
        As in `Imported`.
    where : str
        The operator being imported, for error messages.
    """

    def __init__(self, model: Any, subgraph: Any, *rest: Any) -> None:
        super().__init__(model, subgraph, *rest)
        self.names: dict[Any, str] = {}
        self.where = "the graph"
        self.convert_map.update({kind: functools.partial(_mend, self, made) for kind, made in MENDED.items()})

    def check_unsupported_ops(self) -> None:
        """Name all kinds of operators that cannot be imported, each with a tensor that it makes."""
        found: dict[str, str] = {}
        for number in range(self.subgraph.OperatorsLength()):
            operator = self.subgraph.Operators(number)
            kind = self.get_op_code_str(operator)
            if kind not in self.convert_map:
                found.setdefault(kind, f"{kind} (that makes {_name(self.subgraph, operator.Outputs(0))!r})")
        if found:
            raise ModelError(f"uses operators that are not supported: {'; '.join(found.values())}")
        super().check_unsupported_ops()

    def convert_op_to_relax(self) -> None:
        """Import all operators, each into a variable of its own."""
        for number in range(self.subgraph.OperatorsLength()):
            operator = self.subgraph.Operators(number)
            kind = self.get_op_code_str(operator)
            made = [_name(self.subgraph, tensor.tensor_idx) for tensor in self.get_output_tensors(operator)]
            self.where = f"{kind} that makes {made[0]!r}"
            value = self.convert_map[kind](op=operator)
            if value is not None:
                self._keep(made, self.bb.emit(self.bb.normalize(value)))

    def _keep(self, made: Sequence[str], value: Any) -> None:
        parts = [value] if len(made) == 1 else [self.bb.emit(value[number]) for number in range(len(made))]
        for name, part in zip(made, parts, strict=True):
            self.names.setdefault(part, name)
            self.exp_tab.set_expr(name, part)


def _mend(importer: Importer, made: Callable[[Any, Any], Any], op: Any) -> Any:
    return made(importer, op)


def load(path: Path, shapes: Mapping[str, Sequence[int]]) -> Imported:
    """Read a TFLite file; `shapes` may state the extents of inputs.

    Raises
    ------
    ModelError
        If the file is damaged, or uses what is not supported; all such operators are named.
    """
    model = _parse(path)
    graph = model.Subgraphs(0)
    _check(path, graph, shapes)
    with compiler_lock, quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module, importer = _import(path, model)
    outputs = [_name(graph, int(number)) for number in graph.OutputsAsNumpy()]
    return Imported(name=path.stem, module=module, outputs=tuple(outputs), names=importer.names)


def _parse(path: Path) -> Any:
    try:
        model = tflite.Model.GetRootAsModel(path.read_bytes(), 0)
        graph = model.Subgraphs(0)
        operators = graph.OperatorsLength()
        for number in range(graph.TensorsLength()):
            model.Buffers(graph.Tensors(number).Buffer()).DataAsNumpy()
    except OSError as error:
        raise ModelError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    except Exception as error:  # noqa: BLE001 - reading beside the buffer raises struct's and flatbuffers' errors
        raise ModelError(f"{str(path)!r} is not a valid TFLite model: {error}; convert it again") from None
    if not operators:
        raise ModelError(f"{str(path)!r} is not a valid TFLite model: it has no operators")
    return model


def _check(path: Path, graph: Any, shapes: Mapping[str, Sequence[int]]) -> None:
    names = [_name(graph, number) for number in range(graph.TensorsLength())]
    if double := next((name for name in names if names.count(name) > 1), None):
        raise ModelError(f"{str(path)!r} has two tensors with the name {double!r}, which is not supported")
    inputs = {names[int(number)]: graph.Tensors(int(number)) for number in graph.InputsAsNumpy()}
    for name, tensor in inputs.items():
        if tensor.ShapeSignatureLength() and min(tensor.ShapeSignatureAsNumpy()) < 0 and name in shapes:
            raise ModelError(f"input {name!r} has open extents; convert the model with fixed ones, which are checked")
    for name, shape in shapes.items():
        if name not in inputs:
            raise ModelError(f"{str(path)!r} has no input {name!r}; it has {', '.join(inputs)}{near(name, inputs)}")
        if list(shape) != inputs[name].ShapeAsNumpy().tolist():
            fixed = inputs[name].ShapeAsNumpy().tolist()
            raise ModelError(f"input {name!r} has the fixed shape {fixed}, not {list(shape)}")


def _name(graph: Any, number: int) -> str:
    name: bytes = graph.Tensors(number).Name() or b""
    return name.decode(errors="replace")


def _import(path: Path, model: Any) -> tuple[Any, Importer]:
    made: list[Importer] = []

    def importer(*given: Any) -> Importer:
        made.append(Importer(*given))
        return made[0]

    try:
        module = from_tflite(model, op_converter=importer)
    except ModelError as error:
        raise ModelError(f"{str(path)!r} {error}") from None
    except Exception as error:  # TVM raises whatever its converters meet
        reason = re.sub(r"\s+", " ", str(error).strip()) or type(error).__name__
        where = made[0].where if made else "the inputs"
        raise ModelError(f"{str(path)!r}: TVM cannot import {where}: {reason}") from error
    return relax.transform.Normalize()(module), made[0]
