"""Published networks of Inception's kind (Szegedy et al.), by their papers' tables."""

from __future__ import annotations

from layers import Layers, Value

Steps = tuple[tuple[int, int | tuple[int, int]], ...]
"""Channels and kernel of convolutions in a row."""

_WIDE, _TALL = (1, 7), (7, 1)


def _chain(net: Layers, value: Value, steps: Steps, stride: int = 1, pad: int | None = None) -> Value:
    for number, (channels, kernel) in enumerate(steps, 1):
        is_last = number == len(steps)
        value = net.conv(value, channels, kernel, stride if is_last else 1, pad=pad if is_last else None)
    return value


def _module(net: Layers, value: Value, chains: tuple[Steps, ...], pooled: int = 0, kind: str = "Average") -> Value:
    """Join chains of convolutions and a pooling with its convolution."""
    pooling = net.pool(value, 3, 1, kind=kind, pad=1)
    return net.cat(*(_chain(net, value, chain) for chain in chains), net.conv(pooling, pooled, 1))


def _reduction(net: Layers, value: Value, chains: tuple[Steps, ...], pad: int = 0) -> Value:
    """Join chains whose last convolution halves the size, and a pooling."""
    return net.cat(*(_chain(net, value, chain, 2, pad) for chain in chains), net.pool(value, pad=pad))


_V1 = (
    (64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64), (192, 96, 208, 16, 48, 64), (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64), (112, 144, 288, 32, 64, 64), (256, 160, 320, 32, 128, 128),
    (256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128),
)  # fmt: skip


def inception_v1(net: Layers, *, has_norms: bool = False) -> Value:
    """Add GoogLeNet, with its local norms, or Inception v1 without."""
    value = net.pool(net.conv(net.input, 64, 7, 2), ceil=True)
    value = net.op("LRN", value, size=5, alpha=1e-4) if has_norms else value
    value = net.conv(net.conv(value, 64, 1), 192)
    value = net.op("LRN", value, size=5, alpha=1e-4) if has_norms else value
    value = net.pool(value, ceil=True)
    for number, (one, squeeze3, three, squeeze5, five, pooled) in enumerate(_V1):
        if number in {2, 7}:
            value = net.pool(value, ceil=True)
        chains = (((one, 1),), ((squeeze3, 1), (three, 3)), ((squeeze5, 1), (five, 5 if has_norms else 3)))
        value = _module(net, value, chains, pooled, "Max")
    return net.classify(value)


_V2 = (
    (64, 64, 64, 64, 96, 32), (64, 64, 96, 64, 96, 64), (0, 128, 160, 64, 96, 0), (224, 64, 96, 96, 128, 128),
    (192, 96, 128, 96, 128, 128), (160, 128, 160, 128, 160, 96), (96, 128, 192, 160, 192, 96),
    (0, 128, 192, 192, 256, 0), (352, 192, 320, 160, 224, 128), (352, 192, 320, 192, 224, 128),
)  # fmt: skip


def inception_v2(net: Layers) -> Value:
    """Add Inception v2 (Ioffe and Szegedy, figure 5)."""
    value = net.pool(net.conv(net.conv(net.input, 24, 7, 2, groups=3, act=""), 64, 1), pad=1)
    value = net.pool(net.conv(net.conv(value, 64, 1), 192), pad=1)
    for one, squeeze3, three, squeeze5, five, pooled in _V2:
        chains: tuple[Steps, ...] = (((squeeze3, 1), (three, 3)), ((squeeze5, 1), (five, 3), (five, 3)))
        value = _module(net, value, (((one, 1),), *chains), pooled) if one else _reduction(net, value, chains, 1)
    return net.classify(value)


def inception_v3(net: Layers) -> Value:
    """Add Inception v3 for 299 x 299 pixels."""
    value = net.conv(net.conv(net.conv(net.input, 32, 3, 2, pad=0), 32, pad=0), 64)
    value = net.pool(net.conv(net.conv(net.pool(value), 80, 1), 192, pad=0))
    for pooled in (32, 64, 64):
        value = _module(net, value, (((64, 1),), ((48, 1), (64, 5)), ((64, 1), (96, 3), (96, 3))), pooled)
    value = _reduction(net, value, (((384, 3),), ((64, 1), (96, 3), (96, 3))))
    for width in (128, 160, 160, 192):
        tall: Steps = ((width, 1), (width, _TALL), (width, _WIDE), (width, _TALL), (192, _WIDE))
        value = _module(net, value, (((192, 1),), ((width, 1), (width, _WIDE), (192, _TALL)), tall), 192)
    value = _reduction(net, value, (((192, 1), (320, 3)), ((192, 1), (192, _WIDE), (192, _TALL), (192, 3))))
    for _ in range(2):
        short, long = net.conv(value, 384, 1), net.conv(net.conv(value, 448, 1), 384)
        pooled_value = net.conv(net.pool(value, 3, 1, kind="Average", pad=1), 192, 1)
        forks = [net.conv(part, 384, kernel) for part in (short, long) for kernel in ((1, 3), (3, 1))]
        value = net.cat(net.conv(value, 320, 1), *forks, pooled_value)
    return net.classify(value)


def inception_v4(net: Layers) -> Value:
    """Add Inception v4 for 299 x 299 pixels (figures 3 to 9)."""
    value = net.conv(net.conv(net.conv(net.input, 32, 3, 2, pad=0), 32, pad=0), 64)
    value = net.cat(net.pool(value), net.conv(value, 96, 3, 2, pad=0))
    long = _chain(net, value, ((64, 1), (64, _WIDE), (64, _TALL), (96, 3)), 1, 0)
    value = net.cat(_chain(net, value, ((64, 1), (96, 3)), 1, 0), long)
    value = net.cat(net.conv(value, 192, 3, 2, pad=0), net.pool(value))
    for _ in range(4):
        value = _module(net, value, (((96, 1),), ((64, 1), (96, 3)), ((64, 1), (96, 3), (96, 3))), 96)
    value = _reduction(net, value, (((384, 3),), ((192, 1), (224, 3), (256, 3))))
    for _ in range(7):
        tall = ((192, 1), (192, _WIDE), (224, _TALL), (224, _WIDE), (256, _TALL))
        value = _module(net, value, (((384, 1),), ((192, 1), (224, _WIDE), (256, _TALL)), tall), 128)
    value = _reduction(net, value, (((192, 1), (192, 3)), ((256, 1), (256, _WIDE), (320, _TALL), (320, 3))))
    for _ in range(3):
        short = net.conv(value, 384, 1)
        deep = _chain(net, value, ((384, 1), (448, (1, 3)), (512, (3, 1))))
        forks = [net.conv(part, 256, kernel) for part in (short, deep) for kernel in ((1, 3), (3, 1))]
        pooled = net.conv(net.pool(value, 3, 1, kind="Average", pad=1), 256, 1)
        value = net.cat(net.conv(value, 256, 1), *forks, pooled)
    return net.classify(value)
