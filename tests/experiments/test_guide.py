"""CONTRIBUTING's guides to a new experiment and a new all-reduce, followed to the letter."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import test_layers

import mxdp
from mxdp.backend import np
from mxdp.plans.collective.algorithms import ALGORITHMS

ROOT = Path(__file__).parents[2]


def test_the_question_of_the_guide_is_measured_drawn_and_reported(tmp_path, monkeypatch):
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n# batch_size\.py\n(.*?)```", text, re.S)
    assert len(code.splitlines()) <= 60
    # Under another name: a reader may have put it into a room.
    file = tmp_path / "size_of_a_batch.py"
    file.write_text(code, encoding="utf-8")
    monkeypatch.setattr(test_layers, "PACKAGE", tmp_path)
    monkeypatch.setattr(test_layers, "FILES", [file])
    test_layers.test_a_line_holds_one_idea()
    test_layers.test_unrelated_values_are_not_assigned_at_once()
    for command in (["format", "--check"], ["check"]) if find_spec("ruff") else ():
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", f"mxdp/experiments/twins/{file.name}", "-"]
        assert subprocess.run(ruff, cwd=ROOT, input=code, text=True).returncode == 0
    (tmp_path / "little.toml").write_text("[size-of-a-batch]\nsizes = [16, 64]\nsamples = 256\nprocesses = 1\n")
    (command,) = re.findall(r"MXDP_EXPERIMENTS=batch_size python (-m mxdp.experiments run batch-size)", text)
    command = f"{command} --preset little.toml --out out".replace("batch-size", "size-of-a-batch")
    done = subprocess.run(
        [sys.executable, *command.split()],
        cwd=tmp_path,
        env={**os.environ, "MXDP_EXPERIMENTS": "size_of_a_batch"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert "equal to the serial run" in " ".join(done.stdout.split())
    assert re.search(r"batch 64 +[\d,]+ +\d\.\d\d", done.stdout)
    assert (tmp_path / "out" / "size-of-a-batch.svg").stat().st_size > 1000
    assert "Training with a batch of 64 " in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_the_all_reduce_of_the_guide_is_a_plan_that_sums(monkeypatch, capsys):
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    ((code, said),) = re.findall(r"```python\n(# mxdp/plans/collective/.*?)```\n\n```text\n(.*?)```", text, re.S)
    exec(code, names := {"__name__": "star"})
    assert capsys.readouterr().out == said
    monkeypatch.setitem(ALGORITHMS, "star", names["star"])
    data = [np.arange(5, ctx=device) + 10 * number for number, device in enumerate(mxdp.devices(3, "cpu"))]
    mxdp.allreduce(data, "star")
    assert [x.tolist() for x in data] == [[30.0, 33.0, 36.0, 39.0, 42.0]] * 3


def test_the_walks_name_files_functions_and_calls_that_are_there():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("run epochs`, read six files")[2]
    first, others = text.partition("## Rules")[0].split("Other walks")
    hops = re.findall(r"^\| `(\S+\.py)` \| `(\w+)`.*? \| .*?`(.*?)`", first, re.M)
    hops = [(f"mxdp/experiments/{file}", f"`{function}`", call) for file, function, call in hops]
    hops += re.findall(r"`(\S+\.py)` \((.*?)\)()", others)
    hops += re.findall(r"^\| `(\S+\.py)` \| (`.*?) \|()", others, re.M)
    assert len(hops) == 6 + 7 + 4 + 8
    for file, functions, call in hops:
        code = (ROOT / file).read_text(encoding="utf-8")
        assert set(re.findall(r"`(\w+)`", functions)) <= set(re.findall(r"^ *def (\w+)\(", code, re.M)), file
        assert call in code
