"""Archives of exported programs run no code while they are read, whatever a stranger writes into one."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import pipeline  # noqa: E402
from pipeline.errors import ModelError  # noqa: E402

pytestmark = [
    # PyTorch's own, from its export.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

Members = dict[str, bytes]


class Hostile:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


@pytest.fixture(scope="module")
def members() -> Members:
    """A program of a convolution, a constant, and a batch that is left open."""

    class Network(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 4, 3)

        def forward(self, image: Any) -> Any:
            return (self.conv(image) + torch.tensor([0.5])).relu()

    buffer = io.BytesIO()
    batch = torch.export.Dim("batch", min=2, max=8)
    program = torch.export.export(Network(), (torch.zeros(2, 3, 8, 8),), dynamic_shapes=({0: batch},))
    torch.export.save(program, buffer)
    with zipfile.ZipFile(buffer) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "marker"


def read(path: Path, members: Mapping[str, bytes]) -> Any:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return pipeline.read(path, {"image": (2, 3, 8, 8)})


def refusal(path: Path, members: Mapping[str, bytes]) -> str:
    with pytest.raises(ModelError) as failure:
        read(path, members)
    return str(failure.value)


def change_member(members: Members, name: str, change: Callable[[Any], None]) -> Members:
    """The archive with one of its JSON members changed."""
    member = next(each for each in members if each.endswith(name))
    content = json.loads(members[member])
    change(content)
    return {**members, member: json.dumps(content).encode()}


def pickles(marker: Path) -> list[bytes]:
    """Return hostile content as a plain pickle, as an archive of torch.save, and as one of its older files."""
    archive_bytes = [io.BytesIO(), io.BytesIO()]
    for buffer, archive in zip(archive_bytes, (True, False), strict=True):
        torch.save({"weight": Hostile(marker)}, buffer, _use_new_zipfile_serialization=archive)
    return [pickle.dumps(Hostile(marker)), *(buffer.getvalue() for buffer in archive_bytes)]


def test_the_pickles_of_these_tests_are_hostile(marker: Path) -> None:
    for content in pickles(marker):
        marker.unlink(missing_ok=True)
        with contextlib.suppress(RuntimeError):
            torch.load(io.BytesIO(content), weights_only=False)
        assert marker.exists()


def test_a_program_is_read_without_its_examples(members: Members, tmp_path: Path) -> None:
    graph = read(tmp_path / "model.pt2", members)
    assert [(spec.name, spec.shape) for spec in graph.inputs] == [("image", (2, 3, 8, 8))]


def test_no_member_is_unpickled(members: Members, tmp_path: Path, marker: Path) -> None:
    refusals = set()
    for name in members:
        for content in pickles(marker) if "sample_inputs" in name else pickles(marker)[:1]:
            try:
                read(tmp_path / "model.pt2", {**members, name: content})
            except ModelError:
                refusals.add(name.partition("/")[2])
            assert not marker.exists(), name
    assert {"models/model.json", "data/weights/model_weights_config.json"} <= refusals
    assert "data/sample_inputs/model.pt" not in refusals, "examples are of no use to an import"


@pytest.mark.parametrize("name", ["data/weights/model.pt", "data/constants/model.pt"])
def test_parameters_of_older_programs_are_read_as_tensors_only(
    members: Members, tmp_path: Path, marker: Path, name: str
) -> None:
    root = next(iter(members)).partition("/")[0]
    for content in pickles(marker):
        reason = refusal(tmp_path / "model.pt2", {**members, f"{root}/{name}": content})
        assert "other things than tensors" in reason
        assert not marker.exists()


def test_pickled_parameters_are_refused(members: Members, tmp_path: Path, marker: Path) -> None:
    for name, folder in (("model_weights_config.json", "weights"), ("model_constants_config.json", "constants")):
        for kind in ("weight_0", "tensor_0", "custom_obj_0", "opaque_obj_0"):
            member = next(iter(members)).partition("/")[0] + f"/data/{folder}/{kind}"
            for content in pickles(marker):

                def point(description: Any, kind: str = kind) -> None:
                    entry = next(iter(description["config"].values()), {"is_param": False, "tensor_meta": None})
                    description["config"]["conv.weight"] = {**entry, "path_name": kind, "use_pickle": True}

                reason = refusal(tmp_path / "model.pt2", {**change_member(members, name, point), member: content})
                assert "holds 'conv.weight' as a pickled object, never loaded" in reason
                assert not marker.exists()


@pytest.mark.parametrize("name", ["state_dict", "constants", "example_inputs"])
def test_programs_of_the_first_format_are_read_as_tensors_only(
    members: Members, tmp_path: Path, marker: Path, name: str
) -> None:
    program = next(content for each, content in members.items() if each.endswith("models/model.json"))
    no_tensors = io.BytesIO()
    torch.save({}, no_tensors)
    first_format = {
        "version": b"8.1",
        "serialized_exported_program.json": program,
        "serialized_state_dict.pt": no_tensors.getvalue(),
        "serialized_constants.pt": no_tensors.getvalue(),
        "serialized_example_inputs.pt": no_tensors.getvalue(),
    }
    for content in pickles(marker):
        refusal(tmp_path / "model.pt2", {**first_format, f"serialized_{name}.pt": content})
        assert not marker.exists()


def hostile_descriptions(marker: Path) -> dict[str, Callable[[Any], None]]:
    call = f"__import__('pathlib').Path({str(marker)!r}).touch()"

    def extent(program: Any) -> None:
        program["graph_module"]["graph"]["tensor_values"]["image"]["sizes"][0]["as_expr"]["expr_str"] = call

    def constraint(program: Any) -> None:
        program["range_constraints"][call] = {"min_val": 2, "max_val": 8}

    def operator(program: Any) -> None:
        node = program["graph_module"]["graph"]["nodes"][0]
        node["target"] = "torch.os.system"
        node["inputs"] = [{"name": "command", "arg": {"as_string": f"touch {marker}"}, "kind": 1}]

    def library(program: Any) -> None:
        program["graph_module"]["graph"]["nodes"][0]["target"] = "torch.ops.load_library"

    def name(program: Any) -> None:
        text = json.dumps(program).replace('"name": "image"', json.dumps("image=" + call).join(('"name": ', "")))
        program.update(json.loads(text))

    def argument(program: Any) -> None:
        program["graph_module"]["module_call_graph"][0]["signature"]["forward_arg_names"] = ["image=" + call]

    def mapping(program: Any) -> None:
        signature = program["graph_module"]["module_call_graph"][0]["signature"]
        context = {"default_factory_module": "this", "default_factory_name": "s", "dict_context": []}
        leaf: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
        spec = {"type": "collections.defaultdict", "context": context, "children_spec": [leaf]}
        signature["out_spec"] = json.dumps([1, spec])

    def key(program: Any) -> None:
        signature = program["graph_module"]["module_call_graph"][0]["signature"]
        signature["in_spec"] = signature["in_spec"].replace('"[]"', json.dumps(json.dumps([f"':{call},'"])))

    def guard(program: Any) -> None:
        program["guards_code"] = [call]

    changes = (extent, constraint, operator, library, name, argument, mapping, key, guard)
    return {each.__name__: each for each in changes}


def test_no_part_of_a_description_is_run(members: Members, tmp_path: Path, marker: Path) -> None:
    reasons = {}
    for kind, change in hostile_descriptions(marker).items():
        path = tmp_path / "model.pt2"
        if kind == "guard":
            read(path, change_member(members, "model.json", change))
        else:
            reasons[kind] = refusal(path, change_member(members, "model.json", change))
        assert not marker.exists(), kind
    assert "no arithmetic expression" in reasons["extent"]
    assert "no arithmetic expression" in reasons["constraint"]
    assert "the operator 'torch.os.system', which is not supported" in reasons["operator"]
    assert "the operator 'torch.ops.load_library'" in reasons["library"]
    assert "which is no name" in reasons["name"]
    assert "which is no name" in reasons["argument"]
    assert "a mapping of a class of its own" in reasons["mapping"]
    assert "which is no name" in reasons["key"]


def test_a_compressed_archive_is_refused(members: Members, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.pt2", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(ModelError, match=r"is compressed, which torch\.export\.save never does"):
        pipeline.read(tmp_path / "model.pt2")


def shrink_bias(tensors: Any) -> None:
    tensors["config"]["conv.bias"]["tensor_meta"]["sizes"][0]["as_int"] = 0


def forget_ranges(program: Any) -> None:
    program["range_constraints"] = {}


def count_arguments(program: Any) -> None:
    program["graph_module"]["module_call_graph"][0]["signature"]["forward_arg_names"] = True


@pytest.mark.parametrize(
    ("member", "change"),
    [("model_weights_config.json", shrink_bias), ("model.json", forget_ranges), ("model.json", count_arguments)],
)
def test_a_description_whose_parts_do_not_fit_is_refused(
    members: Members, tmp_path: Path, member: str, change: Callable[[Any], None]
) -> None:
    """PyTorch reads such a program, and raises errors of its own only where it takes operators apart."""
    assert "is not consistent: " in refusal(tmp_path / "model.pt2", change_member(members, member, change))


@pytest.mark.parametrize(("context", "name"), [('["logits"]', "logits"), ("null", "relu")])
def test_structures_of_other_libraries_are_mappings_and_lists(
    members: Members, tmp_path: Path, context: str, name: str
) -> None:
    """Outputs of transformers, whose classes are there only with that library."""
    leaf: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
    spec = {"type": "transformers.modeling_outputs.Output", "context": context, "children_spec": [leaf]}

    def change(content: Any) -> None:
        for call in content["graph_module"]["module_call_graph"]:
            if call["signature"]:
                call["signature"]["out_spec"] = json.dumps([1, spec])

    graph = read(tmp_path / "model.pt2", change_member(members, "models/model.json", change))
    assert [spec.name for spec in graph.outputs] == [name]
