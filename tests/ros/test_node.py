"""The plugin: configuration, bundle and transport together, within one process."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.model_card import ModelCard, Preparation
from pipeline.core.plan.plan import TensorSpec
from pipeline.core.tensor_quantization import Quantization
from pipeline.errors import InputError
from pipeline.executor.bundle import Bundle
from pipeline.ros.bridge import Header
from pipeline.ros.configuration import Configuration, Publication, Quality, Topic
from pipeline.ros.configuration_file import read_configuration
from pipeline.ros.messages import cdr
from pipeline.ros.messages.message_reader import message_header
from pipeline.ros.messages.types import create_message
from pipeline.ros.node import RosNode
from pipeline.ros.ros_arguments import RosArguments
from pipeline.ros.transports.base import MessageLine
from pipeline.scheduler import Trace
from tests.support.ros.functions import Local, bundle
from tests.support.ros.samples import picture

IMAGE, DETECTIONS, TENSOR = "sensor_msgs/msg/Image", "vision_msgs/msg/Detection2DArray", "soc_pipeline_msgs/msg/Tensor"
SPEC = TensorSpec("picture", (4, 6, 3), "uint8")
ROWS = TensorSpec("rows", (1, 2, 6), "float32")
FLOATS = "std_msgs/msg/Float32MultiArray"


def pictures(count: int, shape: tuple[int, ...] = (4, 6, 3)) -> list[np.ndarray]:
    seed = np.random.default_rng(0)
    return [seed.integers(0, 256, shape, np.uint8) for _ in range(count)]


def detect(array: np.ndarray) -> list[np.ndarray]:
    rows = [[1, 2, 4, 4, 0.75, 1], [0, 0, 1, 1, 0.25, 0]]
    return [255 - array, np.array([rows], np.float32)]


def configure(*publish: Publication, **options: Any) -> Configuration:
    return Configuration("", Topic("/camera", IMAGE), publish, **options)


def run_node(configuration: Configuration, arrays: list[np.ndarray], model: Any = None) -> tuple[Local, RosNode]:
    transport = Local()
    model = model or bundle(detect, [SPEC], [TensorSpec("image", SPEC.shape, "uint8"), ROWS])
    with RosNode(configuration, model, transport) as plugin:
        for number, array in enumerate(arrays):
            stamp = (1700000000 + number) * 10**9 + number
            transport.send("/camera", cdr.encode(picture(array, stamp, f"frame {number}"), IMAGE))
    return transport, plugin


def test_whoever_watches_is_told_of_the_pipeline_before_its_first_frame() -> None:
    model = bundle(detect, [SPEC], [TensorSpec("image", SPEC.shape, "uint8"), ROWS])
    calls: list[tuple[Any, ...]] = []

    def watch(running: Any, pixels: Any, geometry: Any) -> None:
        calls.append((running.statistics().submitted, pixels.format, (pixels.width, pixels.height), geometry))

    transport, trace = Local(), Trace(100)
    configuration = configure(Publication("/out", IMAGE, "image"), admission="block")
    with RosNode(configuration, model, transport, on_open=watch, trace=trace):
        for array in pictures(3):
            transport.send("/camera", cdr.encode(picture(array, 1, "frame"), IMAGE))
    assert calls == [(0, "rgb24", (6, 4), None)]
    assert {event.frame for event in trace.newest(100)} == {0, 1, 2}


def stamps(messages: list[Any]) -> list[tuple[int, int, str]]:
    return [(each.header.stamp.sec, each.header.stamp.nanosec, each.header.frame_id) for each in messages]


def test_pictures_and_detections_are_published_with_stamp_and_frame() -> None:
    arrays = pictures(20)
    to = (Publication("/out", IMAGE, "image"), Publication("/found", DETECTIONS, "rows", labels=["cat", "dog"]))
    transport, plugin = run_node(configure(*to, admission="block"), arrays)
    images = [cdr.decode(payload, IMAGE) for payload, _ in transport.published["/out"]]
    detections = [cdr.decode(payload, DETECTIONS) for payload, _ in transport.published["/found"]]
    headers = [(1700000000 + number, number, f"frame {number}") for number in range(20)]
    assert stamps(images) == stamps(detections) == headers
    assert all(np.array_equal(each.data, 255 - array.reshape(-1)) for each, array in zip(images, arrays, strict=True))
    assert {(each.encoding, each.width, each.height, each.step) for each in images} == {("rgb8", 6, 4, 18)}
    (detection,) = detections[0].detections
    assert (detection.results[0].hypothesis.class_id, detection.results[0].hypothesis.score) == ("dog", 0.75)
    assert (
        detection.bbox.center.position.x,
        detection.bbox.center.position.y,
        detection.bbox.size_x,
        detection.bbox.size_y,
    ) == (2.5, 3, 3, 2)
    assert [stamp for _, stamp in transport.published["/out"]][1] == 1700000001 * 10**9 + 1
    assert plugin.condition().counts.published == 20


def test_detections_of_integers_are_published_as_the_numbers_they_stand_for() -> None:
    rows = np.array([[[1, 2, 4, 4, 96, 1], [0, 0, 1, 1, 32, 0]]], np.int8)
    model = bundle(lambda _: rows, [SPEC], [TensorSpec("rows", (1, 2, 6), "int8")])
    scales = Quantization("rows", (1.0, 1.0, 1.0, 1.0, 1 / 128, 1.0), (0,) * 6, axis=2)
    model = Bundle(dataclasses.replace(model.plan, quantization=(scales,)), model.codes)
    to = (Publication("/found", DETECTIONS), Publication("/raw", TENSOR))
    transport, _ = run_node(configure(*to, admission="block"), pictures(1), model)
    (detections,) = (cdr.decode(payload, DETECTIONS) for payload, _ in transport.published["/found"])
    assert [each.results[0].hypothesis.score for each in detections.detections] == [0.75]
    (raw,) = (cdr.decode(payload, TENSOR) for payload, _ in transport.published["/raw"])
    assert (raw.dtype, raw.data.tobytes()) == ("int8", rows.tobytes())


def test_pictures_of_another_size_are_prepared_and_boxes_lie_in_them() -> None:
    pytest.importorskip("av")
    to = Publication("/found", DETECTIONS, "rows")
    options = configure(to, admission="block", prepare=Preparation(resize="letterbox"))
    transport, _ = run_node(options, pictures(2, (8, 24, 3)))
    (detection,) = cdr.decode(transport.published["/found"][0][0], DETECTIONS).detections
    # 24x8 in 6x4: a quarter, with a margin of one row above and below.
    assert (detection.bbox.center.position.x, detection.bbox.center.position.y) == (10, 8)
    assert (detection.bbox.size_x, detection.bbox.size_y) == (12, 8)


def test_pictures_are_prepared_by_the_models_card_where_the_configuration_is_silent() -> None:
    to = Publication("/raw", TENSOR, "raw")
    model = bundle(lambda x: x, [SPEC], [TensorSpec("raw", SPEC.shape, SPEC.dtype)])
    model.card = ModelCard(preparation=Preparation(resize="letterbox", sampling="opencv", fill=9))
    results = []
    for rules in (Preparation(), Preparation(fill=7, channels="bgr")):
        transport, _ = run_node(configure(to, admission="block", prepare=rules), pictures(1, (8, 24, 3)), model)
        message = cdr.decode(transport.published["/raw"][0][0], TENSOR)
        results.append(message.data.reshape(SPEC.shape))
    by_card, by_both = results
    assert (by_card[[0, 3]] == 9).all()
    assert (by_both[[0, 3]] == 7).all()
    np.testing.assert_array_equal(by_card[1:3], by_both[1:3, :, ::-1])


def test_tensors_are_published_with_a_header_and_without() -> None:
    to = (Publication("/t", TENSOR, "rows"), Publication("/f", FLOATS, "rows"))
    transport, _ = run_node(configure(*to), pictures(1))
    tensor = cdr.decode(transport.published["/t"][0][0], TENSOR)
    floats = cdr.decode(transport.published["/f"][0][0], FLOATS)
    assert (tensor.name, tensor.dtype, tensor.shape.tolist()) == ("rows", "float32", [1, 2, 6])
    assert tensor.data.view(np.float32).tolist() == floats.data.tolist() == [1, 2, 4, 4, 0.75, 1, 0, 0, 1, 1, 0.25, 0]
    assert [each.size for each in floats.layout.dim] == [1, 2, 6]
    assert stamps([tensor]) == [(1700000000, 0, "frame 0")]


def test_tensors_are_read_as_they_are_written() -> None:
    spec = TensorSpec("x", (2, 3), "float32")
    model = bundle(lambda x: x * 2, [spec], [TensorSpec("y", (2, 3), "float32")])
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    for kind in (TENSOR, FLOATS):
        transport = Local()
        configuration = Configuration("", Topic("/x", kind), [Publication("/y", kind)])
        with RosNode(configuration, model, transport):
            transport.send("/x", message_of(array, kind))
        result = cdr.decode(transport.published["/y"][0][0], kind)
        assert result.data.view(np.float32).tolist() == (array * 2).reshape(-1).tolist()


def message_of(array: np.ndarray, kind: str) -> bytearray:
    from pipeline.ros.messages import tensors
    from pipeline.ros.messages.message_reader import message_header
    from pipeline.ros.messages.message_writer import tensor

    message = tensor(array, message_header(Header()), "x") if kind == TENSOR else tensors.message(array)
    return cdr.encode(message, kind)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_messages_that_are_damaged_or_change_are_refused_and_diagnosed() -> None:
    errors: list[Exception] = []
    transport = Local()
    model = bundle(detect, [SPEC], [TensorSpec("image", SPEC.shape, "uint8"), ROWS])
    intact = cdr.encode(picture(pictures(1)[0], 5), IMAGE)
    smaller = cdr.encode(picture(np.zeros((2, 2, 3), np.uint8), 5), IMAGE)
    with RosNode(configure(Publication("/out", IMAGE, "image")), model, transport, errors.append) as plugin:
        plugin.watch()
        for payload in (intact[:50], intact, smaller, b"", intact):
            transport.send("/camera", payload)
        wait_for(lambda: plugin.condition().counts.published == 2)
        plugin.watch()
        counts = plugin.condition().counts
    assert (counts.received, counts.refused, len(errors)) == (5, 3, 3)
    assert "images change from" in str(errors[1])
    payloads = [payload for payload, _ in transport.published["/diagnostics"]]
    statuses = [cdr.decode(each, "diagnostic_msgs/msg/DiagnosticArray").status for each in payloads]
    assert [(each[0].level, each[0].message.partition(":")[0]) for each in statuses] == [
        (1, "waiting for the first message"), (2, "3 messages without an answer"), (1, "no new message"),
    ]  # fmt: skip
    values = {each.key: each.value for each in statuses[1][0].values}
    assert (values["received"], values["refused"], values["delivered"]) == ("5", "3", "2")
    assert [each.name for each in statuses[1]] == [
        "soc_pipeline: pipeline",
        "soc_pipeline: function",
        "soc_pipeline: pass",
    ]


def test_a_model_that_does_not_take_what_comes_ends_the_node_with_an_error() -> None:
    transport = Local()
    model = bundle(lambda x: x, [TensorSpec("x", (2, 7), "float64")], [TensorSpec("y", (2, 7), "float64")])
    with RosNode(configure(Publication("/out", TENSOR)), model, transport) as plugin:
        transport.send("/camera", cdr.encode(picture(pictures(1)[0], 5), IMAGE))
        assert plugin.error is not None
        with pytest.raises(InputError, match="images do not fit the model's input"):
            raise plugin.error


@pytest.mark.parametrize(
    ("publication", "words"),
    [
        (Publication("/o", IMAGE, "imag"), "no output 'imag'; did you mean 'image'?"),
        (Publication("/o", IMAGE), "has several outputs; name one"),
        (Publication("/o", "sensor_msgs/msg/CompressedImage", "image"), "cannot be published as sensor_msgs/msg/Comp"),
        (Publication("/o", FLOATS, "image"), "is a std_msgs/msg/UInt8MultiArray, not a std_msgs/msg/Float32MultiArray"),
        (Publication("/o", IMAGE, "line"), "is no picture"),
        (Publication("/o", DETECTIONS, "image"), "rows of left, top, right, bottom, score, class"),
    ],
)
def test_what_does_not_fit_the_model_is_refused_at_the_start(publication: Publication, words: str) -> None:
    line = TensorSpec("line", (5,), "float32")
    model = bundle(detect, [SPEC], [TensorSpec("image", SPEC.shape, "uint8"), ROWS, line])
    with pytest.raises(InputError) as refusal:
        RosNode(configure(publication), model, Local())
    assert words in str(refusal.value)


def test_quality_chooses_the_admission() -> None:
    sensor, reliable = (Configuration("", Topic("/c", qos=qos), []) for qos in ("sensor_data", "reliable"))
    explicit = Configuration("", Topic("/c", qos=Quality(reliable=True, depth=3)), [], admission="drop-oldest")
    assert (sensor.policy, reliable.policy, explicit.policy) == ("latest", "block", "drop-oldest")


TEXT = """
bundle: some.bundle
subscribe: {topic: /camera, qos: {reliable: false, depth: 2}}
publish: [{topic: /out, type: soc_pipeline_msgs/msg/Tensor}]
"""


def write_file(folder: Path, text: str) -> Path:
    path = folder / "node.yaml"
    path.write_text(text)
    return path


def test_a_file_is_read_with_changes_and_its_bundle_lies_beside_it(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    configuration = read_configuration(
        write_file(tmp_path, TEXT), ["subscribe.topic=/other", "publish.0.score=0.25", "prepare.mean=[0.5]"]
    )
    assert (configuration.bundle, configuration.subscribe.topic) == (str(tmp_path / "some.bundle"), "/other")
    assert (configuration.publish[0].score, [*configuration.prepare.mean], configuration.subscribe.qos) == (
        0.25,
        [0.5],
        Quality(False, 2),
    )


def test_a_file_of_parameters_of_ros_is_read(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    indented_text = "\n".join(f"    {line}" for line in TEXT.strip().splitlines())
    configuration = read_configuration(write_file(tmp_path, f"/detector:\n  ros__parameters:\n{indented_text}\n"))
    assert (configuration.name, configuration.subscribe.topic) == ("detector", "/camera")


@pytest.mark.parametrize(
    ("text", "changes", "words"),
    [
        (TEXT + "typo: 1", [], "unknown field `typo`"),
        (TEXT.replace("/out", "3"), [], None),
        (TEXT, ["subscribe.qos=best"], "Invalid enum value 'best' - at `$.subscribe.qos`"),
        (TEXT, ["subscribe.qos.depth=0"], "must be at least 1"),
        (TEXT, ["subscribe.type=sensor_msgs/msg/Imag"], "did you mean 'sensor_msgs/msg/Image'"),
        (TEXT, ["publish=[]"], "publish is empty"),
        (TEXT, ["publish.7.topic=/x"], "nothing called '7'"),
        (TEXT, ["topic"], "write it like"),
        ("a: [", [], "is not valid YAML"),
        ("", [], "Expected `object`, got `null`"),
    ],
)
def test_mistakes_in_a_file_are_named(tmp_path: Path, text: str, changes: list[str], words: str | None) -> None:
    pytest.importorskip("yaml")
    if words is None:
        text, words = text.replace("topic: 3", "topic: [3]"), "Expected `str`, got `array` - at `$.publish[0].topic`"
    with pytest.raises(InputError) as refusal:
        read_configuration(write_file(tmp_path, text), changes)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the configuration"):
        read_configuration(tmp_path / "none.yaml")


def test_the_sample_is_a_configuration(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    from pipeline.commands.node import SAMPLE

    configuration = read_configuration(write_file(tmp_path, SAMPLE))
    assert (configuration.policy, configuration.publish[0].type) == ("latest", DETECTIONS)


def test_boxes_of_the_models_decoder_lie_in_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("av")
    (tmp_path / "names.txt").write_text("square\n")
    # Of 21 cells of strides 8, 16 and 32, number 6 is in column 2 of row 1: 4 pixels right and below of its corner.
    rows = np.zeros((1, 21, 6), np.float32)
    rows[0, 6] = [0.5, 0.5, 0, 0, 0.75, 1]
    model = bundle(
        lambda _: rows, [TensorSpec("x", (1, 3, 32, 32), "float32")], [TensorSpec("y", (1, 21, 6), "float32")]
    )
    options = {"decode": "yolox", "labels": str(tmp_path / "names.txt"), "prepare": Preparation(resize="stretch")}
    transport, _ = run_node(
        configure(Publication("/found", DETECTIONS), admission="block", **options), pictures(1, (64, 64, 3)), model
    )
    (detection,) = cdr.decode(transport.published["/found"][0][0], DETECTIONS).detections
    assert (detection.results[0].hypothesis.class_id, detection.results[0].hypothesis.score) == ("square", 0.75)
    assert (detection.bbox.center.position.x, detection.bbox.center.position.y) == (40, 24)
    assert (detection.bbox.size_x, detection.bbox.size_y, detection.bbox.center.theta) == (16, 16, 0)
    options["decode"] = "yolox:score=0.8"
    transport, _ = run_node(
        configure(Publication("/found", DETECTIONS), admission="block", **options), pictures(1, (64, 64, 3)), model
    )
    assert cdr.decode(transport.published["/found"][0][0], DETECTIONS).detections == []


def test_classes_are_published() -> None:
    kind = "vision_msgs/msg/Classification"
    scores = np.array([[0.25, 0.75, 0]], np.float32)
    model = bundle(lambda _: scores, [SPEC], [TensorSpec("scores", (1, 3), "float32")])
    model.card = ModelCard(labels=["cat", "dog", "cow"], decoder="classes", parameters={"activation": "none"})
    transport, _ = run_node(configure(Publication("/class", kind, score=0.1), admission="block"), pictures(1), model)
    message = cdr.decode(transport.published["/class"][0][0], kind)
    assert [(each.class_id, each.score) for each in message.results] == [("dog", 0.75), ("cat", 0.25)]
    with pytest.raises(InputError, match="decode: classes makes it one"):
        run_node(configure(Publication("/class", kind)), [], bundle(lambda x: x, [SPEC], [ROWS]))


def test_masks_are_published_as_images() -> None:
    scores = np.zeros((1, 12, 16, 1), np.float32)
    scores[:, 3:5, 2:7] = 1
    spec = TensorSpec("picture", (12, 16, 3), "uint8")
    model = bundle(lambda _: scores, [spec], [TensorSpec("scores", (1, 12, 16, 1), "float32")])
    for decoder, kind in (("mask", "mono8"), ("none", "32FC1")):
        model.card = ModelCard(task="mask", decoder=decoder)
        to = configure(Publication("/mask", IMAGE), admission="block")
        transport, _ = run_node(to, pictures(1, (12, 16, 3)), model)
        message = cdr.decode(transport.published["/mask"][0][0], IMAGE)
        assert (message.encoding, message.height, message.width) == (kind, 12, 16)
        if kind == "mono8":
            np.testing.assert_array_equal(message.data.reshape(12, 16), scores[0, ..., 0].astype(np.uint8))


def test_parts_of_a_result_are_published_and_pictures_drawn_for_subscribers_alone() -> None:
    pytest.importorskip("PIL")
    spec = TensorSpec("picture", (12, 16, 3), "uint8")
    rows = np.array([[[2, 3, 9, 10, 0.75, 0]]], np.float32)
    model = bundle(lambda _: rows, [spec], [TensorSpec("rows", (1, 1, 6), "float32")])
    model.card = ModelCard(labels=["cat"], decoder="rows")
    to = configure(Publication("/drawn", IMAGE, part="annotated"), Publication("/boxes", DETECTIONS), admission="block")
    for subscribers, count in ((1, 2), (0, 0)):
        transport = Local()
        transport.subscribers = subscribers
        with RosNode(to, model, transport):
            for array in pictures(2, (12, 16, 3)):
                transport.send("/camera", cdr.encode(picture(array, 5), IMAGE))
        assert len(transport.published["/boxes"]) == 2
        drawn = [cdr.decode(payload, IMAGE) for payload, _ in transport.published["/drawn"]]
        assert [each.encoding for each in drawn] == ["rgb8"] * count
    with pytest.raises(InputError, match="there are no points in a sensor_msgs/msg/Image; publish it as soc_pipeline"):
        run_node(configure(Publication("/p", IMAGE, part="points")), [], model)


def test_key_points_are_a_tensor_of_boxes_and_points() -> None:
    spec, pose = TensorSpec("picture", (32, 32, 3), "uint8"), TensorSpec("out", (1, 8, 21), "float32")
    # One of the 21 cells has a box with its only point.
    out = np.zeros((1, 8, 21), np.float32)
    out[0, :, 3] = [16, 16, 8, 8, 0.75, 10, 12, 0.5]
    model = bundle(lambda _: out, [spec], [pose])
    model.card = ModelCard(labels=["person"], decoder="yolov8-pose", parameters={"points": [1, 3]})
    to = configure(Publication("/points", FLOATS, part="points"), admission="block")
    transport, _ = run_node(to, pictures(1, (32, 32, 3)), model)
    message = cdr.decode(transport.published["/points"][0][0], FLOATS)
    assert ([each.size for each in message.layout.dim], message.data.tolist()) == ([1, 1, 3], [10, 12, 0.5])


def test_headers_of_dropped_messages_are_told_on_request() -> None:
    gate, header = threading.Event(), "std_msgs/msg/Header"

    def slow(array: np.ndarray) -> list[np.ndarray]:
        assert gate.wait(60)
        return detect(array)

    transport = Local()
    model = bundle(slow, [SPEC], [TensorSpec("image", SPEC.shape, "uint8"), ROWS])
    to = configure(Publication("/out", IMAGE, "image"), admission="latest", dropped="/dropped")
    with RosNode(to, model, transport):
        for number, array in enumerate(pictures(12)):
            transport.send("/camera", cdr.encode(picture(array, number + 1, f"frame {number}"), IMAGE))
        gate.set()
    answers = [cdr.decode(payload, IMAGE).header.frame_id for payload, _ in transport.published["/out"]]
    dropped = [cdr.decode(payload, header).frame_id for payload, _ in transport.published["/dropped"]]
    assert dropped
    assert sorted(answers + dropped) == sorted(f"frame {number}" for number in range(12))


def test_messages_that_find_no_place_are_told_and_counted() -> None:
    transport, header, errors = Local(), "std_msgs/msg/Header", list[Exception]()
    model = bundle(detect, [SPEC], [TensorSpec("image", SPEC.shape, "uint8"), ROWS])
    to = configure(Publication("/out", IMAGE, "image"), admission="block", dropped="/dropped")
    with RosNode(to, model, transport, errors.append) as node:
        for number, array in enumerate(pictures(5)):
            message = bytes(cdr.encode(picture(array, number + 1, f"frame {number}"), IMAGE))
            transport.losers["/camera"](message) if number in (1, 3) else transport.send("/camera", message)
        transport.losers["/camera"](b"damaged")
        condition = node.condition()
    assert [cdr.decode(payload, header).frame_id for payload, _ in transport.published["/dropped"]] == [
        "frame 1",
        "frame 3",
    ]
    assert (condition.counts.received, condition.counts.dropped, condition.dropped, condition.lost) == (6, 3, 3, 0)
    assert condition.judge(None) == (1, "messages come too fast: 3 dropped")
    (error,) = errors
    assert "more than 5 messages behind" in str(error)


def test_messages_that_wait_at_the_end_are_counted_and_no_sign_of_a_slow_node() -> None:
    transport, errors = Local(), list[Exception]()
    model = bundle(detect, [SPEC], [TensorSpec("image", SPEC.shape, "uint8"), ROWS])
    with RosNode(configure(Publication("/out", IMAGE, "image")), model, transport, errors.append) as node:
        node.deactivate()
        transport.losers["/camera"](bytes(cdr.encode(picture(pictures(1)[0], 1), IMAGE)))
        condition = node.condition()
    assert (condition.counts.received, condition.dropped, errors) == (1, 1, [])


def test_a_line_gives_up_its_oldest_messages_and_in_the_end_all() -> None:
    gate, begun, received, lost = threading.Event(), threading.Event(), list[bytes](), list[bytes]()

    def receive(payload: bytes) -> None:
        received.append(payload)
        begun.set()
        assert gate.wait(60)

    line = MessageLine("/camera", 3, receive, lost.append)
    line.put(b"0")
    assert begun.wait(60)
    for number in range(1, 8):
        line.put(str(number).encode())
    assert lost == [b"1", b"2", b"3", b"4"]
    closing = threading.Thread(target=line.close)
    closing.start()
    gate.set()
    closing.join()
    line.put_patiently(b"8")
    assert sorted(received + lost) == [str(number).encode() for number in range(9)]


def test_the_cameras_facts_are_passed_on_with_the_headers_of_answers() -> None:
    kind, transport = "sensor_msgs/msg/CameraInfo", Local()
    model = bundle(detect, [SPEC], [TensorSpec("image", SPEC.shape, "uint8"), ROWS])
    to = configure(Publication("/out", IMAGE, "image"), Publication("/out_info", kind), camera_info="/info")
    numbers = np.arange(12, dtype=np.float64)
    roi = create_message("sensor_msgs/msg/RegionOfInterest", 0, 0, 0, 0, True)
    header = message_header(Header(1, "optical"))
    info = create_message(kind, header, 4, 6, "plumb_bob", numbers[:5], numbers[:9], numbers[:9], numbers, 1, 1, roi)
    with RosNode(to, model, transport):
        transport.send("/info", cdr.encode(info, kind))
        transport.send("/camera", cdr.encode(picture(pictures(1)[0], 7, "frame"), IMAGE))
    (message,) = (cdr.decode(payload, kind) for payload, _ in transport.published["/out_info"])
    assert (message.header.frame_id, message.header.stamp.nanosec) == ("frame", 7)
    assert (message.k.tolist(), message.p.tolist(), message.roi.do_rectify) == ([*range(9)], [*range(12)], True)


def test_points_and_rays_are_fitted_to_the_models_input() -> None:
    spec = TensorSpec("points", (1, 4, 2), "float32")
    model = bundle(lambda x: x, [spec], [TensorSpec("same", spec.shape, "float32")])
    header = message_header(Header(5, "lidar"))
    data = np.arange(9, dtype=np.float32).view(np.uint8)
    fields = [create_message("sensor_msgs/msg/PointField", name, 4 * at, 7, 1) for at, name in enumerate("xyz")]
    cloud = create_message("sensor_msgs/msg/PointCloud2", header, 1, 3, fields, False, 12, 36, data, True)
    rays = np.arange(6, dtype=np.float32)
    scan = create_message("sensor_msgs/msg/LaserScan", header, *[0.0] * 7, rays, rays * 10)
    expectations = {
        "sensor_msgs/msg/PointCloud2": (cloud, [[0, 1], [3, 4], [6, 7], [0, 0]]),
        "sensor_msgs/msg/LaserScan": (scan, [[0, 0], [1, 10], [2, 20], [3, 30]]),
    }
    for kind, (message, rows) in expectations.items():
        transport = Local()
        with RosNode(Configuration("", Topic("/in", kind), [Publication("/out", TENSOR)]), model, transport):
            transport.send("/in", cdr.encode(message, kind))
        result = cdr.decode(transport.published["/out"][0][0], TENSOR)
        assert result.header.frame_id == "lidar"
        assert result.data.view(np.float32).reshape(4, 2).tolist() == rows


def test_statistics_are_those_that_nodes_of_ros_publish() -> None:
    kind, transport = "statistics_msgs/msg/MetricsMessage", Local()
    model = bundle(detect, [SPEC], [TensorSpec("image", SPEC.shape, "uint8"), ROWS])
    to = configure(Publication("/out", IMAGE, "image"), admission="block", statistics="/statistics")
    with RosNode(to, model, transport) as node:
        for array in pictures(3):
            transport.send("/camera", cdr.encode(picture(array, time.time_ns()), IMAGE))
        node.watch()
    age, period = (cdr.decode(payload, kind) for payload, _ in transport.published["/statistics"])
    assert (age.metrics_source, period.metrics_source, age.unit) == ("message_age", "message_period", "ms")
    assert [point.data_type for point in age.statistics] == [1, 2, 3, 4, 5]
    assert (age.statistics[4].data, period.statistics[4].data) == (3, 2)
    assert 0 <= age.statistics[1].data <= age.statistics[0].data <= age.statistics[2].data


PARAMETERS = """
/**:
  ros__parameters:
    bundle: some.bundle
    subscribe: {topic: image}
    publish:
      boxes: {type: vision_msgs/msg/Detection2DArray, score: 0.3}
/robot/detector:
  ros__parameters: {publish.boxes.score: 0.4}
/other: {ros__parameters: {publish.boxes.score: 0.9}}
"""


def test_arguments_of_ros_name_remap_and_set(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    path = write_file(tmp_path, PARAMETERS)
    (tmp_path / "some.bundle").mkdir()
    words = f"-r __node:=detector -r __ns:=/robot --params-file {path} -r image:=/front/image -p dropped:=~/lost"
    configuration = read_configuration("", ros=RosArguments.parse([*words.split(), "--log-level", "info"]))
    (publication,) = configuration.publish
    assert (configuration.name, configuration.namespace) == ("detector", "/robot")
    assert configuration.bundle == str(tmp_path / "some.bundle")
    assert (configuration.subscribe.topic, configuration.dropped) == ("/front/image", "/robot/detector/lost")
    assert (publication.topic, publication.score) == ("/robot/detector/boxes", 0.4)
    with pytest.raises(InputError, match="'--params' is unknown, or lacks its value"):
        RosArguments.parse(["--params", "x"])
