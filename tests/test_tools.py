"""All tools: ``--help`` prints what a tool does, and runs nothing."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

TOOLS = Path(__file__).resolve().parents[1] / "tools"
NO_TOOLS = {"setup_cell", "torture_victim"}


@pytest.mark.parametrize("name", sorted({path.stem for path in TOOLS.glob("*.py")} - NO_TOOLS))
def test_help_runs_nothing(name, monkeypatch, capsys):
    for package in ("jupytext", "nbformat", "nbclient", "sphinx.cmd.build"):  # of the extra `pages`
        monkeypatch.setitem(sys.modules, package, MagicMock())
    monkeypatch.syspath_prepend(str(TOOLS))
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--help"])
    monkeypatch.setattr("subprocess.Popen", None)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(TOOLS / f"{name}.py"), run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")
