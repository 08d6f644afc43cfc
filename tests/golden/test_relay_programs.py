"""Programs printed by TVM 0.14 give the results that TVM computed for them, unsplit and in stages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.errors import ModelError
from pipeline.frontends.relay import json_form, parser, syntax
from pipeline.quantization.rounding import round_scales
from pipeline.split.cuts import legal_cuts
from tests.frontends.relay.test_fuzz import OWN, assert_survives, convert, parse_text, runs
from tests.support.onnx_models import frame, in_stages
from tests.support.onnx_stages import assert_same, run_exported
from tests.support.relay_programs import SMALL, STORED, WITH_JSON, stored_parameters

pytestmark = pytest.mark.thorough

FILES = [(name, f"{name}.relay") for name in STORED] + [(name, f"{name}.json") for name in WITH_JSON]


def mark_slow(name: str, file: str, stages: int) -> object:
    # A program in JSON is the text's, see below, and so are its stages.
    is_quick = name in SMALL and (stages == 1 or file.endswith(".relay"))
    return pytest.param(name, file, stages, id=f"{stages}-{file}", marks=() if is_quick else pytest.mark.slow)


@pytest.mark.parametrize(
    ("name", "file", "stages"), [mark_slow(name, file, stages) for stages in (1, 3) for name, file in FILES]
)
def test_results(relay_folder: Path, name: str, file: str, stages: int) -> None:
    params = relay_folder / "mlp.params" if name == "mlp" else stored_parameters(relay_folder, name)
    graph = pipeline.read(relay_folder / file, params=params)
    # One kernel cannot be cut: the whole quantized convolution is one.
    candidates = min(stages, len(legal_cuts(graph)) + 1)
    assert candidates == stages or name == "quantized_conv"
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=candidates))
    with np.load(relay_folder / f"{name}.npz") as stored_data, pipeline.load(bundle) as running:
        inputs = {key.removeprefix("in:"): stored_data[key] for key in stored_data.files if key.startswith("in:")}
        output = running.submit(inputs).result()
        for number, spec in enumerate(graph.outputs):
            assert_agree(output[spec.name] if isinstance(output, dict) else output, stored_data[f"out:{number}"])


def assert_agree(output: np.ndarray, reference: np.ndarray) -> None:
    """Check what the programs' README promises."""
    assert output.dtype == reference.dtype
    assert output.shape == reference.shape
    if reference.dtype.kind == "f":
        assert np.abs(output - reference).max() <= 1e-4 * np.abs(reference).max()
    else:
        np.testing.assert_array_equal(output, reference)


@pytest.mark.parametrize("name", WITH_JSON)
def test_text_and_json_are_the_same_program_with_the_same_names(relay_folder: Path, name: str) -> None:
    text = parser.parse((relay_folder / f"{name}.relay").read_text(), name)
    json = json_form.parse((relay_folder / f"{name}.json").read_text(), name)
    assert draw_inputs(text.functions["main"]) == draw_inputs(json.functions["main"])
    assert text.functions["main"].parameters[0].type == json.functions["main"].parameters[0].type


def draw_inputs(expression: syntax.Expression) -> object:
    """Return an expression without its places and attributes, which the JSON has all and the text few of."""
    if isinstance(expression, syntax.Reference | syntax.OperatorReference | syntax.GlobalReference):
        return expression.name
    if isinstance(expression, syntax.Literal):
        return expression.value.tolist()
    names = [binding.name for binding in expression.bindings] if isinstance(expression, syntax.LetBlock) else []
    return (type(expression).__name__, names, [draw_inputs(each) for each in syntax.children(expression)])


def test_attributes_of_the_text_are_those_of_the_json(relay_folder: Path) -> None:
    for name in WITH_JSON:
        text = parser.parse((relay_folder / f"{name}.relay").read_text(), name)
        json = json_form.parse((relay_folder / f"{name}.json").read_text(), name)
        pairs = list(zip(calls(text.functions["main"]), calls(json.functions["main"]), strict=True))
        assert pairs
        for short_list, long_list in pairs:
            assert short_list.attributes.items() <= long_list.attributes.items()


def calls(expression: syntax.Expression) -> list[syntax.Call]:
    own_result = [expression] if isinstance(expression, syntax.Call) else []
    return own_result + [call for each in syntax.children(expression) for call in calls(each)]


def test_cuts_are_named_as_the_text_shows_them(relay_folder: Path) -> None:
    graph = pipeline.read(relay_folder / "multi.relay")
    assert [spec.name for spec in graph.outputs] == ["%13", "%14", "%15"]
    plan = pipeline.plan(graph, cuts=["%1", "v"])
    assert len(plan.stages) == 3
    assert [spec.name for spec in plan.stages[1].inputs] == ["%1", "b"]


def test_parameters_of_the_wrong_kind_are_refused(relay_folder: Path) -> None:
    with pytest.raises(ModelError, match="none of the parameters given"):
        pipeline.read(relay_folder / "mlp.relay", params={"nothing": np.zeros(3)})
    with pytest.raises(ModelError, match=r"parameter 'fc1_bias' is float32\[3\], but .* has float32\[128\]"):
        pipeline.read(relay_folder / "mlp.relay", params={"fc1_bias": np.zeros(3, np.float32)})
    with pytest.raises(ModelError, match="holds no parameters"):
        pipeline.read(relay_folder / "mlp.relay", params=relay_folder / "mlp.json")


@pytest.mark.parametrize("name", [
    *SMALL,
    *(pytest.param(name, marks=pytest.mark.slow) for name in STORED if name not in SMALL),
])  # fmt: skip
def test_programs_are_written_as_onnx(relay_folder: Path, name: str) -> None:
    graph = pipeline.read(relay_folder / f"{name}.relay", params=stored_parameters(relay_folder, name))
    values = frame(graph)
    assert_same(run_exported(graph, values), in_stages(graph, [], values))


def test_programs_without_scales_have_nothing_to_round(relay_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no scales that could be rounded"):
        round_scales(relay_folder / "quantized_conv.relay", tmp_path / "made.relax")


def originals(folder: Path) -> dict[str, str]:
    """Return small real programs in both forms."""
    names = ("mlp", "multi", "quantized_conv", "dqn", "dcgan")
    texts = {f"{name}.relay": (folder / f"{name}.relay").read_text() for name in names}
    return texts | {f"{name}.json": (folder / f"{name}.json").read_text() for name in names if name in WITH_JSON}


def test_mutations_of_real_programs(relay_folder: Path) -> None:
    refusals = sum(assert_survives(parse_text, text) for text in runs(originals(relay_folder), 400))
    assert 100 < refusals < 400


@pytest.mark.slow
def test_many_mutations_of_real_programs(relay_folder: Path) -> None:
    refusals = sum(assert_survives(parse_text, text) for text in runs(originals(relay_folder), 6_000))
    assert 1_000 < refusals < 6_000


@pytest.mark.slow
def test_many_mutations_are_converted(relay_folder: Path) -> None:
    texts = originals(relay_folder)
    choice = {
        name: texts[name] for name in ("multi.relay", "quantized_conv.relay", "multi.json", "quantized_conv.json")
    }
    choice["own"] = OWN.replace("(?, 3)", "(2, 3)")
    refusals = sum(assert_survives(convert, text) for text in runs(choice, 3_000))
    assert 500 < refusals < 3_000
