"""Needs: what drivers, accelerators and systems need, with the sources of each fact.

``pipeline/doctor/need.py`` says what the keys of these files mean.
"""
