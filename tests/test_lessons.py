"""Every lesson runs from top to bottom, as a reader would run it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mxdp import evaluate, get_params, init_lenet
from mxdp.backend import devices
from mxdp.datasets import load
from mxdp.datasets.minibatches import Stream
from mxdp.experiments.lab.module import discover
from mxdp.experiments.lab.settings import resolve
from mxdp.training import TrainStep, train_steps

ROOT = Path(__file__).parents[1]
LESSONS = sorted((ROOT / "experiments" / "lessons").glob("*.py"))


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_lesson_runs_and_leaves_nothing_behind(lesson, tmp_path, tmp_path_factory):
    temporary = tmp_path_factory.mktemp("temporary")
    script = temporary / lesson.name
    script.write_text(lesson.read_text(encoding="utf-8").replace("batch_size=16", "batch_size=128"), encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "replicas in sync: False" not in done.stdout
    assert done.stdout.count("\n") > 5
    assert list(tmp_path.iterdir()) == []
    for trace in re.findall(r"open (\S+) in ui.perfetto.dev", done.stdout):
        assert json.loads(Path(trace).read_text(encoding="utf-8"))["traceEvents"]


def test_lessons_are_short_and_ask_and_define_nothing():
    """Lessons call and print; what can be used elsewhere belongs into the package."""
    assert LESSONS
    for lesson in LESSONS:
        text = lesson.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 120, lesson
        assert text.count("?") >= 4 or lesson.stem == "11_twins", lesson
        assert not re.findall(r"^ *(?:def|class) ", text, re.MULTILINE), lesson


def test_every_question_has_an_answer():
    """As many as each lesson asks at its end, under the lesson's title."""
    page = (ROOT / "docs" / "for-lecturers" / "answers.md").read_text(encoding="utf-8")
    answers = dict(re.findall(r"^## (\d+)\. .*?\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    for lesson in LESSONS:
        asked = lesson.read_text(encoding="utf-8").partition("# ## Questions")[2]
        numbers = re.findall(r"^# (\d)\. ", asked, re.MULTILINE)
        assert numbers == re.findall(r"^\*\*(\d)\. ", answers[str(int(lesson.stem[:2]))], re.MULTILINE), lesson


def test_presets_fit_their_experiments_and_that_for_classes_trains():
    for preset in (ROOT / "experiments" / "presets").glob("*.toml"):
        assert resolve(list(discover().values()), str(preset), {})[0] == preset.stem
    preset = ROOT / "experiments" / "presets" / "classroom.toml"
    sizes = resolve([discover()["epochs"]], str(preset), {})[1]["epochs"]
    data, here = load(sizes["data"], seed=sizes["seed"]), devices(1, "cpu")
    replicas = [get_params(init_lenet(sizes["seed"]), here[0])]  # another number of devices gives the same accuracy
    stream, step = Stream(data.train, sizes["batch_size"], sizes["seed"]), TrainStep(replicas, here, sizes["lr"])
    for _ in range(sizes["processes"] * sizes["rounds"]):
        train_steps(stream.take(sizes["samples"]), step)
        if evaluate(data.test, replicas) > 0.9:  # the rounds after it are only for the clock
            return
    pytest.fail("it did not learn")
