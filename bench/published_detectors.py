"""Published networks that find things in pictures: SSD and others, and those of a value per pixel.

Outputs are the maps in front of the decoding, as most runtimes' figures have it.
"""

from __future__ import annotations

from layers import Layers, Value
from published_classifiers import fire, mobilenet_v1, mobilenet_v2, shufflenet_v2_maps, squeezenet_maps
from published_yolo import CLASSES


def nanodet_m(net: Layers) -> list[Value]:
    """Add NanoDet-m, on ShuffleNetV2."""
    third, fourth, fifth = (net.conv(value, 96, 1, act="") for value in shufflenet_v2_maps(net, "leaky"))
    fourth = net.add(fourth, net.up(fifth, mode="linear"))
    third = net.add(third, net.up(fourth, mode="linear"))
    fourth = net.add(fourth, net.pool(third, 2, kind="Average"))
    outputs = []
    for value in (third, fourth, net.add(fifth, net.pool(fourth, 2, kind="Average"))):
        deep = value
        for _ in range(2):
            deep = net.conv(net.dw(deep, act="leaky"), 96, 1, act="leaky")
        outputs.append(net.conv(deep, CLASSES + 32, 1, act=""))
    return outputs


def fastestdet(net: Layers) -> Value:
    """Add FastestDet, on a narrow ShuffleNetV2 (github.com/dog-qiuqiu/FastestDet)."""
    third, fourth, fifth = shufflenet_v2_maps(net, widths=(48, 96, 192))
    value = net.conv(net.cat(net.pool(third, kind="Average", pad=1), fourth, net.up(fifth)), 96, 1)
    parts = []
    for count in (1, 2, 3):
        deep = value
        for _ in range(count):
            deep = net.dw(deep, 5)
        parts.append(deep)
    value = net.conv(net.add(value, net.conv(net.cat(*parts), 96, 1, act=""), act="relu"), 96, 1)
    ends = ((1, "sigmoid"), (4, ""), (CLASSES, ""))
    return net.cat(*(net.conv(net.dw(value, 5), channels, 1, act=act) for channels, act in ends))


def _boxes(net: Layers, maps: list[Value], classes: int, kernel: int, most: int = 6) -> list[Value]:
    """Add SSD's convolutions for boxes and classes, with fewer anchors on the first map."""
    anchors = [3 if most == 6 and kernel == 1 else 4, *(most,) * (len(maps) - 1)]
    return [
        net.conv(value, count * channels, kernel, act="")
        for value, count in zip(maps, anchors, strict=True)
        for channels in (4, classes)
    ]


def _smaller(net: Layers, maps: list[Value], steps: tuple[tuple[int, int], ...]) -> list[Value]:
    for squeeze, channels in steps:
        maps = [*maps, net.conv(net.conv(maps[-1], squeeze, 1), channels, 3, 2)]
    return maps


_EXTRAS = ((256, 512), (128, 256), (128, 256), (64, 128))


def ssd_mobilenet_v1(net: Layers, classes: int = 91) -> list[Value]:
    """Add SSD on MobileNetV1 (Huang et al. 2017); with 21 classes, that of Caffe."""
    maps = mobilenet_v1(net)[-2:]
    return _boxes(net, _smaller(net, maps, _EXTRAS), classes, 1)


def ssd_mobilenet_v2(net: Layers) -> list[Value]:
    """Add SSD on MobileNetV2."""
    steps = ((256, 512), (128, 256), (128, 256), (64, 128))
    return _boxes(net, _smaller(net, mobilenet_v2(net)[-2:], steps), 91, 1)


def squeezenet_ssd(net: Layers) -> list[Value]:
    """Add SSD on SqueezeNet 1.1, as ncnn's benchmark has it."""
    _, _, fifth, value = squeezenet_maps(net)
    maps = [fifth, value]
    for _ in range(2):
        value = fire(net, net.pool(value, ceil=True), 96, 384)
        maps.append(value)
    return _boxes(net, _smaller(net, maps, ((128, 256), (64, 128))), 21, 3)


def deeplab_v3(net: Layers, alpha: float = 1.0, stride: int = 16) -> Value:
    """Add DeepLabv3 on MobileNetV2, without the pyramid (Chen et al.)."""
    value = mobilenet_v2(net, alpha, stride, last=0)[-1]
    joined = net.cat(net.conv(value, 256, 1), _spread(net, net.conv(net.mean(value), 256, 1), value))
    return net.up(net.conv(net.conv(joined, 256, 1), 21, 1, act=""), stride, "linear")


def _spread(net: Layers, value: Value, like: Value) -> Value:
    """Repeat a mean over a map."""
    wide = net.op("Expand", value, extra=[net.integers(1, value.channels, *like.side)])
    return wide._replace(side=like.side)


def posenet_mobilenet(net: Layers) -> list[Value]:
    """Add PoseNet on MobileNetV1 of width 0.75 and stride 16."""
    value = net.conv(net.input, 24, 3, 2, act="relu6")
    for channels, stride in (
        (48, 1),
        (96, 2),
        (96, 1),
        (192, 2),
        (192, 1),
        (384, 2),
        *(((384, 1),) * 5),
        *(((768, 1),) * 2),
    ):
        value = net.conv(net.dw(value, 3, stride, act="relu6"), channels, 1, act="relu6")
    return [net.conv(value, channels, 1, act="") for channels in (17, 34, 32, 32)]


def unet_mobilenet(net: Layers) -> Value:
    """Add a U-Net of 3 classes on MobileNetV2, as TensorFlow's tutorial has it."""
    maps = mobilenet_v2(net, last=0)
    value = maps.pop()
    for channels in (512, 256, 128, 64):
        value = net.cat(net.deconv(value, channels), maps.pop())
    return net.deconv(value, 3)


def blazeface(net: Layers) -> list[Value]:
    """Add BlazeFace (Bazarevsky et al.), with the channels of its published file."""
    value, maps = net.conv(net.input, 24, 5, 2), []
    for channels in (24, 28, -32, 36, 42, -48, 56, 64, 72, 80, 88, -96, 96, 96, 96, 96):
        # A minus stands for half the size; shortcuts that widen are left out.
        maps += [value] * (channels == -96)
        deep = net.conv(net.dw(value, 3, 2 if channels < 0 else 1, act=""), abs(channels), 1, act="")
        value = net.add(deep, value, act="relu") if channels == value.channels else net.act(deep, "relu")
    ends = [(maps[0], 2), (value, 6)]
    return [net.conv(end, count * anchors, 1, act="") for end, anchors in ends for count in (1, 16)]
