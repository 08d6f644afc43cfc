"""Sound as frames of samples."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest

from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError
from pipeline.io.sources.base import SourceOptions
from pipeline.io.sources.registry import open_source

pytest.importorskip("av", reason="the extra video is not installed")

RATE = 16_000


def save(path: Path, samples: np.ndarray, rate: int = RATE, channels: int = 1) -> Path:
    """Write a file of 16-bit samples."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.astype("<i2").tobytes())
    return path


@pytest.fixture
def ramp(tmp_path: Path) -> Path:
    """Return a file whose samples are their numbers."""
    return save(tmp_path / "ramp.wav", np.arange(10_000))


def test_windows_follow_one_another_and_the_last_one_ends_in_silence(ramp: Path) -> None:
    with open_source(f"audio:{ramp}?window=4096&dtype=int16", SourceOptions()) as source:
        frames = list(source)
    assert [frame.inputs.tolist() for frame in frames] == [  # type: ignore[union-attr]
        list(range(4096)),
        list(range(4096, 8192)),
        [*range(8192, 10_000), *[0] * (3 * 4096 - 10_000)],
    ]
    assert [frame.stamp for frame in frames] == [0, 256_000_000, 512_000_000]


def test_windows_overlap_by_the_hop(ramp: Path) -> None:
    with open_source(f"audio:{ramp}?window=1000&hop=250&dtype=int16", SourceOptions()) as source:
        frames = list(source)
    assert [int(frame.inputs[0]) for frame in frames] == list(range(0, 9001, 250))  # type: ignore[index]
    assert all(len(frame.inputs) == 1000 for frame in frames)


def test_the_model_says_how_many_samples_it_takes_and_in_which_shape(ramp: Path) -> None:
    options = SourceOptions([TensorSpec("samples", (1, 2000), "float32")])
    with open_source(f"audio:{ramp}", options) as source:
        frames = list(source)
    assert [frame.inputs.shape for frame in frames] == [(1, 2000)] * 5  # type: ignore[union-attr]
    assert np.allclose(frames[1].inputs, np.arange(2000, 4000) / 32768)  # type: ignore[arg-type]


def test_other_rates_and_channels_are_converted(tmp_path: Path) -> None:
    seconds = np.arange(44_100) / 44_100
    tone = np.sin(2 * np.pi * 440 * seconds) * 10_000
    file = save(tmp_path / "tone.wav", np.stack([tone, tone], 1), 44_100, 2)
    with open_source(f"audio:{file}?window=16000", SourceOptions()) as source:
        samples = np.concatenate([frame.inputs for frame in source])
    spectrum = np.abs(np.fft.rfft(samples[:RATE]))
    assert np.argmax(spectrum) == 440
    assert abs(np.abs(samples[1000:15000]).max() - 10_000 / 32768) < 0.01


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("window=0", "window is 0"),
        ("hop=x", "whole numbers"),
        ("dtype=int8", "dtype is 'int8'"),
        ("windw=3", "the options are rate, window, hop, dtype; did you mean 'window'"),
    ],
)
def test_impossible_options_are_named(ramp: Path, options: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        open_source(f"audio:{ramp}?{options}", SourceOptions())


def test_what_has_no_sound_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot open"):
        open_source(f"audio:{tmp_path / 'none.wav'}", SourceOptions())
    (tmp_path / "text.wav").write_text("no sound")
    with pytest.raises(InputError, match="cannot open"):
        open_source(f"audio:{tmp_path / 'text.wav'}", SourceOptions())
    with pytest.raises(InputError, match="cannot open 'alsa:no-such-device'"):
        open_source("audio:alsa:no-such-device", SourceOptions())
