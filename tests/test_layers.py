"""The house has floors, and a file imports only from floors below its own (or from its own, but on floor 3)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "mxdp"

FLOORS = {
    "mxdp.errors": 0,
    "mxdp.sections": 0,
    "mxdp.plans": 0,
    "mxdp.process": 1,
    "mxdp.cuda": 1,
    "mxdp.compat": 1,
    "mxdp.backend": 1,
    "mxdp.prepared": 1,
    "mxdp.plugin": 1,
    "mxdp.collectives": 2,
    "mxdp.layers": 2,
    "mxdp.scratch": 2,
    "mxdp.curves": 2,
    "mxdp.datasets": 2,
    "mxdp.timing": 2,
    "mxdp.memory": 2,
    "mxdp.parallel": 3,
    "mxdp.tracing": 3,
    "mxdp.training": 4,
    "mxdp.gluon": 4,
    "mxdp.launch": 4,
    "mxdp.experiments": 5,
}
NO_SIBLINGS = 3
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def room(module):
    """``mxdp.plans.partition`` -> ``mxdp.plans``."""
    return ".".join(module.split(".")[:2])


def module_of(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source):
    """Modules that the file imports, anywhere in it. ``from mxdp import x`` counts as ``mxdp.x``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ([f"mxdp.{a.name}" for a in node.names] if node.module == "mxdp" else [node.module])


def violations(module, source):
    here = room(module)
    for name in imports(source):
        if name.split(".")[0] == "mxnet" and module != "mxdp.backend":
            yield f"{module} imports {name}: only mxdp.backend may"
        target = room(name)
        if not name.startswith("mxdp.") or target == here or target not in FLOORS:
            continue
        if FLOORS[target] > FLOORS[here] or FLOORS[target] == FLOORS[here] == NO_SIBLINGS:
            yield f"{module} (floor {FLOORS[here]}) imports {name} (floor {FLOORS[target]})"


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_go_down(path):
    assert room(module_of(path)) in FLOORS, "a new room: give it a floor"
    assert list(violations(module_of(path), path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("path", [p for p in FILES if module_of(p).startswith("mxdp.plans")], ids=module_of)
def test_floor_zero_is_pure_python(path):
    allowed = (
        "__future__",
        "typing",
        "dataclasses",
        "mxdp.plans",
        "mxdp.errors",
        "math",
        "functools",
        "itertools",
        "argparse",
        "sys",
        "difflib",
        "json",
        "rich",  # python -m mxdp.plans prints tables
    )
    assert [name for name in imports(path.read_text(encoding="utf-8")) if not name.startswith(allowed)] == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("mxdp.plans.partition", "from mxdp.backend import np"),
        ("mxdp.timing", "import mxnet"),
        ("mxdp.timing", "def f():\n    from mxnet import np"),
        ("mxdp.collectives.allreduce", "import mxdp.training"),
        ("mxdp.parallel.tile", "from mxdp import tracing"),
    ],
)
def test_a_violation_would_be_found(module, source):
    assert len(list(violations(module, source))) == 1


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_files_are_small_enough_to_read(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300
