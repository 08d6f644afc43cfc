"""Cards found where models have them, by origin, and mistakes in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pipeline
from pipeline.core.card_file import CARD_KEY
from pipeline.core.model_card import ModelCard, Preparation
from pipeline.errors import InputError, ModelError
from tests.support import cards

pytest.importorskip("onnx")

NAMES = str({0: "cat", 1: "dog's"})
YOLO = {"description": "Ultralytics YOLOv8n model", "task": "detect", "stride": "32", "imgsz": "[8, 8]", "names": NAMES}
LETTERBOX = Preparation(resize="letterbox", scale=1, sampling="opencv")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGENET = {"mean": MEAN, "std": STD}


def card_of(path: Path) -> ModelCard:
    graph = pipeline.read(path)
    assert graph.card is not None
    assert not [note for note in graph.notes if "ignored" in note]
    return graph.card


def note_of(path: Path) -> str:
    graph = pipeline.read(path)
    (note,) = [note for note in graph.notes if "ignored" in note]
    assert "\n" not in note
    return note


def test_a_model_that_says_nothing_has_an_empty_card(tmp_path: Path) -> None:
    assert card_of(cards.onnx_model(tmp_path / "m.onnx")) == ModelCard()


def test_ultralytics_properties(tmp_path: Path) -> None:
    card = card_of(cards.onnx_model(tmp_path / "m.onnx", YOLO))
    assert card == ModelCard.of("Ultralytics' metadata", task="detect", labels=("cat", "dog's"), preparation=LETTERBOX)


def test_older_exports_of_yolov5_name_no_task(tmp_path: Path) -> None:
    card = card_of(cards.onnx_model(tmp_path / "m.onnx", {"stride": "32", "names": "['cat', 'dog']"}))
    assert (card.task, card.labels, card.preparation) == ("", ("cat", "dog"), LETTERBOX)


def test_classifiers_of_ultralytics_are_cropped(tmp_path: Path) -> None:
    card = card_of(cards.onnx_model(tmp_path / "m.onnx", {**YOLO, "task": "classify"}))
    assert card.preparation == Preparation(resize="crop", scale=1, sampling="bilinear", rounding="down")


def test_key_points_of_ultralytics(tmp_path: Path) -> None:
    pose = {**YOLO, "task": "pose", "kpt_shape": "[18, 2]"}
    card = card_of(cards.onnx_model(tmp_path / "m.onnx", pose))
    assert (card.task, card.decoder, card.parameters) == ("pose", "yolov8-pose", {"points": [18, 2]})
    assert "not two whole numbers" in note_of(cards.onnx_model(tmp_path / "n.onnx", {**pose, "kpt_shape": "[18]"}))


def test_labels_can_be_written_to_a_manifest(tmp_path: Path) -> None:
    card = card_of(cards.onnx_model(tmp_path / "m.onnx", {**YOLO, "names": r"['\ud800', 'chat noir']"}))
    assert card.labels == (r"\ud800", "chat noir")


def test_an_open_size_becomes_that_of_the_export(tmp_path: Path) -> None:
    import onnx

    model = onnx.load(cards.onnx_model(tmp_path / "m.onnx", {**YOLO, "imgsz": "[16, 24]"}))
    for dimension, name in zip(
        model.graph.input[0].type.tensor_type.shape.dim, ("batch", "", "height", "width"), strict=True
    ):
        if name:
            dimension.dim_param = name
    graph = pipeline.read(model)
    assert graph.inputs[0].shape == (1, 3, 16, 24)
    assert "others are given by --shape height=16 --shape width=24" in graph.notes[0]
    assert pipeline.read(model, {"height": 8, "width": 8}).inputs[0].shape == (1, 3, 8, 8)
    for text in ("[0, 24]", "640", "[16", "[True, 1]"):
        onnx.helper.set_model_props(model, {**YOLO, "imgsz": text})
        with pytest.raises(ModelError, match="--shape height=224"):
            pipeline.read(model)


def test_a_model_in_memory_has_its_properties(tmp_path: Path) -> None:
    import onnx

    graph = pipeline.read(onnx.load(cards.onnx_model(tmp_path / "m.onnx", YOLO)))
    assert graph.card is not None
    assert graph.card.labels == ("cat", "dog's")


def test_the_card_is_no_part_of_the_graphs_digest(tmp_path: Path) -> None:
    plain = pipeline.read(cards.onnx_model(tmp_path / "m.onnx"))
    assert plain.digest == pipeline.read(cards.onnx_model(tmp_path / "n.onnx", YOLO)).digest


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"names": "__import__('os').getpid()"}, "neither JSON nor a literal"),
        ({"names": "{0: 'cat'"}, "neither JSON nor a literal"),
        ({"names": "[" * 100_000}, "neither JSON nor a literal"),
        ({"names": "-" * 100_000 + "1"}, "neither JSON nor a literal"),
        ({"names": "9" * 10_000}, "names"),
        ({"names": "'" + "x" * (1 << 20) + "'"}, "more than 1 MiB"),
        ({"names": "{0: 'cat', 7: 'dog'}"}, "not one name for each class from 0 to 1"),
        ({"names": "{'a': 'cat'}"}, "not one name for each class"),
        ({"names": "[1, 2]"}, "no list of names"),
        ({"names": "'cat'"}, "no list of names"),
        ({"task": "detection"}, "the task 'detection' is unknown"),
    ],
)
def test_malformed_metadata_is_noted_and_the_model_is_read(
    tmp_path: Path, metadata: dict[str, str], words: str
) -> None:
    note = note_of(cards.onnx_model(tmp_path / "m.onnx", {**YOLO, **metadata}))
    assert words in note
    assert "Ultralytics' metadata" in note
    assert len(note) < 300


def test_the_projects_own_key(tmp_path: Path) -> None:
    text = json.dumps({"labels": ["a", "b"], "decoder": "yolox", "preparation": {"channels": "bgr"}})
    card = card_of(cards.onnx_model(tmp_path / "m.onnx", {**YOLO, CARD_KEY: text}))
    assert (card.labels, card.decoder, card.task) == (("a", "b"), "yolox", "detect")
    assert card.preparation == Preparation(resize="letterbox", scale=1, sampling="opencv", channels="bgr")
    assert card.origins["labels"] == "the model's metadata"
    assert card.origins["task"] == "Ultralytics' metadata"
    assert "must be one of" in note_of(cards.onnx_model(tmp_path / "n.onnx", {CARD_KEY: '{"task": "see"}'}))


def test_a_card_of_toml_beside_the_model_wins(tmp_path: Path) -> None:
    path = cards.onnx_model(tmp_path / "m.onnx", YOLO)
    (tmp_path / "m.toml").write_text("labels = 'l.txt'\n[preparation]\nfill = 0", encoding="utf-8")
    (tmp_path / "l.txt").write_text("one\ntwo\n", encoding="utf-8")
    card = card_of(path)
    assert (card.labels, card.task) == (("one", "two"), "detect")
    assert card.preparation == Preparation(resize="letterbox", scale=1, sampling="opencv", fill=0)
    assert card.origins["preparation.fill"] == "m.toml"


def test_a_mistake_in_that_card_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path = cards.onnx_model(tmp_path / "m.onnx")
    (tmp_path / "m.toml").write_text("labelz = ['a']", encoding="utf-8")
    with pytest.raises(InputError, match=r"unknown key 'labelz'.*rename it if it is none for 'm.onnx'"):
        pipeline.read(path)


@pytest.mark.parametrize("together", [True, False])
def test_values_of_timm(tmp_path: Path, together: bool) -> None:
    fields = {**IMAGENET, "crop_pct": 0.875, "interpolation": "bicubic"}
    metadata = {"pretrained_cfg": json.dumps({**fields, "label_names": ["cat", "dog"], "num_classes": 2})}
    single = {name: str(value) for name, value in fields.items()}
    card = card_of(cards.onnx_model(tmp_path / "m.onnx", metadata if together else single))
    assert card.preparation == Preparation(
        mean=MEAN, std=STD, scale=1, resize="crop", fraction=0.875, sampling="bicubic", rounding="down"
    )
    assert card.labels == (("cat", "dog") if together else ())


def test_values_of_torchvision(tmp_path: Path) -> None:
    fields = {**IMAGENET, "crop_size": [224], "resize_size": [256], "interpolation": "InterpolationMode.BILINEAR"}
    card = card_of(cards.onnx_model(tmp_path / "m.onnx", {name: str(value) for name, value in fields.items()}))
    assert card.preparation is not None
    assert (card.preparation.fraction, card.preparation.sampling) == (0.875, "bilinear")


def test_characters_of_rapidocr(tmp_path: Path) -> None:
    card = card_of(cards.onnx_model(tmp_path / "m.onnx", {"character": "a\nb\n \n"}))
    assert (card.labels, card.task, card.origins["labels"]) == (("a", "b", " "), "text", "RapidOCR's character")


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"mean": "0.5", "std": "[1, 2]"}, "std is [1, 2], not one number or three"),
        ({"mean": "[True, 1, 1]", "std": "1"}, "not one number or three"),
        ({"mean": "0", "std": "0"}, "std is [0.0]; it must be above 0"),
        ({"mean": "0", "std": "1", "crop_pct": "2"}, "no share of a picture"),
    ],
)
def test_impossible_values(tmp_path: Path, metadata: dict[str, str], words: str) -> None:
    assert words in note_of(cards.onnx_model(tmp_path / "m.onnx", metadata))


@pytest.mark.parametrize("name", ["m.onnx.modelinfo", "m.modelinfo"])
@pytest.mark.parametrize(
    ("ranges", "preparation"),
    [
        ("-1.0,1.0", Preparation(scale=1, mean=(0.5,), std=(0.5,))),
        ("0.0,255.0;0.0,255.0;0.0,255.0", Preparation(scale=255, mean=(0, 0, 0), std=(1, 1, 1))),
        ("0,1;-1,1;-2,2", Preparation(scale=1, mean=(0, 0.5, 0.5), std=(1, 0.5, 0.25))),
    ],
)
def test_gstreamers_modelinfo(tmp_path: Path, name: str, ranges: str, preparation: Preparation) -> None:
    text = f"[modelinfo]\nversion=1.0\ngroup-id=some-out\n\n[image]\ntype=float32\ndims=-1,3,8,8\nranges={ranges}\n"
    (tmp_path / name).write_text(text, encoding="utf-8")
    card = card_of(cards.onnx_model(tmp_path / "m.onnx"))
    assert card.preparation == preparation
    assert card.origins["preparation.mean"] == name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ranges", "no file of sections"),
        ("[image]\nranges=0,1", "has version ''"),
        ("[modelinfo]\nversion=2.0\n[image]\nranges=0,1", "has version '2.0'"),
        ("[modelinfo]\nversion=1.0\n[image]\nranges=0,1;0,1", "has 2 ranges"),
        ("[modelinfo]\nversion=1.0\n[image]\nranges=0", "not two numbers"),
        ("[modelinfo]\nversion=1.0\n[image]\nranges=1,0", "the second number must be larger"),
        ("[modelinfo]\nversion=1.0\n[image]\nranges=0,nan", "the second number must be larger"),
    ],
)
def test_a_modelinfo_with_mistakes_is_noted(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "m.modelinfo").write_text(text, encoding="utf-8")
    assert words in note_of(cards.onnx_model(tmp_path / "m.onnx"))


def test_a_chain_has_the_first_models_preparation_and_the_last_ones_results(tmp_path: Path) -> None:
    first = cards.onnx_model(tmp_path / "first.onnx", YOLO)
    last = cards.onnx_model(tmp_path / "last.onnx", {CARD_KEY: '{"labels": ["a", "b"], "task": "classify"}'})
    graph = pipeline.chain([cards.same_size(first, tmp_path / "same.onnx"), last], {"last.image": "same.scores"})
    assert graph.card is not None
    assert (graph.card.labels, graph.card.task, graph.card.preparation) == (("a", "b"), "classify", LETTERBOX)
    assert graph.card.origins["preparation"] == "Ultralytics' metadata"


def test_extra_files_of_an_exported_program(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    program = torch.export.export(torch.nn.Conv2d(3, 2, 1).eval(), (torch.zeros(1, 3, 8, 8),))
    files = {"pretrained_cfg.json": json.dumps({**IMAGENET, "crop_pct": 1.0}), CARD_KEY: '{"task": "classify"}'}
    torch.export.save(program, tmp_path / "m.pt2", extra_files=files)
    card = card_of(tmp_path / "m.pt2")
    assert (card.task, card.preparation) == ("classify", Preparation(mean=MEAN, std=STD, scale=1, resize="crop"))


def test_a_relax_module_keeps_the_card(tmp_path: Path) -> None:
    from pipeline import frontends
    from pipeline.frontends import relax

    path = cards.onnx_model(tmp_path / "m.onnx", YOLO)
    (tmp_path / "m.toml").write_text("decoder = 'yolox'", encoding="utf-8")
    relax.save(frontends.load(path), tmp_path / "n.relax")
    card = card_of(tmp_path / "n.relax")
    assert (card.task, card.labels, card.decoder) == ("detect", ("cat", "dog's"), "yolox")
    assert card.preparation == LETTERBOX
