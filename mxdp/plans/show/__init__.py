"""Prints plans."""
