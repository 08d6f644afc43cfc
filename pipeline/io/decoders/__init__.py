"""Decoders: from a model's outputs to boxes, classes, masks, points and text. One file per family."""
