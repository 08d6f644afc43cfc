"""Tuning: schedules that TVM's MetaSchedule finds for kernels that no rule writes, kept in a file of our own."""
