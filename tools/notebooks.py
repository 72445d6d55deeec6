"""Writes the lessons as executed notebooks (some minutes).

Each begins with a cell that installs what a hosted machine needs. It needs no network where mxdp is installed already.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

from mxdp.files import write_beside

ROOT = Path(__file__).resolve().parents[1]
LESSONS = ROOT / "experiments" / "lessons"
SECONDS = 300


def write(folder: Path) -> None:
    """Execute each lesson in a process of its own, and write it beside and renamed.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    setup = Path(__file__).with_name("setup_cell.py").read_text(encoding="utf-8").rstrip()
    for lesson in sorted(LESSONS.glob("*.py")):
        print(lesson.stem, file=sys.stderr)
        notebook = jupytext.read(lesson)
        # The site leaves this cell out.
        notebook.cells.insert(1, nbformat.v4.new_code_cell(setup, metadata={"tags": ["remove-cell"]}))
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        place = {"metadata": {"path": str(folder)}}
        with tempfile.TemporaryDirectory() as sockets:
            # Files that no other user can read: of ports ipykernel warns, once a lesson.
            by_files = Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}})
            NotebookClient(notebook, timeout=SECONDS, resources=place, config=by_files).execute()
        write_beside(folder / f"{lesson.stem}.ipynb", nbformat.writes(notebook))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="make notebooks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "notebooks", help="default: notebooks/")
    write(parser.parse_args().folder)
