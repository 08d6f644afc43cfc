"""Contracts of passes hold: what a pass requires and ensures is checked around each pass, on models of all formats."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.ir import Call

import pipeline
from pipeline.model.passes.bindings import Binding, calls, operands
from pipeline.model.passes.contract import CONTRACTS, Property
from tests.support import relay_programs
from tests.support.onnx_models import KERNEL, NORM, batch_norm, node, save, weights
from tests.support.relax_modules import network

Bindings = Sequence[Any]
Outputs = Mapping[Any, Any]


def variables(values: Any) -> Iterator[Any]:
    return (operand for value in values for operand in operands(value) if isinstance(operand, relax.Var))


def is_ordered(bindings: Bindings, _: Any) -> bool:
    pending = {binding.var for binding in bindings}
    for binding in bindings:
        if not pending.isdisjoint(variables([binding.value])):
            return False
        pending.discard(binding.var)
    return True


def is_plain(bindings: Bindings, _: Any) -> bool:
    return all(isinstance(binding.value, Call | relax.TupleGetItem) for binding in bindings)


def is_named(bindings: Bindings, _: Any) -> bool:
    names = [binding.name for binding in bindings]
    return len(set(names)) == len(names)


def is_live(bindings: Bindings, outputs: Outputs) -> bool:
    needed = set(variables(outputs.values()))
    for binding in reversed(bindings):
        if binding.var not in needed:
            return False
        needed.update(variables([binding.value]))
    return True


def is_computed(_: Any, outputs: Outputs) -> bool:
    return all(isinstance(output, relax.Var) for output in outputs.values())


def is_sunk(bindings: Bindings, outputs: Outputs) -> bool:
    readers = Counter(variables(binding.value for binding in bindings))
    real = [binding.var for binding in bindings if calls(binding.value, "dequantize")]
    return all(readers[variable] == 1 or variable in outputs.values() for variable in real)


def is_own(bindings: Bindings, outputs: Outputs) -> bool:
    names = {binding.var: binding.name for binding in bindings}
    return all(names.get(output, str(output.name)) == name for name, output in outputs.items())


CHECKS: dict[Property, Callable[[Bindings, Outputs], bool]] = {
    Property.ORDERED: is_ordered,
    Property.PLAIN: is_plain,
    Property.NAMED: is_named,
    Property.LIVE: is_live,
    Property.COMPUTED: is_computed,
    Property.SUNK: is_sunk,
    Property.OWN: is_own,
}


class Checker:
    """Profiler that checks each pass when it is called and when it returns, and remembers which those were."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.failures: list[str] = []
        self._arguments: dict[Any, tuple[Bindings, Any]] = {}

    def __call__(self, frame: Any, event: str, result: Any) -> None:
        if (contract := CONTRACTS.get(frame.f_code)) is None or event not in ("call", "return"):
            return
        name, arguments = frame.f_code.co_name, frame.f_locals
        if event == "call":
            # Before a pass names something else by its parameters.
            bindings: Bindings = list(arguments.get("bindings", arguments.get("relax_bindings", ())))
            outputs = arguments.get("outputs", {})
            outputs = outputs if isinstance(outputs, Mapping) else dict(enumerate(outputs))
            self._arguments[frame] = bindings, outputs
        elif result is None:
            return
        else:
            self.seen.add(name)
            bindings, outputs = self._arguments.pop(frame)
            parts = result if isinstance(result, tuple) else (result,)
            bindings = next((part for part in parts if isinstance(part, list)), bindings)
            if name == "with_inputs":
                outputs = parts[0]
            elif name == "with_copies":
                outputs = dict(zip(outputs, parts[1], strict=True))
        for each in contract.requires if event == "call" else contract.ensures:
            if not CHECKS[each](bindings, outputs):
                self.failures.append(f"{event} of {name}: not {each.name}: {each.value}")


def check_read(model: Any, **options: Any) -> None:
    checker = Checker()
    sys.setprofile(checker)
    try:
        pipeline.read(model, **options)
    finally:
        sys.setprofile(None)
    assert not checker.failures
    assert checker.seen == {code.co_name for code in CONTRACTS}


def float_onnx(folder: Path) -> Path:
    nodes = [
        node("Conv", "x w", "c", pads=[1, 1, 1, 1]),
        batch_norm(1, "c", "n"),
        node("Relu", "n", "y"),
        node("Identity", "y", "again"),
        node("Mul", "k k", "constant"),
        node("Exp", "n", "dead"),
    ]
    constants: dict[str, np.ndarray] = {**KERNEL, **NORM, "k": weights(3)}
    return save(folder / "m.onnx", nodes, {"x": (1, 4, 6, 6)}, ["y", "again", "constant"], constants)


def quantized_onnx(folder: Path) -> Path:
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("Reshape", "d shape", "r"),
        node("QuantizeLinear", "r s z", "rq"),
        node("DequantizeLinear", "rq s z", "rd"),
        node("DequantizeLinear", "wq s z", "w"),
        node("MatMul", "rd w", "m"),
        node("Exp", "rd", "e"),
        node("Add", "m e", "y"),
    ]
    constants: dict[str, np.ndarray] = {
        "s": np.array(0.1, np.float32), "z": np.array(3, np.int8), "wq": np.arange(16, dtype=np.int8).reshape(4, 4),
        "shape": np.array([3, 4]),
    }  # fmt: skip
    return save(folder / "q.onnx", nodes, {"x": (2, 6)}, ["y"], constants)


@pytest.mark.parametrize("make", [float_onnx, quantized_onnx])
def test_onnx(make: Callable[[Path], Path], tmp_path: Path) -> None:
    check_read(make(tmp_path))


def test_relay(tmp_path: Path) -> None:
    (tmp_path / "m.relay").write_text(relay_programs.NETWORK)
    check_read(tmp_path / "m.relay", params=relay_programs.network_parameters())


def test_relax() -> None:
    check_read(network(), params={"w": weights(6, 4, 3, 3)})


def test_tflite(tmp_path: Path) -> None:
    pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
    from tests.frontends.tflite.test_tflite import byte_convolutions, classifier

    check_read(classifier(tmp_path / "m.tflite"))
    check_read(byte_convolutions(tmp_path / "q.tflite"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_torch() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from tests.support.torch_models import ResNet, image, randomise

    program = torch.export.export(randomise(ResNet()), (image(1, 3, 32, 32),))
    check_read(program)


def test_each_requirement_is_ensured_before() -> None:
    contracts = {code.co_name: contract for code, contract in CONTRACTS.items()}
    ensured = set[Property]()
    for name in ("fold", "with_inputs", "live", "fold_affine", "live", "arrange", "name_bindings", "with_copies"):
        requires, ensures = contracts[name]
        assert ensured.issuperset(requires) or name == "fold", name
        ensured.update(ensures)
    assert ensured == set(Property)


def test_a_broken_promise_is_noticed() -> None:
    x, y = (relax.Var(name, relax.TensorType((2,), "float32")) for name in "xy")
    late = Binding(x, "x", relax.op.exp(y)), Binding(y, "y", relax.op.exp(y))
    assert not is_ordered(late, {})
    assert not is_live([Binding(x, "x", relax.op.exp(x))], {"y": y})
    assert not is_named([Binding(x, "x", relax.op.exp(x))] * 2, {})
