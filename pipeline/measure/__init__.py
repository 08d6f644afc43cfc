"""Measuring: the times of operators, links and whole models."""
