"""Cards in TFLite files: the table of metadata, and files in the appended archive."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pipeline
from pipeline.core.card_file import CARD_KEY
from pipeline.core.model_card import ModelCard, Preparation
from tests.support import cards

pytest.importorskip("tflite")

YOLO = {"task": "detect", "stride": 32, "names": {"0": "cat", "1": "dog"}}


def card_of(path: Path) -> ModelCard:
    graph = pipeline.read(path)
    assert graph.card is not None
    assert not [note for note in graph.notes if "ignored" in note]
    return graph.card


def test_normalisation_and_labels_of_the_table(tmp_path: Path) -> None:
    table = cards.tflite_metadata([127.5], [127.5], "labels.txt")
    path = cards.tflite_model(tmp_path / "m.tflite", table)
    card = card_of(cards.append(path, {"de.txt": "Katze\nHund\n", "labels.txt": "cat\ndog\n"}))
    assert card.labels == ("cat", "dog")
    assert card.preparation == Preparation(mean=(127.5,), std=(127.5,), scale=255)
    assert card.origins["preparation.channels"] == card.origins["labels"] == "TFLite's metadata"


def test_bytes_are_not_normalised(tmp_path: Path) -> None:
    path = cards.tflite_model(tmp_path / "m.tflite", cards.tflite_metadata([127.5], [127.5], ""), "UINT8")
    assert card_of(path).preparation == Preparation()


def test_labels_that_are_missing_are_noted(tmp_path: Path) -> None:
    path = cards.tflite_model(tmp_path / "m.tflite", cards.tflite_metadata([0], [255], "labels.txt"))
    assert any("'labels.txt' are not in the model's file; it is ignored" in note for note in pipeline.read(path).notes)


@pytest.mark.parametrize(
    "file", [("metadata.json", json.dumps(YOLO)), ("temp_meta.txt", str(YOLO)), ("meta.txt", str(YOLO))]
)
def test_ultralytics_file_in_the_archive(tmp_path: Path, file: tuple[str, str]) -> None:
    card = card_of(cards.append(cards.tflite_model(tmp_path / "m.tflite"), dict([file])))
    assert (card.task, card.labels) == ("detect", ("cat", "dog"))
    assert card.preparation == Preparation(resize="letterbox", scale=1, sampling="opencv")


def test_the_projects_own_file_in_the_archive(tmp_path: Path) -> None:
    path = cards.append(cards.tflite_model(tmp_path / "m.tflite"), {CARD_KEY: '{"labels": ["one"]}'})
    assert card_of(path).labels == ("one",)


@pytest.mark.parametrize("cut", [1, 5, 40, 90])
def test_a_damaged_table_is_noted_or_says_less(tmp_path: Path, cut: int) -> None:
    table = cards.tflite_metadata([127.5], [127.5], "")
    damaged_table = table[:cut] + b"\xff" * 8 + table[cut + 8 :]
    graph = pipeline.read(cards.tflite_model(tmp_path / "m.tflite", damaged_table))
    assert graph.card is not None
    assert all("\n" not in note for note in graph.notes)
