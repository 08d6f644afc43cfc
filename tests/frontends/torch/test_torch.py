"""PyTorch programs: the usual networks compute the same in stages, names survive, and what is wrong is said at once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import pipeline  # noqa: E402
from pipeline.errors import ModelError, PlanError  # noqa: E402
from pipeline.split.symbolic_model import OpenModel  # noqa: E402
from tests.support import torch_models as models  # noqa: E402
from tests.support.onnx_models import in_stages, kinds  # noqa: E402
from tests.support.torch_models import check_outputs, export, image  # noqa: E402

pytestmark = [
    # PyTorch's own, from its export.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def network(name: str) -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(0)
    if name == "resnet":
        return models.randomise(models.ResNet()), (image(1, 3, 64, 64),)
    if name == "vision transformer":
        return models.randomise(models.VisionTransformer()), (image(1, 3, 32, 32),)
    words = torch.randint(0, 100, (2, 16), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(16) < torch.tensor([[16], [9]])).long()
    return models.randomise(models.Encoder()), (words, mask)


@pytest.mark.parametrize("name", ["resnet", "vision transformer", "encoder"])
def test_networks_in_three_stages(tmp_path: Path, name: str) -> None:
    module, inputs = network(name)
    torch.export.save(torch.export.export(module, inputs), tmp_path / "model.pt2")
    graph = pipeline.read(tmp_path / "model.pt2")
    assert graph.name == "model"
    plan = pipeline.plan(graph, stages=3)
    assert len(plan.stages) == 3
    frame = {spec.name: item.numpy() for spec, item in zip(graph.inputs, inputs, strict=True)}
    # Compared with PyTorch below.
    with pipeline.load(pipeline.build(graph, plan, check=False)) as running:
        output = running.submit(frame).result()
    with torch.no_grad():
        requirement = torch.utils._pytree.tree_leaves(module(*inputs))
    values = list(output.values()) if isinstance(output, dict) else [output]
    for value, item in zip(values, requirement, strict=True):
        np.testing.assert_allclose(value, item.numpy(), rtol=0, atol=1e-4 * float(item.abs().max()))


def test_outputs_have_the_names_of_a_mapping() -> None:
    module, inputs = network("encoder")
    graph = pipeline.read(torch.export.export(module, inputs))
    assert [(spec.name, spec.dtype) for spec in graph.inputs] == [("input_ids", "int64"), ("attention_mask", "int64")]
    assert [spec.name for spec in graph.outputs] == ["last_hidden_state", "pooler_output"]


def test_cuts_by_module_and_by_node() -> None:
    module, inputs = network("resnet")
    program = torch.export.export(module, inputs)
    graph = pipeline.read(program)
    assert graph.name == "ResNet"
    names = {each.name for each in graph.operators}
    assert {"layer1.0.bn1", "maxpool", "fc"} <= names, "the convolution in front of a norm took it in"
    by_module = pipeline.plan(graph, cuts=["layer1", "layer3.0.conv2"])
    assert len(by_module.stages) == 3
    node = next(each.name for each in program.graph.nodes if each.target == torch.ops.aten.max_pool2d.default)
    assert pipeline.plan(graph, cuts=[node]).stages[0].operators[1] == "maxpool"
    assert pipeline.plan(graph, cuts=["conv1"]).stages == pipeline.plan(graph, cuts=["bn1"]).stages
    with pytest.raises(PlanError, match="did you mean 'layer1"):
        pipeline.plan(graph, cuts=["layer1.0.conv9"])


def test_a_module_that_is_called_twice() -> None:
    pool = torch.nn.MaxPool2d(2)
    graph = check_outputs(export(lambda self, x: self.p(self.p(x).exp()), image(1, 2, 8, 8), p=pool), image(1, 2, 8, 8))
    assert kinds(graph) == ["max_pool2d", "exp", "max_pool2d"]
    assert len(pipeline.plan(graph, cuts=["p"]).stages) == 2


def test_attention_stays_one_operator_of_few_parts() -> None:
    module, inputs = network("vision transformer")
    graph = pipeline.read(torch.export.export(module, inputs))
    assert kinds(graph).count("softmax") == 3
    assert "any" not in kinds(graph)
    assert kinds(graph).count("layer_norm") == 7


def test_recurrent_layers() -> None:
    lstm = torch.nn.LSTM(8, 6, num_layers=2, bidirectional=True, batch_first=True)
    graph = check_outputs(export(lambda self, x: self.lstm(x), image(2, 5, 8), lstm=lstm), image(2, 5, 8))
    assert len(graph.outputs) == 3


def test_parameters_are_copied() -> None:
    linear = torch.nn.Linear(3, 2)
    program = torch.export.export(linear, (image(2, 3),))
    graph = pipeline.read(program)
    requirement = linear(image(2, 3)).detach().numpy()
    with torch.no_grad():
        linear.weight.zero_()
    output = in_stages(graph, [], {graph.inputs[0].name: image(2, 3).numpy()})
    np.testing.assert_allclose(output[graph.outputs[0].name], requirement, rtol=1e-5, atol=1e-6)


def flexible() -> Any:
    module = models.Plain(lambda self, x, y: self.linear(x).relu() + y, linear=torch.nn.Linear(4, 4))
    batch = torch.export.Dim("batch", min=2, max=8)
    return torch.export.export(module, (image(2, 4), image(2, 4)), dynamic_shapes={"inputs": ({0: batch}, {0: batch})})


def test_open_extents_are_given() -> None:
    graph = pipeline.read(flexible(), {"inputs_0": (5, 4)})
    assert [spec.shape for spec in (*graph.inputs, *graph.outputs)] == [(5, 4)] * 3


FLATTENED = {
    "flatten": lambda _, x: torch.flatten(x, 1),
    "view": lambda _, x: x.view(x.size(0), -1),
    "arithmetic": lambda _, x: x.reshape(x.shape[0] * 3, 4).reshape(x.shape[0], -1),
}


@pytest.mark.parametrize("extent", [1, 3, 8])
@pytest.mark.parametrize("kind", FLATTENED)
def test_an_open_batch_is_flattened(kind: str, extent: int) -> None:
    """TVM took the extent that the program computes for a tensor."""
    module = models.Plain(FLATTENED[kind]).eval()
    batch = torch.export.Dim("batch", min=1, max=8)
    program = torch.export.export(module, (image(2, 3, 4),), dynamic_shapes={"inputs": ({0: batch},)})
    (name,) = (spec.arg.name for spec in program.graph_signature.input_specs)
    values = np.random.default_rng(1).standard_normal((extent, 3, 4)).astype(np.float32)
    reference = module(torch.from_numpy(values)).numpy()
    fixed_graph = pipeline.read(program, {name: values.shape})
    open_model = pipeline.read(program, {name: ("n", 3, 4)})
    assert isinstance(open_model, OpenModel)
    for graph in (fixed_graph, open_model.at({"n": extent})):
        output = in_stages(graph, [], {name: values})
        np.testing.assert_array_equal(output[graph.outputs[0].name], reference)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({}, r"input 'inputs_0' has the shape \['s\d+', '4'\]; give it fixed extents, such as --shape inputs_0=1,4"),
        ({"inputs_9": (1, 4)}, "has no input 'inputs_9'; it has inputs_0, inputs_1; did you mean"),
        ({"inputs_0": (3, 4, 1)}, r"input 'inputs_0' has 2 dimensions, but the given shape \[3, 4, 1\] has 3"),
        ({"inputs_0": (3, 5)}, r"has a fixed extent 4 where the shape \[3, 5\] has 5"),
        ({"inputs_0": (3, 4), "inputs_1": (4, 4)}, "input 'inputs_1' has 4 where another input has 3"),
        ({"inputs_0": (99, 4)}, r"has the extent 99, but the program was exported for 2 to 8"),
    ],
    ids=str,
)
def test_wrong_extents(shapes: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        pipeline.read(flexible(), shapes)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda _, x: x[x > 0], "has a shape that depends on values, so that frames have no place for it"),
        (lambda _, x: x * torch.rand_like(x), "rand_like.default .*random numbers"),
        (lambda _, x: (x.exp(), 3), "returns 3, which is no tensor"),
        (lambda _, x: x.to(torch.bfloat16) + 1, "of dtype bfloat16, which is not supported"),
    ],
)
def test_what_cannot_be_read(function: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        pipeline.read(export(function, image(1, 2, 8, 8)))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda _, x: x[x > 0].sum(), "its type or shape is none of a fixed tensor's"),
        (lambda _, x: torch.nn.functional.max_pool2d(x, 2, return_indices=True), "places of the largest values"),
        (lambda _, x: torch.nn.functional.avg_pool2d(x, 2, divisor_override=3), "divides by a number of its own"),
    ],
)
def test_what_only_pytorch_computes(function: Any, message: str) -> None:
    program = export(function, image(1, 2, 8, 8))
    with pytest.raises(ModelError, match=message):
        pipeline.read(program, fallback=False)
    (island,) = check_outputs(program, image(1, 2, 8, 8)).islands
    assert re.search(message, island.reason)


def test_all_unsupported_operators_are_named_at_once() -> None:
    def function(self: Any, x: Any) -> Any:
        return self.inner(torch.linalg.inv(x)) + torch.signbit(x)

    submodule = models.Plain(lambda _, x: torch.special.i0(x))
    with pytest.raises(ModelError, match="uses operators that are not supported") as failure:
        pipeline.read(export(function, image(3, 3), inner=submodule), fallback=False)
    assert "i0.default (node 'special_i0' in module 'inner')" in str(failure.value)
    assert "signbit.default (node 'signbit')" in str(failure.value)
    assert len(str(failure.value).splitlines()) == 1


def test_training_mode_is_refused() -> None:
    program = torch.export.export(torch.nn.Sequential(torch.nn.BatchNorm2d(2)).train(), (image(2, 2, 4, 4),))
    with pytest.raises(ModelError, match=r"exported in training mode; call module.eval\(\)"):
        pipeline.read(program)
    program = torch.export.export(torch.nn.Sequential(torch.nn.Dropout()).train(), (image(2, 2),))
    with pytest.raises(ModelError, match="only in training"):
        pipeline.read(program)


def test_state_is_refused() -> None:
    with pytest.raises(ModelError, match="keeps state between calls in its buffer 'count'"):
        pipeline.read(torch.export.export(models.Counter(), (image(2),)))


def test_other_files_of_pytorch(tmp_path: Path) -> None:
    module = torch.nn.Linear(3, 2)
    torch.save(module.state_dict(), tmp_path / "checkpoint.pt")
    torch.save(module.state_dict(), tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    torch.jit.save(torch.jit.trace(module, image(1, 3)), tmp_path / "script.pt")
    for name, part in {"checkpoint.pt": "checkpoint", "old.pth": "old checkpoint", "script.pt": "TorchScript"}.items():
        with pytest.raises(ModelError, match=rf"{part}.*export it: torch.export.save"):
            pipeline.read(tmp_path / name)


def test_a_module_instead_of_a_program() -> None:
    with pytest.raises(ModelError, match=r"Linear is a PyTorch module; export it first: torch.export.export"):
        pipeline.read(torch.nn.Linear(3, 2))


def test_a_damaged_file(tmp_path: Path) -> None:
    torch.export.save(torch.export.export(torch.nn.Linear(3, 2), (image(1, 3),)), tmp_path / "m.pt2")
    data = (tmp_path / "m.pt2").read_bytes()
    (tmp_path / "m.pt2").write_bytes(data.replace(b'"graph_module"', b'"graph_modulX"'))
    with pytest.raises(ModelError, match=r"cannot read this exported program: .*; export it again"):
        pipeline.read(tmp_path / "m.pt2")
    (tmp_path / "m.pt2").write_bytes(data[:200])
    with pytest.raises(ModelError, match="is a damaged ZIP archive"):
        pipeline.read(tmp_path / "m.pt2")


def test_verification() -> None:
    program = export(lambda self, x: self.linear(x), image(2, 3), linear=torch.nn.Linear(3, 2))
    graph = pipeline.read(program, verify=True)
    output = pipeline.verify(graph, program)
    assert output.reference == "PyTorch"
    assert output.relative < 1e-5
