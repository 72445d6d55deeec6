"""Predictions of the time that a plan takes, made before anything is measured."""
