"""Quantisation: ONNX models in int8 by ONNX Runtime.

Only powers of two are this package's own.
"""
