"""Pictures that FFmpeg marks as incomplete: told of, and never delivered."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("av", reason="the extra 'video' is not installed")

from pipeline.io.sources.decoding import PictureDecoder


class Packet:
    """A part of a stream, of a letter for each picture: small ones are incomplete, and ``!`` is no picture at all."""

    def __init__(self, letters: str) -> None:
        self._letters = letters

    def decode(self) -> list[Any]:
        if "!" in self._letters:
            raise ValueError("no picture")
        return [SimpleNamespace(name=letter, is_corrupt=letter.islower()) for letter in self._letters]


@pytest.mark.parametrize(
    ("packets", "delivered", "damages"),
    [
        (["A", "BC"], "ABC", []),
        (["A", "", "B"], "AB", []),
        (["A", "b", "C"], "AC", ["a picture is incomplete"]),
        (["aBc"], "B", ["a picture is incomplete"]),
        (["a", "b"], "", ["a picture is incomplete"] * 2),
        (["A", "!", "b", "C"], "AC", ["no picture", "a picture is incomplete"]),
    ],
)
def test_incomplete_pictures_are_told_of_and_left_out(packets: list[str], delivered: str, damages: list[str]) -> None:
    errors: list[str] = []
    container = SimpleNamespace(
        streams=SimpleNamespace(video=[SimpleNamespace()]), demux=lambda _: map(Packet, packets)
    )
    decoder = PictureDecoder(container, lambda error: errors.append(str(error)))
    assert "".join(picture.name for picture in decoder) == delivered
    assert errors == damages


@pytest.mark.parametrize(("live", "threads"), [(True, "SLICE"), (False, "AUTO")])
def test_a_live_picture_is_not_held_back_by_threads(live: bool, threads: str) -> None:
    container = SimpleNamespace(streams=SimpleNamespace(video=[SimpleNamespace()]))
    assert PictureDecoder(container, lambda _: None, live=live).stream.thread_type == threads


def test_a_caller_may_stop_at_the_first_damage() -> None:
    def stop(error: Exception) -> None:
        raise RuntimeError("damaged") from error

    container = SimpleNamespace(streams=SimpleNamespace(video=[SimpleNamespace()]), demux=lambda _: [Packet("Ab")])
    with pytest.raises(RuntimeError, match="damaged"):
        list(PictureDecoder(container, stop))
