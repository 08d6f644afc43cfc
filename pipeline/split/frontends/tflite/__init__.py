"""TFLite files -> Relax, with the names of the model's tensors."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.core.native_output import quietly
from pipeline.core.tvm_access import compiler_lock
from pipeline.errors import MissingExtra, ModelError, near
from pipeline.split.model import ImportedModel

try:
    import tflite
except ImportError as error:
    message = "reading TFLite models needs the 'tflite' extra; run: pip install 'soc-pipeline[tflite]'"
    raise MissingExtra(message) from error

from tvm import relax
from tvm.relax.frontend.tflite.tflite_frontend import OperatorConverter, from_tflite

from pipeline.split.frontends.tflite.corrections import CORRECTIONS


class TfliteImporter(OperatorConverter):  # type: ignore[misc]
    """Imports a graph and remembers which variable holds which tensor.

    Attributes
    ----------
    names : dict
        As in `ImportedModel`.
    current_operator : str
        The operator being imported, for error messages.
    """

    def __init__(self, model: Any, subgraph: Any, *options: Any) -> None:
        super().__init__(model, subgraph, *options)
        self.names: dict[Any, str] = {}
        self.current_operator = "the graph"
        # Into TVM's table, not over its methods: it was filled with bound methods by the constructor.
        self.convert_map.update(
            {kind: functools.partial(_correct, self, correction) for kind, correction in CORRECTIONS.items()}
        )

    def check_unsupported_ops(self) -> None:
        """Name all kinds of operators that cannot be imported, each with a tensor that it makes."""
        complaints: dict[str, str] = {}
        for number in range(self.subgraph.OperatorsLength()):
            operator = self.subgraph.Operators(number)
            kind = self.get_op_code_str(operator)
            # TVM names the kinds only; a user looks for the tensor in a viewer of networks.
            if kind not in self.convert_map:
                complaints.setdefault(kind, f"{kind} (that makes {_name(self.subgraph, operator.Outputs(0))!r})")
        if complaints:
            raise ModelError(f"uses operators that are not supported: {'; '.join(complaints.values())}")
        super().check_unsupported_ops()

    def convert_op_to_relax(self) -> None:
        """Import all operators, each into a variable of its own."""
        for number in range(self.subgraph.OperatorsLength()):
            operator = self.subgraph.Operators(number)
            kind = self.get_op_code_str(operator)
            outputs = [_name(self.subgraph, tensor.tensor_idx) for tensor in self.get_output_tensors(operator)]
            self.current_operator = f"{kind} that makes {outputs[0]!r}"
            value = self.convert_map[kind](op=operator)
            if value is not None:
                self._keep(outputs, self.bb.emit(self.bb.normalize(value)))

    def _keep(self, outputs: Sequence[str], value: Any) -> None:
        parts = [value] if len(outputs) == 1 else [self.bb.emit(value[number]) for number in range(len(outputs))]
        for name, part in zip(outputs, parts, strict=True):
            self.names.setdefault(part, name)
            self.exp_tab.set_expr(name, part)


def _correct(importer: TfliteImporter, correction: Callable[[Any, Any], Any], op: Any) -> Any:
    return correction(importer, op)


def load(path: Path, shapes: Mapping[str, Sequence[int]]) -> ImportedModel:
    """Read a TFLite file; `shapes` may state the extents of inputs.

    Raises
    ------
    ModelError
        If the file is damaged, or uses what is not supported; all such operators are named.
    """
    with _reading(path):
        model = _parse(path)
        graph = model.Subgraphs(0)
        _check(path, graph, shapes)
        outputs = [_name(graph, int(number)) for number in graph.OutputsAsNumpy()]
    with compiler_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module, importer = quietly(lambda: _import(path, model))
    return ImportedModel(name=path.stem, module=module, outputs=tuple(outputs), names=importer.names)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what reading a damaged file raises into a `ModelError`: each field may point beside the buffer."""
    try:
        yield
    except ModelError:
        raise
    except OSError as error:
        raise ModelError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    except Exception as error:  # noqa: BLE001 - of struct, NumPy, flatbuffers, and whatever follows a wrong number
        raise ModelError(f"{str(path)!r} is not a valid TFLite model: {error}; convert it again") from None


def _parse(path: Path) -> Any:
    model = tflite.Model.GetRootAsModel(path.read_bytes(), 0)
    graph = model.Subgraphs(0)
    if not graph.OperatorsLength():
        raise ModelError(f"{str(path)!r} is not a valid TFLite model: it has no operators")
    # Each tensor's buffer is touched once: a wrong index raises here, not in the middle of an import.
    for number in range(graph.TensorsLength()):
        model.Buffers(graph.Tensors(number).Buffer()).DataAsNumpy()
    return model


def _check(path: Path, graph: Any, shapes: Mapping[str, Sequence[int]]) -> None:
    names = [_name(graph, number) for number in range(graph.TensorsLength())]
    # TVM keeps tensors by name, so that the second would silently take the place of the first.
    if double := next((name for name in names if names.count(name) > 1), None):
        raise ModelError(f"{str(path)!r} has two tensors with the name {double!r}, which is not supported")
    inputs = {names[int(number)]: graph.Tensors(int(number)) for number in graph.InputsAsNumpy()}
    for name, tensor in inputs.items():
        # The signature holds -1 where the converter left an extent open; the shape has 1 in that place.
        if tensor.ShapeSignatureLength() and min(tensor.ShapeSignatureAsNumpy()) < 0 and name in shapes:
            raise ModelError(f"input {name!r} has open extents; convert the model with fixed ones, which are checked")
    for name, shape in shapes.items():
        if name not in inputs:
            raise ModelError(f"{str(path)!r} has no input {name!r}; it has {', '.join(inputs)}{near(name, inputs)}")
        if list(shape) != inputs[name].ShapeAsNumpy().tolist():
            declared_shape = inputs[name].ShapeAsNumpy().tolist()
            raise ModelError(f"input {name!r} has the fixed shape {declared_shape}, not {list(shape)}")


def _name(graph: Any, number: int) -> str:
    name: bytes = graph.Tensors(number).Name() or b""
    return name.decode(errors="replace")


def _import(path: Path, model: Any) -> tuple[Any, TfliteImporter]:
    importers: list[TfliteImporter] = []

    # from_tflite makes the importer itself; this is the only way to get hold of it.
    def importer(*arguments: Any) -> TfliteImporter:
        importers.append(TfliteImporter(*arguments))
        return importers[0]

    try:
        module = from_tflite(model, op_converter=importer)
    except ModelError as error:
        raise ModelError(f"{str(path)!r} {error}") from None
    except Exception as error:  # TVM raises whatever its converters meet
        reason = re.sub(r"\s+", " ", str(error).strip()) or type(error).__name__
        current_operator = importers[0].current_operator if importers else "the inputs"
        raise ModelError(f"{str(path)!r}: TVM cannot import {current_operator}: {reason}") from error
    # Our converters nest calls, which passes cannot take apart.
    return relax.transform.Normalize()(module), importers[0]
