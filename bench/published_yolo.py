"""Published networks of YOLO's kind; outputs are the maps in front of the decoding, as most figures have it."""

from __future__ import annotations

from collections.abc import Callable

from layers import Layers, Value

CLASSES = 80

Block = Callable[[Value, int, int, bool], Value]
"""Cross-stage block: value, channels, count, and whether there are shortcuts."""


def _conv(net: Layers, value: Value, channels: int, kernel: int = 3, stride: int = 1) -> Value:
    return net.conv(value, channels, kernel, stride, act="silu")


def _bottleneck(net: Layers, value: Value, hidden: int, *, short: bool, first: int = 3) -> Value:
    deep = _conv(net, _conv(net, value, hidden, first), value.channels)
    return net.add(value, deep) if short else deep


def _c3(  # noqa: PLR0913, PLR0917 - numbers of the networks' tables
    net: Layers, value: Value, channels: int, count: int, short: bool, first: int = 1
) -> Value:
    """Add the block of YOLOv5 and YOLOX, and with `first` 3 that inside of YOLO11's."""
    deep = _conv(net, value, channels // 2, 1)
    for _ in range(count):
        deep = _bottleneck(net, deep, channels // 2, short=short, first=first)
    return _conv(net, net.cat(deep, _conv(net, value, channels // 2, 1)), channels, 1)


def _fork(  # noqa: PLR0913, PLR0917 - numbers of the networks' tables
    net: Layers, value: Value, channels: int, count: int, block: Callable[[Value], Value], share: float = 0.5
) -> Value:
    """Add a block that keeps all its parts' results (C2f)."""
    half = int(channels * share)
    parts = net.split(_conv(net, value, 2 * half, 1), half, half)
    for _ in range(count):
        parts.append(block(parts[-1]))
    return _conv(net, net.cat(*parts), channels, 1)


def _spp(net: Layers, value: Value, channels: int, kernels: tuple[int, ...] = (5, 5, 5)) -> Value:
    """Pool over windows, those of one size one after the other."""
    parts = [_conv(net, value, value.channels // 2, 1)]
    for kernel in kernels:
        source = parts[-1] if len(set(kernels)) == 1 else parts[0]
        parts.append(net.pool(source, kernel, 1, pad=kernel // 2))
    return _conv(net, net.cat(*parts), channels, 1)


def _pyramid(net: Layers, maps: list[Value], widths: list[int], count: int, block: Block) -> list[Value]:
    """Join maps from the smallest to the largest and back (YOLOv8's and YOLO11's neck)."""
    third, fourth, fifth = maps
    middle = block(net.cat(net.up(fifth), fourth), widths[1], count, False)
    large = block(net.cat(net.up(middle), third), widths[0], count, False)
    middle = block(net.cat(_conv(net, large, widths[0], 3, 2), middle), widths[1], count, False)
    small = block(net.cat(_conv(net, middle, widths[1], 3, 2), fifth), widths[2], count, False)
    return [large, middle, small]


def _detect(net: Layers, maps: list[Value], *, is_light: bool) -> list[Value]:
    """Add YOLOv8's head, or YOLO11's with depthwise convolutions."""
    boxes, scores = max(16, maps[0].channels // 4, 64), max(maps[0].channels, CLASSES)
    outputs = []
    for value in maps:
        box = net.conv(_conv(net, _conv(net, value, boxes), boxes), 64, 1, act="")
        score = value
        for _ in range(2):
            score = _conv(net, net.dw(score, act="silu"), scores, 1) if is_light else _conv(net, score, scores)
        outputs.append(net.cat(box, net.conv(score, CLASSES, 1, act="")))
    return outputs


def yolov8(net: Layers, depth: float, width: float, most: int) -> list[Value]:
    """Add YOLOv8 (Ultralytics)."""

    def block(value: Value, channels: int, count: int, short: bool) -> Value:
        return _fork(net, value, channels, count, lambda part: _bottleneck(net, part, part.channels, short=short))

    widths = [int(min(channels, most) * width) for channels in (64, 128, 256, 512, 1024)]
    value, maps = _conv(net, net.input, widths[0], 3, 2), []
    for channels, count in zip(widths[1:], (3, 6, 6, 3), strict=True):
        value = block(_conv(net, value, channels, 3, 2), channels, round(count * depth), True)
        maps.append(value)
    maps[-1] = _spp(net, value, widths[-1])
    return _detect(net, _pyramid(net, maps[1:], widths[2:], round(3 * depth), block), is_light=False)


def yolo11(net: Layers, width: float, most: int, *, is_deep: bool = False) -> list[Value]:
    """Add YOLO11 (Ultralytics) of the depth 0.5; `is_deep` from m on."""

    def block(value: Value, channels: int, share: float = 0.5, *, nested: bool) -> Value:
        def part(source: Value) -> Value:
            if nested or is_deep:
                return _c3(net, source, source.channels, 2, True, 3)
            return _bottleneck(net, source, source.channels // 2, short=True)

        return _fork(net, value, channels, 1, part, share)

    widths = [int(min(channels, most) * width) for channels in (64, 128, 256, 512, 1024)]
    value = _conv(net, _conv(net, net.input, widths[0], 3, 2), widths[1], 3, 2)
    value = block(value, widths[2], 0.25, nested=False)
    third = block(_conv(net, value, widths[2], 3, 2), widths[3], 0.25, nested=False)
    fourth = block(_conv(net, third, widths[3], 3, 2), widths[3], nested=True)
    fifth = _spp(net, block(_conv(net, fourth, widths[4], 3, 2), widths[4], nested=True), widths[4])
    half = widths[4] // 2
    parts = net.split(_conv(net, fifth, 2 * half, 1), half, half)
    fifth = _conv(net, net.cat(parts[0], _attention(net, parts[1])), widths[4], 1)

    def neck(value: Value, channels: int, count: int, short: bool) -> Value:  # noqa: ARG001
        return block(value, channels, nested=channels == widths[4] and value.channels != 2 * widths[3])

    return _detect(net, _pyramid(net, [third, fourth, fifth], widths[2:], 1, neck), is_light=True)


def _attention(net: Layers, value: Value) -> Value:
    """Add attention between places, and the two layers behind it."""
    heads, tokens = max(1, value.channels // 64), value.side[0] * value.side[1]
    width = value.channels // heads
    flat = net.reshape(net.conv(value, 2 * value.channels, 1, act=""), heads, 2 * width, tokens)
    parts = []
    for start, stop in ((0, width // 2), (width // 2, width), (width, 2 * width)):
        ends = [net.integers(number) for number in (start, stop, 2)]
        parts.append(net.op("Slice", flat, extra=ends))
    query, key, content = parts
    shares = net.op("Softmax", net.op("MatMul", net.op("Transpose", query, perm=[0, 1, 3, 2]), key), axis=-1)
    mixed = net.op("MatMul", content, net.op("Transpose", shares, perm=[0, 1, 3, 2]))
    mixed, content = (net.reshape(part, value.channels, *value.side)._replace(channels=value.channels, side=value.side)
                      for part in (mixed, content))  # fmt: skip
    value = net.add(value, net.conv(net.add(mixed, net.dw(content, act="")), value.channels, 1, act=""))
    return net.add(value, net.conv(_conv(net, value, 2 * value.channels, 1), value.channels, 1, act=""))


def yolov5(net: Layers, depth: float, width: float) -> list[Value]:
    """Add YOLOv5 of version 6 (Ultralytics)."""
    widths = [int(channels * width) for channels in (64, 128, 256, 512, 1024)]
    value, maps = net.conv(net.input, widths[0], 6, 2, act="silu", pad=2), []
    for channels, count in zip(widths[1:], (3, 6, 9, 3), strict=True):
        value = _c3(net, _conv(net, value, channels, 3, 2), channels, round(count * depth), True)
        maps.append(value)
    maps[-1] = _spp(net, value, widths[-1])
    outputs = _two_ways(net, maps[1:], widths[2:], round(3 * depth), _conv)
    return [net.conv(value, 3 * (CLASSES + 5), 1, act="") for value in outputs]


def _two_ways(  # noqa: PLR0913, PLR0917 - maps, their widths, and the parts that differ
    net: Layers, maps: list[Value], widths: list[int], count: int, down: Callable[..., Value],
    block: Callable[..., Value] = _c3,
) -> list[Value]:  # fmt: skip
    """Join maps with narrow ones between (YOLOv5's and YOLOX's neck)."""
    third, fourth, fifth = maps
    low = _conv(net, fifth, widths[1], 1)
    mid = _conv(net, block(net, net.cat(net.up(low), fourth), widths[1], count, False), widths[0], 1)
    large = block(net, net.cat(net.up(mid), third), widths[0], count, False)
    middle = block(net, net.cat(down(net, large, widths[0], 3, 2), mid), widths[1], count, False)
    return [large, middle, block(net, net.cat(down(net, middle, widths[1], 3, 2), low), widths[2], count, False)]


def yolox(net: Layers, width: float, *, is_light: bool = False) -> list[Value]:
    """Add YOLOX of the depth 0.33 (Ge et al.); `is_light` with depthwise convolutions."""

    def conv(_: Layers, value: Value, channels: int, kernel: int = 3, stride: int = 1) -> Value:
        if not is_light:
            return _conv(net, value, channels, kernel, stride)
        return _conv(net, net.dw(value, kernel, stride, act="silu"), channels, 1)

    def block(_: Layers, value: Value, channels: int, count: int, short: bool) -> Value:
        deep = _conv(net, value, channels // 2, 1)
        for _number in range(count):
            wide = conv(net, _conv(net, deep, channels // 2, 1), channels // 2)
            deep = net.add(deep, wide) if short else wide
        return _conv(net, net.cat(deep, _conv(net, value, channels // 2, 1)), channels, 1)

    widths = [int(channels * width) for channels in (64, 128, 256, 512, 1024)]
    parts = net.op("SpaceToDepth", net.input, channels=12, blocksize=2)
    value = _conv(net, parts._replace(side=(net.input.side[0] // 2, net.input.side[1] // 2)), widths[0])
    maps = []
    for channels, count in zip(widths[1:], (1, 3, 3, 1), strict=True):
        value = conv(net, value, channels, 3, 2)
        is_last = channels == widths[-1]
        value = _spp(net, value, channels, (5, 9, 13)) if is_last else value
        value = block(net, value, channels, count, not is_last)
        maps.append(value)
    outputs = []
    for level in _two_ways(net, maps[1:], widths[2:], 1, conv, block):
        stem = _conv(net, level, widths[2], 1)
        scores, boxes = (conv(net, conv(net, stem, widths[2]), widths[2]) for _ in range(2))
        ends = ((boxes, 4), (boxes, 1), (scores, CLASSES))
        outputs.append(net.cat(*(net.conv(branch, channels, 1, act="") for branch, channels in ends)))
    return outputs


def yolov6n(net: Layers) -> list[Value]:
    """Add YOLOv6-N of version 3 as it is deployed: each block one convolution (Li et al.)."""

    def row(value: Value, channels: int, count: int, stride: int = 1) -> Value:
        for number in range(count):
            value = net.conv(value, channels, 3, 1 if number else stride)
        return value

    def fuse(small: Value, level: Value, below: Value, width: int) -> Value:
        halved = net.conv(net.conv(below, width, 1), width, 3, 2)
        return net.conv(net.cat(net.up(small), net.conv(level, width, 1), halved), width, 1)

    value, maps = net.conv(net.input, 16, 3, 2), []
    for channels, count in ((32, 2), (64, 4), (128, 6), (256, 2)):
        value = row(value, channels, count + 1, 2)
        maps.append(value)
    deep = net.conv(net.conv(net.conv(value, 128, 1), 128), 128, 1)
    pooled = [deep]
    for _ in range(3):
        pooled.append(net.pool(pooled[-1], 5, 1, pad=2))
    deep = net.conv(net.conv(net.cat(*pooled), 128, 1), 128)
    fifth = net.conv(net.conv(net.cat(net.conv(value, 128, 1), deep), 256, 1), 64, 1)
    fourth = net.conv(row(fuse(fifth, maps[2], maps[1], 64), 64, 4), 32, 1)
    large = row(fuse(fourth, maps[1], maps[0], 32), 32, 4)
    middle = row(net.cat(net.conv(large, 32, 3, 2), fourth), 64, 4)
    small = row(net.cat(net.conv(middle, 64, 3, 2), fifth), 128, 4)
    outputs = []
    for level in (large, middle, small):
        stem = _conv(net, level, level.channels, 1)
        ends = ((_conv(net, stem, stem.channels), channels) for channels in (4, CLASSES))
        outputs.append(net.cat(*(net.conv(branch, channels, 1, act="") for branch, channels in ends)))
    return outputs


def yolov10n(net: Layers) -> list[Value]:
    """Add YOLOv10-N (Wang et al. 2024)."""

    def down(value: Value, channels: int) -> Value:
        return net.dw(_conv(net, value, channels, 1), 3, 2, act="")

    def block(value: Value, channels: int, count: int, short: bool) -> Value:
        return _fork(net, value, channels, count, lambda part: _bottleneck(net, part, part.channels, short=short))

    def compact(value: Value) -> Value:
        wide = _conv(net, net.dw(value, act="silu"), 2 * value.channels, 1)
        return net.add(value, net.dw(_conv(net, net.dw(wide, 7, act="silu"), value.channels, 1), act="silu"))

    value = block(_conv(net, _conv(net, net.input, 16, 3, 2), 32, 3, 2), 32, 1, True)
    third = block(_conv(net, value, 64, 3, 2), 64, 2, True)
    fourth = block(down(third, 128), 128, 2, True)
    fifth = _spp(net, block(down(fourth, 256), 256, 1, True), 256)
    parts = net.split(_conv(net, fifth, 256, 1), 128, 128)
    fifth = _conv(net, net.cat(parts[0], _attention(net, parts[1])), 256, 1)
    middle = block(net.cat(net.up(fifth), fourth), 128, 1, False)
    large = block(net.cat(net.up(middle), third), 64, 1, False)
    middle = block(net.cat(_conv(net, large, 64, 3, 2), middle), 128, 1, False)
    small = _fork(net, net.cat(down(middle, 128), fifth), 256, 1, compact)
    return _detect(net, [large, middle, small], is_light=True)


def yolov7_tiny(net: Layers) -> list[Value]:
    """Add YOLOv7-tiny (Wang et al.)."""

    def conv(value: Value, channels: int, kernel: int = 1, stride: int = 1) -> Value:
        return net.conv(value, channels, kernel, stride, act="leaky")

    def elan(value: Value, width: int) -> Value:
        first, second = conv(value, width), conv(value, width)
        third = conv(second, width, 3)
        return conv(net.cat(conv(third, width, 3), third, second, first), 2 * width)

    value, maps = elan(conv(conv(net.input, 32, 3, 2), 64, 3, 2), 32), []
    for width in (64, 128, 256):
        value = elan(net.pool(value, 2), width)
        maps.append(value)
    first, second = conv(value, 256), conv(value, 256)
    pooled = [net.pool(second, kernel, 1, pad=kernel // 2) for kernel in (5, 9, 13)]
    low = conv(net.cat(conv(net.cat(*pooled, second), 256), first), 256)
    middle = elan(net.cat(conv(maps[1], 128), net.up(conv(low, 128))), 64)
    large = elan(net.cat(conv(maps[0], 64), net.up(conv(middle, 64))), 32)
    middle = elan(net.cat(conv(large, 128, 3, 2), middle), 64)
    small = elan(net.cat(conv(middle, 256, 3, 2), low), 128)
    return [net.conv(conv(level, 2 * level.channels, 3), 255, 1, act="") for level in (large, middle, small)]


def yolov4_tiny(net: Layers) -> list[Value]:
    """Add YOLOv4-tiny (Wang et al.)."""

    def conv(value: Value, channels: int, kernel: int = 3, stride: int = 1) -> Value:
        return net.conv(value, channels, kernel, stride, act="leaky")

    value = conv(conv(net.input, 32, 3, 2), 64, 3, 2)
    middle = value
    for channels in (64, 128, 256):
        whole = conv(value, channels)
        first = conv(net.split(whole, channels // 2, channels // 2)[1], channels // 2)
        middle = conv(net.cat(conv(first, channels // 2), first), channels, 1)
        value = net.pool(net.cat(whole, middle), 2)
    low = conv(conv(value, 512), 256, 1)
    joined = net.cat(net.up(conv(low, 128, 1)), middle)
    return [net.conv(conv(low, 512), 255, 1, act=""), net.conv(conv(joined, 256), 255, 1, act="")]


def yolov3(net: Layers) -> list[Value]:
    """Add YOLOv3 with Darknet-53 (Redmon and Farhadi)."""

    def conv(value: Value, channels: int, kernel: int = 1, stride: int = 1) -> Value:
        return net.conv(value, channels, kernel, stride, act="leaky")

    value, maps = conv(net.input, 32, 3), []
    for channels, count in ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4)):
        value = conv(value, channels, 3, 2)
        for _ in range(count):
            value = net.add(value, conv(conv(value, channels // 2), channels, 3))
        maps.append(value)
    outputs = []
    for width, level in zip((512, 256, 128), (None, maps[3], maps[2]), strict=True):
        value = value if level is None else net.cat(net.up(conv(value, width)), level)
        value = conv(conv(conv(conv(conv(value, width), 2 * width, 3), width), 2 * width, 3), width)
        outputs.append(net.conv(conv(value, 2 * width, 3), 255, 1, act=""))
    return outputs
