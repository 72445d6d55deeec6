"""Runs the experiments of ``faulty`` as the runner's tests do."""

from __future__ import annotations

import psutil

from mxdp.experiments.harness import runner


def measure(cls, folder, **changes):
    return runner.run(cls(), "quick", {**cls.presets["quick"], **changes}, folder)


background = []
"""Process numbers of what runs beside the tests."""


def children():
    """The processes that tests have started, and theirs."""
    own = [child for child in psutil.Process().children() if child.pid not in background]
    return own + [each for child in own for each in child.children(recursive=True)]


def lengths(result):
    """How many rounds each case has."""
    return {row["label"]: len(row["seconds"]["samples"]) for row in result["rows"]}
