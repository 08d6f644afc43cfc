"""Prediction: seconds and joules of a plan."""
