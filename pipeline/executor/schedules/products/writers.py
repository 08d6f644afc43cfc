"""Writers of products."""

from __future__ import annotations

from typing import Any

from pipeline.executor.schedules.anchors import Fused
from pipeline.executor.schedules.convolutions import convolution
from pipeline.executor.schedules.language import tir
from pipeline.executor.schedules.machine import Machine
from pipeline.executor.schedules.products.batched import BatchedKernel
from pipeline.executor.schedules.products.products import Product
from pipeline.executor.schedules.tiled.packing import Layout
from pipeline.executor.schedules.writer import Writer, store


def _dense(fused: Fused, form: Layout, machine: Machine, tasks: int) -> Any:
    outer = [int(extent) for extent in fused.target.shape[:-1]]
    joined = fused.pixelwise()

    def stored(total: Any, _image: Any, row: Any, _w: Any, c: Any) -> Any:
        # Rows lie side by side, so that counting on beyond an axis' end finds the next ones.
        places = [tir.number(0)] * (len(outer) - 1) + [row] if joined else tir.places(row, outer)
        indices = (*places, c)
        return tir.store(fused.target, fused.value(total, indices), *indices)

    data, weights = fused.operands
    return convolution.Kernel(form, machine, data, weights, convolution.Results(stored), tasks).statement()


def _product(fused: Fused, form: Product, machine: Machine, tasks: int) -> Any:
    left, right = fused.operands
    return BatchedKernel(form, machine, left, right, store(fused), tasks).statement()


WRITERS = {"dense": Writer(Layout, _dense), "product": Writer(Product, _product)}
