"""Published networks that name pictures or words, by their papers' tables."""

from __future__ import annotations

from layers import Layers, Value


def mobilenet_v1(net: Layers, act: str = "relu") -> list[Value]:
    """Return the maps of all sizes (Howard et al., table 1)."""
    value, maps = net.conv(net.input, 32, 3, 2, act=act), []
    strides = {128: 2, 256: 2, 512: 2, 1024: 2}
    for channels in (64, 128, 128, 256, 256, *(512,) * 6, 1024, 1024):
        stride = strides.pop(channels, 1)
        maps += [value] * (stride == 2)
        value = net.conv(net.dw(value, 3, stride, act=act), channels, 1, act=act)
    return [*maps, value]


def mobilenet_v2(net: Layers, alpha: float = 1.0, stride: int = 32, last: int = 1280) -> list[Value]:
    """Return the maps of all sizes (Sandler et al., table 2); `stride` is the least size's, dilated below it."""
    value, maps = net.conv(net.input, _eights(32 * alpha), 3, 2, act="relu6"), []
    table = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    scale, dilation = 2, 1
    for factor, channels, count, step in table:
        for part in range(count):
            hop = step if part == 0 else 1
            if hop == 2 and scale == stride:
                hop, dilation = 1, dilation * 2
            scale *= hop
            wide = value if factor == 1 else net.conv(value, value.channels * factor, 1, act="relu6")
            maps += [wide] * (hop == 2)
            deep = net.dw(wide, 3, hop, act="relu6", dilation=dilation if part or hop == 1 else 1)
            narrow = net.conv(deep, _eights(channels * alpha), 1, act="")
            value = net.add(narrow, value) if part else narrow
    return [*maps, net.conv(value, last, 1, act="relu6") if last else value]


def inverted(  # noqa: PLR0913, PLR0917 - a row of the papers' tables has so many numbers
    net: Layers, value: Value, factor: float, channels: int, kernel: int, stride: int, *,
    squeeze: int = 0, act: str = "relu6", gates: tuple[str, str] = ("relu", "hsigmoid"), is_fused: bool = False,
) -> Value:  # fmt: skip
    """Add an inverted residual: widen, filter, weigh, narrow."""
    wide, width = value, round(value.channels * factor)
    if is_fused:
        # One dense convolution in place of the first two.
        wide = net.conv(value, width if factor != 1 else channels, kernel, stride, act=act)
    else:
        wide = net.conv(value, width, 1, act=act) if factor != 1 else value
        wide = net.dw(wide, kernel, stride, act=act)
    if squeeze:
        wide = net.squeeze(wide, squeeze, *gates)
    narrow = wide if is_fused and factor == 1 else net.conv(wide, channels, 1, act="")
    return net.add(narrow, value) if stride == 1 and channels == value.channels else narrow


def mobilenet_v3(net: Layers) -> Value:
    """Add MobileNetV3 large (Howard et al. 2019, table 1)."""
    table = (
        (3, 16, 16, 0, "relu", 1), (3, 64, 24, 0, "relu", 2), (3, 72, 24, 0, "relu", 1), (5, 72, 40, 1, "relu", 2),
        (5, 120, 40, 1, "relu", 1), (5, 120, 40, 1, "relu", 1), (3, 240, 80, 0, "hswish", 2),
        (3, 200, 80, 0, "hswish", 1), (3, 184, 80, 0, "hswish", 1), (3, 184, 80, 0, "hswish", 1),
        (3, 480, 112, 1, "hswish", 1), (3, 672, 112, 1, "hswish", 1), (5, 672, 160, 1, "hswish", 2),
        (5, 960, 160, 1, "hswish", 1), (5, 960, 160, 1, "hswish", 1),
    )  # fmt: skip
    value = net.conv(net.input, 16, 3, 2, act="hswish")
    for kernel, width, channels, is_weighed, act, stride in table:
        squeeze = _eights(width / 4) if is_weighed else 0
        value = inverted(net, value, width / value.channels, channels, kernel, stride, squeeze=squeeze, act=act)
    value = net.mean(net.conv(value, 960, 1, act="hswish"))
    return net.dense(net.dense(value, 1280, "hswish"), 1000)


