"""Every lesson runs from top to bottom, as a reader would run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LESSONS = sorted((ROOT / "experiments" / "lessons").glob("*.py"))


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_lesson_runs(lesson, tmp_path):
    done = subprocess.run(
        [sys.executable, str(lesson)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "replicas in sync: False" not in done.stdout
    assert done.stdout.count("\n") > 5


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_lesson_defines_nothing(lesson):
    """Lessons call and print; what can be used elsewhere belongs into the package."""
    lines = lesson.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.lstrip().startswith(("def ", "class "))] == []


def test_there_are_lessons():
    assert LESSONS


def test_presets_fit_their_experiments():
    from mxdp.experiments.registry import discover
    from mxdp.experiments.settings import resolve

    known = discover().values()
    for preset in (ROOT / "experiments" / "presets").glob("*.toml"):
        assert resolve(list(known), str(preset), {})[0] == preset.stem
