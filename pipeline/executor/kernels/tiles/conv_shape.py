"""Shape of an NHWC convolution, pooling window, or matrix product."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class ConvShape:
    """Shape of one convolution or pooling window in NHWC."""

    batch: int
    height: int
    width: int
    channels: int
    """Extents of the data."""
    out_height: int
    out_width: int
    out_channels: int
    """Extents of the result."""
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    pads: tuple[int, int, int, int]
    """Top, left, bottom, right."""
    groups: int = 1

    @property
    def depth(self) -> int:
        """Input channels of one group."""
        return self.channels // self.groups

    @property
    def group_outputs(self) -> int:
        """Output channels of one group."""
        return self.out_channels // self.groups

    @property
    def result(self) -> tuple[int, int, int, int]:
        """Shape of the result."""
        return self.batch, self.out_height, self.out_width, self.out_channels

    @property
    def terms(self) -> int:
        """Products in the sum of one output element."""
        return self.kernel[0] * self.kernel[1] * self.depth

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * self.batch * self.out_height * self.out_width * self.out_channels * self.terms

    @property
    def window_operations(self) -> int:
        """Operations with one input channel per output channel."""
        # `operations` counts all input channels for each output.
        return self.operations // self.channels

    @property
    def padded(self) -> bool:
        """True if the window leaves the data."""
        # Windows that were rounded up may reach beyond the padding as well.
        return any(self.pads) or any(
            self.reach(axis, outputs) > inputs
            for axis, outputs, inputs in ((0, self.out_height, self.height), (1, self.out_width, self.width))
        )

    @property
    def pointwise(self) -> bool:
        """True if every pixel depends on the same pixel only."""
        return self.kernel == (1, 1) and self.strides == (1, 1) and not any(self.pads)

    def flatten(self) -> ConvShape:
        """Return a pointwise window with all batch pixels in one column."""
        # It sees no neighbours: tiles need not end with the lines of an image, and fewer of them are cut off.
        pixels = self.batch * self.height * self.width
        return replace(self, batch=1, height=pixels, out_height=pixels, width=1, out_width=1)

    def reach(self, axis: int, outputs: int) -> int:
        """Count the inputs under `outputs` adjacent outputs along an axis."""
        return (outputs - 1) * self.strides[axis] + (self.kernel[axis] - 1) * self.dilation[axis] + 1
