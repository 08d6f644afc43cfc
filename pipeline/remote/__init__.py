"""Stages on other machines: the server there, and the connection to it from here."""
