from __future__ import annotations

import io
import sys
from typing import Any

import numpy as np
import pytest

from pipeline.core.board.board import Board, Device
from pipeline.core.model_card import ModelCard
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.io.frame_view import LARGEST, FrameView
from pipeline.io.result_reader import ResultReader
from pipeline.io.source_frame import SourceFrame
from pipeline.picture.geometry import fit
from pipeline.picture.pixels import Pixels

IMAGE, ROWS = TensorSpec("image", (1, 3, 32, 64)), TensorSpec("rows", (1, 1, 6))
BOX = {"rows": np.array([[[16, 8, 48, 24, 0.9, 0]]], np.float32)}
GREY = np.full((80, 160, 3), 90, np.uint8)


def reader(decoder: str = "rows") -> ResultReader:
    board = Board("test", (Device("nothing", "null"),))
    plan = Plan("m", "", board, (IMAGE,), (ROWS,), (StagePlan("all", "nothing", (IMAGE,), (ROWS,)),))
    return ResultReader(plan, ModelCard(decoder=decoder, labels=["dog"]))


def read(jpeg: bytes | None) -> np.ndarray:
    image = pytest.importorskip("PIL.Image")
    assert jpeg is not None
    return np.asarray(image.open(io.BytesIO(jpeg)).convert("RGB")).astype(int)


def draw(view: FrameView, metadata: Any, array: np.ndarray) -> tuple[np.ndarray, str]:
    drawn = view(metadata, [array], BOX)
    assert drawn is not None
    return read(drawn[0]), drawn[1]


def test_photos_and_videos_are_drawn_with_their_boxes() -> None:
    pytest.importorskip("PIL")
    geometry, pixels = fit("stretch", (160, 80), (64, 32)), Pixels("rgb24", 160, 80)
    photo = SourceFrame("a", {"image": np.zeros(1)}, 0, geometry=geometry, picture=GREY)
    # The source may have changed its memory; the copy counts.
    video = SourceFrame("b", np.zeros_like(GREY), 0, pixels=pixels)
    for view, frame in (
        (FrameView(reader(), None), photo),
        (FrameView(reader(), geometry), video),
        (FrameView(reader(), geometry, pixels), "header of a message"),
    ):
        picture, text = draw(view, frame, GREY)
        assert text == "dog 0.90 [40 20 120 60]"
        assert picture.shape == (80, 160, 3)
        assert np.abs(picture[40, 40] - 90).max() > 40
        assert np.abs(picture[40, 80] - 90).max() < 4


def test_large_pictures_are_reduced_and_those_without_a_decoder_stay() -> None:
    pytest.importorskip("PIL")
    large = np.full((1000, 2000, 3), 90, np.uint8)
    picture, text = draw(FrameView(None, None), SourceFrame("a", large, 0, pixels=Pixels("rgb24", 2000, 1000)), large)
    assert (picture.shape, text) == ((LARGEST // 2, LARGEST, 3), "")
    assert np.abs(picture - 90).max() < 4


def test_frames_without_a_picture_have_their_result_or_nothing() -> None:
    assert FrameView(reader(), None)(None, [np.zeros(1)], BOX) == (None, "dog 0.90 [16 8 48 24]")
    assert FrameView(None, None)(None, [np.zeros(1)], BOX) is None


def test_what_cannot_be_decoded_is_said() -> None:
    frame = SourceFrame("a", GREY, 0, pixels=Pixels("rgb24", 160, 80))
    drawn = FrameView(reader(), None)(frame, [GREY], {"rows": np.zeros((1, 3, 3, 7), np.float32)})
    assert drawn is not None
    assert (drawn[0], "rows of left" in drawn[1]) == (None, True)


def test_without_pillow_there_is_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    frame = SourceFrame("a", GREY, 0, geometry=fit("stretch", (160, 80), (64, 32)), picture=GREY)
    assert FrameView(reader(), None)(frame, [GREY], BOX) == (None, "dog 0.90 [40 20 120 60]")
