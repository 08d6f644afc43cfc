"""Stages on other machines: the server there, and its clients here."""
