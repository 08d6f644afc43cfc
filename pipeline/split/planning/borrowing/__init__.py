"""Borrowing: stages with steps on other devices."""
