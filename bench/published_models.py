"""Networks whose times are published, with random weights and the right structure, as graphs.

``graph("resnet50", precision="int8")`` is the network for its usual input.  What floats it computes in says the plan:
its graph is that of float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import published_classifiers as classifiers
import published_detectors as detectors
import published_inception as inception
import published_yolo as yolo
from layers import Layers

import pipeline
from pipeline.split.graph import Graph


class Network(NamedTuple):
    """A network of the table.

    Attributes
    ----------
    build : callable
        Adds its layers, and returns the outputs.
    shape : tuple of int
        Its usual input: height and width of a picture, or tokens and their width.
    operations : float
        Billions of multiply-adds, by its authors, or counted in ncnn's file of it; 0 if unknown.
    channels : int
        Channels of a picture.
    """

    build: Callable[[Layers], Any]
    shape: tuple[int, int] = (224, 224)
    operations: float = 0.0
    channels: int = 3


def _side(size: int) -> tuple[int, int]:
    return size, size


_LITE = {0: (1.0, 1.0, 224, 0.4), 1: (1.0, 1.1, 240, 0.62), 2: (1.1, 1.2, 260, 0.89), 3: (1.2, 1.4, 280, 0.0),
         4: (1.4, 1.8, 300, 2.52)}  # fmt: skip

NETWORKS: Mapping[str, Network] = {
    "alexnet": Network(classifiers.alexnet, _side(227), 0.72),
    "bert_base": Network(classifiers.bert_base, (384, 768), 35.3),
    "blazeface": Network(detectors.blazeface, _side(128)),
    "deeplab_v3": Network(detectors.deeplab_v3, _side(513), 2.75),
    "deeplab_v3_dm05": Network(lambda net: detectors.deeplab_v3(net, 0.5), _side(513)),
    "densenet121": Network(classifiers.densenet121, operations=2.87),
    "ds_cnn": Network(classifiers.ds_cnn, (49, 10), channels=1),
    "efficientnet_b0": Network(classifiers.efficientnet, operations=0.39),
    **{
        f"efficientnet_lite{number}": Network(
            partial(classifiers.efficientnet, width=width, depth=depth, lite=True), _side(size), operations
        )
        for number, (width, depth, size, operations) in _LITE.items()
    },
    "efficientnetv2_b0": Network(classifiers.efficientnetv2_b0, operations=0.72),
    "fastestdet": Network(detectors.fastestdet, _side(352)),
    "googlenet": Network(lambda net: inception.inception_v1(net, has_norms=True), operations=1.58),
    "inception_v1": Network(inception.inception_v1, operations=1.5),
    "inception_v2": Network(inception.inception_v2, operations=1.94),
    "inception_v3": Network(inception.inception_v3, _side(299), 5.71),
    "inception_v4": Network(inception.inception_v4, _side(299), 12.27),
    "mnasnet": Network(classifiers.mnasnet, operations=0.315),
    "mobilenet_v1": Network(lambda net: net.classify(classifiers.mobilenet_v1(net)[-1]), operations=0.569),
    "mobilenet_v1_ssd": Network(lambda net: detectors.ssd_mobilenet_v1(net, 21), _side(300), 1.15),
    "mobilenet_v2": Network(lambda net: net.classify(classifiers.mobilenet_v2(net)[-1]), operations=0.3),
    "mobilenet_v3": Network(classifiers.mobilenet_v3, operations=0.219),
    "nanodet_m": Network(detectors.nanodet_m, _side(320), 0.342),
    "posenet_mobilenet": Network(detectors.posenet_mobilenet, (353, 481)),
    "proxylessnasnet": Network(classifiers.proxylessnasnet, operations=0.336),
    "regnety_400m": Network(classifiers.regnety_400m, operations=0.4),
    "resnet18": Network(lambda net: classifiers.resnet(net, (2, 2, 2, 2), is_bottleneck=False), operations=1.81),
    "resnet34": Network(lambda net: classifiers.resnet(net, (3, 4, 6, 3), is_bottleneck=False), operations=3.66),
    "resnet50": Network(lambda net: classifiers.resnet(net, (3, 4, 6, 3), is_bottleneck=True), operations=4.09),
    "shufflenet": Network(classifiers.shufflenet, operations=0.14),
    "shufflenet_v2": Network(classifiers.shufflenet_v2, operations=0.146),
    "squeezenet": Network(classifiers.squeezenet, _side(227), 0.4185),
    "squeezenet_ssd": Network(detectors.squeezenet_ssd, _side(300), 1.176),
    "ssd_mobilenet_v1": Network(detectors.ssd_mobilenet_v1, _side(300), 1.23),
    "ssd_mobilenet_v2": Network(detectors.ssd_mobilenet_v2, _side(300), 0.76),
    "unet": Network(detectors.unet_mobilenet, _side(128)),
    "vgg16": Network(classifiers.vgg16, operations=15.5),
    "vit_b16": Network(classifiers.vit_b16, operations=17.5),
    "yolo11n": Network(lambda net: yolo.yolo11(net, 0.25, 1024), _side(640), 3.25),
    "yolo11s": Network(lambda net: yolo.yolo11(net, 0.5, 1024), _side(640), 10.75),
    "yolo11m": Network(lambda net: yolo.yolo11(net, 1.0, 512, is_deep=True), _side(640), 34.0),
    "yolov3": Network(yolo.yolov3, _side(416), 32.9),
    "yolov4_tiny": Network(yolo.yolov4_tiny, _side(416), 3.45),
    "yolov5n": Network(lambda net: yolo.yolov5(net, 0.33, 0.25), _side(640), 2.25),
    "yolov5s": Network(lambda net: yolo.yolov5(net, 0.33, 0.5), _side(640), 8.25),
    "yolov5m": Network(lambda net: yolo.yolov5(net, 0.67, 0.75), _side(640), 24.5),
    "yolov6n": Network(yolo.yolov6n, _side(640), 5.7),
    "yolov7_tiny": Network(yolo.yolov7_tiny, _side(640), 6.85),
    "yolov8n": Network(lambda net: yolo.yolov8(net, 0.33, 0.25, 1024), _side(640), 4.35),
    "yolov8s": Network(lambda net: yolo.yolov8(net, 0.33, 0.5, 1024), _side(640), 14.3),
    "yolov8m": Network(lambda net: yolo.yolov8(net, 0.67, 0.75, 768), _side(640), 39.45),
    "yolov10n": Network(yolo.yolov10n, _side(640), 3.35),
    "yolox_nano": Network(lambda net: yolo.yolox(net, 0.25, is_light=True), _side(416), 0.54),
    "yolox_tiny": Network(lambda net: yolo.yolox(net, 0.375), _side(416), 3.23),
    "yolox_s": Network(lambda net: yolo.yolox(net, 0.5), _side(640), 13.4),
}  # fmt: skip
"""Networks by the names that published figures have."""


def build(model: str, size: int | None = None, precision: str = "float32") -> Any:
    """Return a network in ONNX; see `graph`."""
    network = NETWORKS[model]
    first, second = network.shape
    is_text = model.startswith(("bert", "mobilebert"))
    extents = (first, second) if size is None else (size, second if is_text else size)
    net = Layers(extents if is_text else (network.channels, *extents), int8=precision == "int8")
    outputs = network.build(net)
    # A value itself is a tuple.
    return net.model(model, *(outputs if isinstance(outputs, list) else [outputs]))


@lru_cache(maxsize=4)
def graph(model: str, size: int | None = None, precision: str = "float32") -> Graph:
    """Return a network's graph.

    Only the last ones are kept, for their weights' sake: ask for all of one network in a row.

    Parameters
    ----------
    size : int, optional
        Side of the input in pixels, or number of tokens, where it is not the usual one.
    precision : str
        ``"int8"`` for a quantised network; all else is the network in float32.
    """
    onnx_model = build(model, size, precision)
    # A file is read several times faster than a model in memory, whose parts are checked one by one.
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"{model}.onnx"
        file.write_bytes(onnx_model.SerializeToString())
        return pipeline.read(file)
