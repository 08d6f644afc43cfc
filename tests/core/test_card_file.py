"""Cards written by hand: TOML and labels, and their mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.core.card_file import decode_card, encode_card, read_card, read_labels
from pipeline.core.model_card import ModelCard, Preparation
from pipeline.errors import InputError

CARD = """
task = "detect"
labels = ["cat", "dog"]
decoder = "yolox"

[parameters]
strides = [8, 16, 32]

[preparation]
resize = "letterbox"
margin = "corner"
scale = 255
mean = 0
"""


def write(folder: Path, text: str, name: str = "model.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_card_has_what_its_file_says(tmp_path: Path) -> None:
    card = read_card(write(tmp_path, CARD))
    assert (card.task, card.labels, card.decoder) == ("detect", ("cat", "dog"), "yolox")
    assert card.parameters == {"strides": [8, 16, 32]}
    assert card.preparation == Preparation(resize="letterbox", margin="corner", scale=255)
    assert card.origins["labels"] == card.origins["preparation.margin"] == "model.toml"
    assert "preparation" not in card.origins


def test_labels_may_be_a_file_beside_it(tmp_path: Path) -> None:
    write(tmp_path, "cat\n dog \n\n", "names.txt")
    assert read_card(write(tmp_path, "labels = 'names.txt'")).labels == ("cat", "dog")


def test_an_empty_card_is_none_at_all(tmp_path: Path) -> None:
    assert read_card(write(tmp_path, "")) == ModelCard()


def test_a_card_goes_through_metadata_without_its_guesses(tmp_path: Path) -> None:
    guess = ModelCard.of("guess: by its outputs", task="pose", parameters={"classes": 2}, preparation={"fill": 0})
    card = read_card(write(tmp_path, "decoder = 'yolox'\n[preparation]\nchannels = 'bgr'\n[parameters]\nscore = 0.4"))
    again = decode_card(encode_card(card.merge(guess)), "the model")
    assert again == ModelCard.of(
        "the model", decoder="yolox", parameters={"score": 0.4}, preparation={"channels": "bgr"}
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("labels = [", "no TOML"),
        ("task = 1", "task: expected str, got int"),
        ("task = 'detection'", "must be one of detect, segment"),
        ("label = ['cat']", "'label'; there are task, labels, decoder, parameters, preparation, states, compiled;"),
        ("labels = ['cat', 1]", "labels[1]: expected str, got int"),
        ("labels = 'missing.txt'", "no labels in"),
        ("preparation = 'letterbox'", "preparation: expected object, got str"),
        ("[preparation]\nresise = 'crop'", "unknown key 'preparation.resise'"),
        ("[preparation]\nresize = 'letterbix'", "resize is 'letterbix'; it must be 'stretch', 'letterbox', 'crop'"),
        ("[preparation]\nmean = 'grey'", "preparation.mean: expected array, got str"),
        ("[preparation]\nmean = [123.0, 116.0, 103.0]", "give scale 255"),
        ("[preparation]\nstd = 0", "std is [0.0]; it must be above 0"),
        ("[preparation]\nstd = [1, 1]", "it must be one number, or three"),
        ("[preparation]\nfill = 300", "fill is 300"),
        ("[preparation]\nfill = 'black'", "preparation.fill: expected int, got str"),
        ("[preparation]\nscale = 128", "scale is 128; it must be 1 or 255"),
        ("[preparation]\nfraction = 0", "fraction is 0"),
        ("parameters = [8]", "parameters: expected object, got array"),
    ],
)
def test_a_mistake_is_one_line_with_the_file_and_the_key(tmp_path: Path, text: str, words: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_card(path)
    assert words in str(caught.value)
    assert "the card" in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no card in"):
        read_card(tmp_path / "missing.toml")
    with pytest.raises(InputError, match="empty; write one name per line"):
        read_labels(write(tmp_path, "\n\n"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\0")
    with pytest.raises(InputError, match="no text in UTF-8"):
        read_labels(tmp_path / "binary")
    (tmp_path / "large").write_bytes(b"a\n" * (1 << 20))
    with pytest.raises(InputError, match="1 MiB"):
        read_labels(tmp_path / "large")
    with pytest.raises(InputError, match="no JSON"):
        decode_card("{", "the model")
    with pytest.raises(InputError, match="must be a list here"):
        decode_card('{"labels": "names.txt"}', "the model")


def test_the_pages_card_has_every_key(root: Path, tmp_path: Path) -> None:
    page = (root / "docs" / "cards.md").read_text(encoding="utf-8")
    write(tmp_path, "person\n", "coco.txt")
    card = read_card(write(tmp_path, page.partition("```toml\n")[2].partition("```")[0]))
    assert card.labels == ("person",)
    rules = {name.partition(".")[2] for name in card.origins if name.startswith("preparation.")}
    assert rules == {*Preparation.__struct_fields__}
