"""Quantisation: an ONNX model with int8 inside, by ONNX Runtime; only powers of two are this package's own."""