def mnasnet(net: Layers) -> Value:
    """Add MnasNet-B1 of width 1 (Tan et al.)."""
    table = (
        (3, 24, 3, 3, 2),
        (3, 40, 3, 5, 2),
        (6, 80, 3, 5, 2),
        (6, 96, 2, 3, 1),
        (6, 192, 4, 5, 2),
        (6, 320, 1, 3, 1),
    )
    value = net.conv(net.dw(net.conv(net.input, 32, 3, 2)), 16, 1, act="")
    for factor, channels, count, kernel, stride in table:
        for part in range(count):
            value = inverted(net, value, factor, channels, kernel, 1 if part else stride, act="relu")
    return net.classify(net.conv(value, 1280, 1))


def proxylessnasnet(net: Layers) -> Value:
    """Add ProxylessNAS (Cai et al.), in the variant of ncnn's benchmark."""
    table = (
        (32, ((1.5, 5), (3, 3))), (40, ((3, 7), (3, 3), (3, 5), (3, 5))), (80, ((6, 7), (3, 5), (3, 5), (3, 5))),
        (96, ((6, 5), (3, 5), (3, 5), (3, 5))), (192, ((6, 7), (6, 7), (3, 7), (3, 7))), (320, ((6, 7),)),
    )  # fmt: skip
    value = inverted(net, net.conv(net.input, 32, 3, 2, act="relu6"), 1, 32, 3, 1)
    for channels, blocks in table:
        for part, (factor, kernel) in enumerate(blocks):
            stride = 2 if part == 0 and channels not in {96, 320} else 1
            value = inverted(net, value, factor, channels, kernel, stride)
    return net.classify(net.conv(value, 1280, 1, act="relu6"))


_EFFICIENT = (
    (1, 16, 1, 3, 1), (6, 24, 2, 3, 2), (6, 40, 2, 5, 2), (6, 80, 3, 3, 2), (6, 112, 3, 5, 1), (6, 192, 4, 5, 2),
    (6, 320, 1, 3, 1),
)  # fmt: skip


