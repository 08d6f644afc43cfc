"""Observation of a running pipeline: metrics, traces, timelines, a page."""
