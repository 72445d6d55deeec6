"""Runs the experiments of ``faulty`` as the runner's tests do."""

from __future__ import annotations

import psutil

from mxdp.experiments.harness import results, runner


def measure(cls, folder, **changes):
    return runner.run(cls(), "quick", {**cls.presets["quick"], **changes}, folder)


def children():
    """The processes that tests have started, and theirs."""
    return psutil.Process().children(recursive=True)


def lengths(result):
    """How many rounds each case has."""
    return {row.label: len(row.samples) for row in result["rows"]}


def kept(result, folder):
    """Is the file in ``folder`` all of ``result``?"""
    return results.plain(results.read(folder / f"{result['experiment']}.json")) == results.plain(result)