def efficientnet(net: Layers, width: float = 1.0, depth: float = 1.0, *, lite: bool = False) -> Value:
    """Add EfficientNet (Tan and Le, table 1), or its Lite kind: no weighing, ends of fixed size."""
    act = "relu6" if lite else "silu"
    value = net.conv(net.input, 32 if lite else _eights(32 * width), 3, 2, act=act)
    for number, (factor, channels, count, kernel, stride) in enumerate(_EFFICIENT):
        is_end = lite and number in {0, len(_EFFICIENT) - 1}
        for part in range(count if is_end else -int(-count * depth // 1)):
            squeeze = 0 if lite else max(1, value.channels // 4)
            value = inverted(net, value, factor, _eights(channels * width), kernel, 1 if part else stride,
                             squeeze=squeeze, act=act, gates=("silu", "sigmoid"))  # fmt: skip
    return net.classify(net.conv(value, 1280 if lite else _eights(1280 * width), 1, act=act))


def efficientnetv2_b0(net: Layers) -> Value:
    """Add EfficientNetV2-B0 (Tan and Le 2021)."""
    table = (
        (1, 16, 1, 1, True), (4, 32, 2, 2, True), (4, 48, 2, 2, True), (4, 96, 3, 2, False), (6, 112, 5, 1, False),
        (6, 192, 8, 2, False),
    )  # fmt: skip
    value = net.conv(net.input, 32, 3, 2, act="silu")
    for factor, channels, count, stride, is_fused in table:
        for part in range(count):
            squeeze = 0 if is_fused else value.channels // 4
            value = inverted(net, value, factor, channels, 3, 1 if part else stride, squeeze=squeeze, act="silu",
                             gates=("silu", "sigmoid"), is_fused=is_fused)  # fmt: skip
    return net.classify(net.conv(value, 1280, 1, act="silu"))


def regnety_400m(net: Layers) -> Value:
    """Add RegNetY-400MF (Radosavovic et al.)."""
    value = net.conv(net.input, 32, 3, 2)
    for channels, count in ((48, 1), (104, 3), (208, 6), (440, 6)):
        for part in range(count):
            stride = 1 if part else 2
            deep = net.conv(net.conv(value, channels, 1), channels, 3, stride, groups=channels // 8)
            deep = net.conv(net.squeeze(deep, value.channels // 4), channels, 1, act="")
            value = net.add(deep, value if part else net.conv(value, channels, 1, 2, act=""), act="relu")
    return net.classify(value)


def resnet(net: Layers, counts: tuple[int, ...], *, is_bottleneck: bool) -> Value:
    """Add a ResNet (He et al., table 1)."""
    value = net.pool(net.conv(net.input, 64, 7, 2), pad=1)
    for channels, count in zip((64, 128, 256, 512), counts, strict=True):
        for part in range(count):
            stride, outputs = 2 if part == 0 and channels > 64 else 1, channels * (4 if is_bottleneck else 1)
            if is_bottleneck:
                deep = net.conv(net.conv(net.conv(value, channels, 1), channels, 3, stride), outputs, 1, act="")
            else:
                deep = net.conv(net.conv(value, channels, 3, stride), channels, act="")
            short = value if value.channels == outputs and stride == 1 else net.conv(value, outputs, 1, stride, act="")
            value = net.add(deep, short, act="relu")
    return net.classify(value)


def fire(net: Layers, value: Value, squeeze: int, expand: int) -> Value:
    """Add SqueezeNet's module."""
    value = net.conv(value, squeeze, 1)
    return net.cat(net.conv(value, expand, 1), net.conv(value, expand, 3))


def squeezenet_maps(net: Layers) -> list[Value]:
    """Return the maps in front of a pooling, and the last (SqueezeNet 1.1)."""
    value = net.conv(net.input, 64, 3, 2, pad=0)
    maps: list[Value] = []
    for squeeze in (16, 16, 32, 32, 48, 48, 64, 64):
        if len(maps) < 3 and squeeze != value.channels // 8:
            maps.append(value)
            value = net.pool(value, ceil=True)
        value = fire(net, value, squeeze, squeeze * 4)
    return [*maps, value]


def squeezenet(net: Layers) -> Value:
    """Add SqueezeNet 1.1 (Iandola et al.)."""
    # ncnn's benchmark, of 227 x 227 pixels, has a margin here.
    return net.mean(net.conv(squeezenet_maps(net)[-1], 1000, 1, pad=int(net.input.side[0] == 227)))


def vgg16(net: Layers) -> Value:
    """Add VGG-16."""
    value = net.input
    for channels, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            value = net.conv(value, channels)
        value = net.pool(value, 2)
    return net.dense(net.dense(net.dense(value, 4096, "relu"), 4096, "relu"), 1000)


def alexnet(net: Layers) -> Value:
    """Add AlexNet with its groups, as Caffe has it."""
    value = net.pool(_norm(net, net.conv(net.input, 96, 11, 4, pad=0)))
    value = net.pool(_norm(net, net.conv(value, 256, 5, groups=2)))
    value = net.conv(net.conv(value, 384), 384, groups=2)
    value = net.pool(net.conv(value, 256, groups=2))
    return net.dense(net.dense(net.dense(value, 4096, "relu"), 4096, "relu"), 1000)


def _norm(net: Layers, value: Value) -> Value:
    return net.op("LRN", value, size=5, alpha=1e-4)


def _shuffle(net: Layers, value: Value, groups: int) -> Value:
    side = value.side
    parts = net.reshape(value, groups, value.channels // groups, *side)
    return net.reshape(net.op("Transpose", parts, perm=[0, 2, 1, 3, 4]), value.channels, *side)


def shufflenet(net: Layers) -> Value:
    """Add ShuffleNet of width 1 with 3 groups (Zhang et al., table 1)."""
    value = net.pool(net.conv(net.input, 24, 3, 2), pad=1)
    for channels, count in ((240, 4), (480, 8), (960, 4)):
        for part in range(count):
            groups = 1 if value.channels == 24 else 3
            outputs = channels if part else channels - value.channels
            deep = net.conv(value, channels // 4, 1, groups=groups)
            deep = net.dw(_shuffle(net, deep, 3), 3, 1 if part else 2, act="")
            deep = net.conv(deep, outputs, 1, groups=3, act="")
            short = value if part else net.pool(value, kind="Average", pad=1)
            value = net.add(deep, short, act="relu") if part else net.act(net.cat(short, deep), "relu")
    return net.classify(value)


def shufflenet_v2_maps(net: Layers, act: str = "relu", widths: tuple[int, int, int] = (116, 232, 464)) -> list[Value]:
    """Return the three maps of ShuffleNetV2 (Ma et al., table 5), by default of width 1."""
    value, maps = net.pool(net.conv(net.input, 24, 3, 2, act=act), pad=1), []
    for channels, count in zip(widths, (4, 8, 4), strict=True):
        half = channels // 2
        short = net.conv(net.dw(value, 3, 2, act=""), half, 1, act=act)
        deep = net.conv(net.dw(net.conv(value, half, 1, act=act), 3, 2, act=""), half, 1, act=act)
        for _ in range(count - 1):
            short, deep = net.split(_shuffle(net, net.cat(short, deep), 2), half, half)
            deep = net.conv(net.dw(net.conv(deep, half, 1, act=act), act=""), half, 1, act=act)
        value = _shuffle(net, net.cat(short, deep), 2)
        maps.append(value)
    return maps


def shufflenet_v2(net: Layers) -> Value:
    """Add ShuffleNetV2 of width 1."""
    return net.classify(net.conv(shufflenet_v2_maps(net)[-1], 1024, 1))


def ds_cnn(net: Layers) -> Value:
    """Add the keyword network DS-CNN of MLPerf Tiny (Zhang et al., small)."""
    value = net.conv(net.input, 64, (10, 4), 2)
    for _ in range(4):
        value = net.conv(net.dw(value), 64, 1)
    return net.classify(value, 12)


def densenet121(net: Layers) -> Value:
    """Add DenseNet-121 (Huang et al., table 1); norms in front of convolutions stay."""
    value = net.pool(net.conv(net.input, 64, 7, 2), pad=1)
    for count in (6, 12, 24, 16):
        if value.channels != 64:
            value = net.pool(net.conv(_scaled(net, value), value.channels // 2, 1, act=""), 2, kind="Average")
        for _ in range(count):
            value = net.cat(value, net.conv(net.conv(_scaled(net, value), 128, 1), 32, act=""))
    return net.classify(_scaled(net, value))


def _scaled(net: Layers, value: Value) -> Value:
    return net.act(net.scale(value), "relu")


def attention(net: Layers, value: Value, heads: int) -> Value:
    """Add self-attention over `side[0]` tokens."""
    tokens, width = value.side[0], value.channels
    parts = []
    for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
        part = net.reshape(net.linear(value, width), tokens, heads, width // heads)
        parts.append(net.op("Transpose", part, perm=order))
    query, key, content = parts
    shares = net.op("Softmax", net.op("MatMul", query, key), axis=-1)
    mixed = net.op("Transpose", net.op("MatMul", shares, content), perm=[0, 2, 1, 3])
    return net.linear(net.reshape(mixed, tokens, width)._replace(side=(tokens, 1), channels=width), width)


def encoder(net: Layers, value: Value, count: int, heads: int, *, is_first: bool = False) -> Value:
    """Add transformer layers, with norms in front (ViT) or behind (BERT)."""
    for _ in range(count):
        value = net.add(value, attention(net, net.norm(value) if is_first else value, heads))
        value = value if is_first else net.norm(value)
        wide = net.linear(net.norm(value) if is_first else value, value.channels * 4, "gelu")
        value = net.add(value, net.linear(wide, value.channels))
        value = value if is_first else net.norm(value)
    return net.norm(value) if is_first else value


def vit_b16(net: Layers) -> Value:
    """Add ViT-B/16 (Dosovitskiy et al.), the mean in place of the class token."""
    patches = net.conv(net.input, 768, 16, 16, act="", pad=0)
    tokens = patches.side[0] * patches.side[1]
    value = net.op("Transpose", net.reshape(patches, 768, tokens), perm=[0, 2, 1])._replace(side=(tokens, 1))
    return net.linear(encoder(net, value, 12, 12, is_first=True), 1000)


def bert_base(net: Layers) -> Value:
    """Add BERT's encoder and its ends of answers, behind the embedding (Devlin et al.)."""
    return net.linear(encoder(net, net.input, 12, 12), 2)


def _eights(channels: float) -> int:
    """Return channels as a multiple of 8, at most a tenth fewer."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded
