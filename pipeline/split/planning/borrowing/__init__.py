"""Borrowing: stages that compute some steps on another device."""
