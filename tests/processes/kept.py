"""The files in a folder of checkpoints; helpers of the tests in this folder."""

from __future__ import annotations


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def numbered(*numbers):
    return [f"checkpoint-{number:06d}.npz" for number in numbers]
