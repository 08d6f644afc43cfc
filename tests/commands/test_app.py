"""Applications on the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pipeline
from pipeline.app.application import App
from pipeline.app.nodes import Model, Stream
from pipeline.errors import AppError
from tests.support import compiled_files

APP = """
[stream.a]
source = "pattern:32x32"

[model.digits]
file = "{bundle}"

[function.interval]
call = "tests.commands.test_app:note_interval"
reads = ["digits"]
"""

INTERVALS: list[float] = []


def note_interval(*_: object) -> None:
    """Note the process's switch interval."""
    INTERVALS.append(sys.getswitchinterval())


def test_python_takes_turns_as_often_as_the_shortest_stage_needs(
    command: Callable[..., Any], bundle: Path, tmp_path: Path
) -> None:
    pytest.importorskip("av")
    file, interval = tmp_path / "app.toml", sys.getswitchinterval()
    file.write_text(APP.format(bundle=bundle))
    result = command("app", "run", file, "--frames", 2, "--allow-commands")
    assert (result.status, result.out) == (0, "a: 2 frames\n"), result.err
    assert len(INTERVALS) == 2
    assert max(INTERVALS) < interval == sys.getswitchinterval()


PARTS = {
    "stream": '[stream.a]\nsource = "pattern:32x32"\n',
    "model": '[model.digits]\nfile = "{bundle}"\n',
    "sink": '[sink.lines]\nto = "-"\nreads = ["digits"]\n',
}

MISTAKES = {
    "source": ({"stream": '[stream.a]\nsource = "nothing.mp4"\n'}, "no source at 'nothing.mp4'"),
    "kind": ({"stream": '[stream.a]\nsource = "webcam:0"\n'}, "no source at 'webcam:0'"),
    "option": ({"stream": '[stream.a]\nsource = "camera:/dev/video0?sizes=1x1"\n'}, "has the option 'sizes'"),
    "command": ({"stream": '[stream.a]\nsource = "exec:cat a.mp4"\n'}, "would run a command"),
    "pace": ({"stream": '[stream.a]\nsource = "camera:/dev/video0"\nspeed = 2.0\n'}, "its pace is its own"),
    "reconnect": ({"stream": '[stream.a]\nsource = "pattern:32x32"\nreconnect = 3.0\n'}, "leave out reconnect"),
    "suffix": ({"sink": '[sink.lines]\nto = "out.xyz"\nreads = ["digits"]\n'}, "cannot write 'out.xyz'"),
    "folder": ({"sink": '[sink.lines]\nto = "no/where/out.jsonl"\nreads = ["digits"]\n'}, "there is no folder"),
    "sink option": ({"sink": '[sink.v]\nto = "out.mp4?shows=label"\nreads = ["digits"]\n'}, "has the option 'shows'"),
    "encoder": ({"sink": '[sink.v]\nto = "out.mp4?encoder=nonsense"\n'}, "FFmpeg has none of that name"),
    "bitrate": ({"sink": '[sink.v]\nto = "out.mp4?bitrate=fast"\n'}, "bitrate is 'fast'"),
    "labels": ({"sink": '[sink.v]\nto = "photo:.?labels=none.txt"\n'}, "none.txt"),
    "outputs": ({"sink": '[sink.v]\nto = "out.jsonl?outputs=some"\n'}, "outputs is 'some'"),
    "port": ({"sink": '[sink.v]\nto = "mjpeg:web"\n'}, "'web' is no port"),
    "clip": (
        {"sink": '[trigger.t]\nreads = ["digits"]\nwhen = "every(2)"\nclip = {{ to = "a.xyz" }}\n'},
        "cannot write",
    ),
    "events": ({"sink": '[trigger.t]\nreads = ["digits"]\nwhen = "every(2)"\nto = "smtp:me"\n'}, "events cannot go to"),
    "topic": ({"stream": '[stream.a]\nsource = "ros:"\n'}, "names nothing to read"),
    "network": ({"sink": '[trigger.t]\nreads = ["digits"]\nwhen = "every(2)"\nto = "http://a"\n'}, "--allow-network"),
    "function": ({"sink": '[function.f]\ncall = "os:getcwd"\nreads = ["digits"]\n'}, "--allow-commands"),
    "pattern": ({"stream": '[stream.a]\nsource = "pattern:axb"\n'}, "'axb' is not a size"),
    "sound": ({"stream": '[stream.a]\nsource = "audio:nothing.wav"\n'}, "no such file"),
    "damaged video": ({"stream": '[stream.a]\nsource = "{text}"\n'}, "invalid data"),
    "rate": ({"stream": '[stream.a]\nsource = "pattern:32x32"\nfps = 0\n'}, "fps is 0.0; it must be at least"),
    "frames": ({"stream": '[stream.a]\nsource = "pattern:32x32"\nin_flight = -1\n'}, "in_flight is -1"),
    "tile": ({"model": '[model.digits]\nfile = "{bundle}"\nfor_each = "tiles"\ntile = [0, 8]\n'}, "tile is (0, 8)"),
    "limit": ({"model": '[model.digits]\nfile = "{bundle}"\nstage_timeout = -1.0\n'}, "stage_timeout is -1.0"),
    "upright": ({"model": '[model.digits]\nfile = "{bundle}"\nupright = "up"\n'}, "two key points"),
    "zero": ({"model": '[model.digits]\nfile = "a\\u0000b.onnx"\n'}, "cannot read"),
    "event's command": (
        {"sink": '[trigger.t]\nreads = ["digits"]\nwhen = "every(2)"\nto = "exec:echo \'a"\n'},
        "--allow-commands",
    ),
    "boxes": ({"sink": '[track.t]\nreads = "digits"\n'}, "'t' reads boxes of 'digits', which gives none: its"),
    "crops": (
        {"sink": '[model.m]\nfile = "{bundle}"\nfor_each = "boxes"\nreads = "digits"\n'},
        "'m' reads boxes of 'digits'",
    ),
    "count": (
        {"sink": '[trigger.t]\nreads = ["digits"]\nwhen = "count(digits, score > 0.5) > 1"\n'},
        "'t' reads boxes of 'digits'",
    ),
    "boxes of a trigger": (
        {"sink": '[trigger.t]\nreads = "a"\nwhen = "every(2)"\n[track.u]\nreads = "t"\n'},
        "'u' reads boxes of 't', which is a trigger",
    ),
    "no model": ({"model": '[model.digits]\nfile = "digitz.onnx"\n'}, "no model at"),
    "board": ({"model": '[model.digits]\nfile = "{model}"\nboard = "rk3589"\n'}, "rk3589"),
    "stages": ({"model": '[model.digits]\nfile = "{model}"\nstages = "many"\n'}, "stages"),
    "text": ({"model": '[model.digits]\nfile = "text.onnx"\n'}, "text.onnx"),
    "decoder": ({"model": '[model.digits]\nfile = "{bundle}"\ncard = {{ decoder = "yolo" }}\n'}, "yolo"),
    "compiled file": ({"model": '[model.digits]\nfile = "m.hef"\nboard = "raspberry-pi-5-hailo8"\n'}, "m.toml"),
    "chip": ({"model": '[model.digits]\nfile = "m.rknn"\nboard = "rk3588"\n'}, "compiled for rk3566, and npu0"),
    "damage": ({"model": '[model.digits]\nfile = "cut.rknn"\nboard = "rk3588"\n'}, "is damaged"),
}  # fmt: skip


