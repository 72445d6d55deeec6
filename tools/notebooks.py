"""Write the lessons as executed notebooks: ``python tools/notebooks.py [FOLDER]`` (default: notebooks/).

Each begins with a cell that installs what a hosted machine needs. It needs no network where mxdp is installed already.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
LESSONS = ROOT / "experiments" / "lessons"
SECONDS = 300

SETUP = Path(__file__).with_name("setup_cell.py")


def notebook(lesson: Path) -> nbformat.NotebookNode:
    """The lesson's cells, after the one that sets a machine up."""
    found = jupytext.read(lesson)
    setup = nbformat.v4.new_code_cell(SETUP.read_text(encoding="utf-8").rstrip(), metadata={"tags": ["remove-cell"]})
    found.cells.insert(1, setup)  # the site leaves it out
    found.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return found


def write(folder: Path) -> None:
    """Execute each lesson in a process of its own, and write it beside and renamed.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    for lesson in sorted(LESSONS.glob("*.py")):
        print(lesson.stem, file=sys.stderr)
        found = notebook(lesson)
        NotebookClient(found, timeout=SECONDS, resources={"metadata": {"path": str(folder)}}).execute()
        beside = folder / f".{lesson.stem}.part"
        nbformat.write(found, beside)
        beside.replace(folder / f"{lesson.stem}.ipynb")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "notebooks")
