"""tools/mutants.py: which module is tested by what. (The mutants themselves are made by hand, by ``make mutants``.)"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SPEC = importlib.util.spec_from_file_location("mutants", ROOT / "tools" / "mutants.py")
mutants = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(mutants)


def test_every_module_has_tests_of_its_own():
    modules = mutants.modules([])
    assert len(modules) > 25
    assert [name for name in modules if not (ROOT / "tests" / mutants.tests_of(name)).exists()] == []
    ring = "mxdp/plans/collective/rings.py"
    assert mutants.command("plans/collective/rings.py").endswith(f" {ring} tests/plans/test_rings.py")


def test_a_part_of_the_modules_and_none():
    assert mutants.modules(["plans/collective/r", "scratch"]) == ["plans/collective/rings.py", "scratch.py"]
    with pytest.raises(SystemExit, match="no module begins with 'ring'; there are: plans/"):
        mutants.modules(["ring"])