@pytest.fixture
def write_app(bundle: Path, digits_onnx: Path, tmp_path: Path) -> Callable[..., Path]:
    """Write an application of `PARTS`, some of them replaced, beside models of several kinds."""
    pytest.importorskip("av")
    compiled_files.hef(tmp_path / "m.hef", host_part=True)
    content = compiled_files.rknn(tmp_path / "m.rknn", "rk3566").read_bytes()
    (tmp_path / "cut.rknn").write_bytes(content[:60])
    (tmp_path / "text.onnx").write_text("not a model\n")
    text = tmp_path / "text.mp4"
    text.write_text("not a video\n")

    def write(**parts: str) -> Path:
        file = tmp_path / "app.toml"
        file.write_text("\n".join({**PARTS, **parts}.values()).format(bundle=bundle, model=digits_onnx, text=text))
        return file

    return write


@pytest.mark.parametrize(("parts", "message"), MISTAKES.values(), ids=MISTAKES)
def test_check_refuses_what_run_refuses_in_the_same_line(
    command: Callable[..., Any], write_app: Callable[..., Path], parts: dict[str, str], message: str
) -> None:
    file = write_app(**parts)
    checked, ran = command("app", "check", file), command("app", "run", file, "--frames", 1)
    assert (checked.status, checked.out, checked.err) == (ran.status, "", ran.err)
    assert ran.status in (1, 2)
    assert message in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("model", ["{bundle}", "{model}"])
def test_a_sound_application_passes(command: Callable[..., Any], write_app: Callable[..., Path], model: str) -> None:
    file = write_app(model=f'[model.digits]\nfile = "{model}"\n')
    assert "nothing is wrong" in command("app", "check", file).out


def test_a_camera_is_left_alone_where_a_model_is_wrong(tmp_path: Path) -> None:
    """A wrong model made it blink, and frames piled up while models were built."""
    (tmp_path / "m.onnx").write_text("not a model\n")
    started = tmp_path / "started"
    app = App({"a": Stream(source=f"exec:touch {started}?size=32x32")}, {"m": Model(file=str(tmp_path / "m.onnx"))})
    with pytest.raises(AppError, match=r"m\.onnx"):
        pipeline.load_app(app)
    assert not started.exists()
