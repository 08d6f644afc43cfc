"""Tuning: MetaSchedule's schedules for kernels without rule, stored in a file."""
