"""Builds the site: pages, executed lessons, results, plans that move, API (some minutes).

Sphinx wants its pages in one folder, and GitHub wants links that work in the repository. So the pages are copied to
``build/site``, with links to each other changed, and what else they link is copied beside them.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Dict

import live
from notebooks import LESSONS, ROOT, write
from tables import MACHINES

try:
    from sphinx.cmd.build import build_main
except ImportError:
    sys.exit("make site needs Python 3.9 or newer, for Sphinx 7: make site PYTHON=python3.11 VENV=.venv-site")

from mxdp.errors import MxdpError
from mxdp.experiments.show import page
from mxdp.experiments.show.together import release
from mxdp.plans.__main__ import main as plans

STAGE = ROOT / "build" / "site"
FILES = STAGE / "extra" / "files"
PAGES: Dict[Path, str] = {
    ROOT / "README.md": "index.md",
    ROOT / "experiments" / "README.md": "results.md",
    ROOT / "CONTRIBUTING.md": "contributing.md",
    ROOT / "CHANGELOG.md": "changelog.md",
    **{file: f"{file.stem}.md" for file in sorted(ROOT.glob("docs/*.md"))},
    ROOT / "docs" / "for-lecturers" / "README.md": "for-lecturers/index.md",
    ROOT / "docs" / "for-lecturers" / "answers.md": "for-lecturers/answers.md",
    **{lesson: f"lessons/{lesson.stem}.ipynb" for lesson in sorted(LESSONS.glob("*.py"))},
}
MOVING = ("naive 4", "ring 4", "tree 4", "shared-memory 4", "gpipe 4", "1f1b 4", "tiles 4", "fully-sharded 4")
CONFIGURATION = """
project, author, html_title = "mxdp", "the mxdp authors", "mxdp"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_extra_path = ["extra"]
html_static_path, html_css_files = ["static"], ["look.css"]
myst_heading_anchors = 4
nb_execution_mode = "off"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
"""
API = """
API
===

mxdp
----
.. automodule:: mxdp
   :members:

mxdp.tracing
------------
.. automodule:: mxdp.tracing
   :members:
"""
"""All public names, by their docstrings."""
LOOK = """
.main .content { width: 56em; max-width: 100%; }  /* a line of code of 115 letters is whole from 1280 pixels on */
.highlight pre { font-size: .76em; }
iframe { width: 100%; height: 34rem; border: 0; }
@media (max-width: 40rem) { iframe { height: 46rem; } }
/* Four columns scroll on a phone: squeezed, their rows would be a screen high. */
@media (max-width: 64rem) { table:has(th:nth-child(4)) { min-width: 56rem; } }
"""
LIVE = """# Without MXNet

<a href="live/index.html">This page</a> shows plans, costs and memory, live in the browser: nothing has to be installed.
"""
TREES = {
    "Read": "install pieces book your-own move-a-loop gluon checkpoints several-processes silent-bugs experiments "
    "predict gpus messages support editions",
    "Teach": "for-lecturers/index for-lecturers/answers exercises plans lessons/*",
    "Look up": "results api mxnet contributing changelog",
}
"""The menu of the site: caption, and pages in their order."""


def copied(file: Path, copy: Path) -> Path:
    """Copy the file, and return where the copy is."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(file, copy))


def rewritten(text: str, source: Path) -> str:
    """Links of the page ``source`` as they must be on the site."""
    here = Path(PAGES[source]).parent

    def new(target: str) -> str:
        file = (source.parent / target).resolve()
        if file in PAGES:
            return os.path.relpath(PAGES[file], here)
        if not file.is_file():
            return ""
        copy = copied(file, FILES / file.relative_to(ROOT))
        return os.path.relpath(copy.relative_to(STAGE / "extra"), here)

    def link(match: re.Match[str]) -> str:
        words, target, anchor = match.groups()
        if re.match(r"\w+:", target):
            return match[0]
        place = new(target)
        if not place:
            return words  # a folder
        if place.endswith((".md", ".ipynb")) and (source.parent / target).resolve() in PAGES:
            return f"[{words}]({place}{anchor or ''})"
        return f'<a href="{place}">{words}</a>'

    text = re.sub(r'src="([^"]*)"', lambda match: f'src="{new(match[1])}"', text)
    return re.sub(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)", link, text)


def stage() -> None:
    """Write everything that Sphinx reads."""
    shutil.rmtree(STAGE, ignore_errors=True)
    (STAGE / "for-lecturers").mkdir(parents=True)
    write(STAGE / "lessons")
    for source, place in PAGES.items():
        if source.suffix == ".md":
            (STAGE / place).write_text(rewritten(source.read_text(encoding="utf-8"), source), encoding="utf-8")
    (STAGE / "conf.py").write_text(CONFIGURATION)
    (STAGE / "static").mkdir()
    (STAGE / "static" / "look.css").write_text(LOOK)
    (STAGE / "api.rst").write_text(API)
    trees = dict(TREES)
    try:
        live.build(STAGE / "extra" / "live", measured="../results.html")
        (STAGE / "without-mxnet.md").write_text(LIVE)
        trees["Teach"] += " without-mxnet"
    except MxdpError as error:
        print(f"mxdp: the site gets no page without MXNet (live/): {error}", file=sys.stderr)
    with open(STAGE / "index.md", "a", encoding="utf-8") as index:
        for caption, pages in trees.items():
            lines = ["", "```{toctree}", ":hidden:", ":glob:", f":caption: {caption}", "", *pages.split(), "```", ""]
            index.write("\n".join(lines))
    text = "# Plans that move\n\nArrow keys step, space plays. `python -m mxdp.plans NAME --html` makes any other.\n"
    for plan in MOVING:
        file = f"files/plans/{plan.replace(' ', '-')}.html"
        plans([*plan.split(), "--html", str(STAGE / "extra" / file)])
        text += f'\n<h2><a href="{file}">{plan}</a></h2>\n'
        text += f'<iframe src="{file}" title="{plan}"></iframe>\n'
    (STAGE / "plans.md").write_text(text)
    results = FILES / "results"  # a copy, since a report draws its pictures beside the numbers
    for machine in MACHINES:
        for run in release(machine).glob("*/[0-9]*.json"):
            copied(run, results / run.parent.name / run.name)
    page.write_report(results, across_commits=True)


def accessible(folder: Path) -> None:
    """Mend what axe calls serious in the theme: headings without a level, and text that scrolls but takes no key."""
    for file in folder.rglob("*.html"):
        text = file.read_text(encoding="utf-8")
        text = text.replace('role="heading"', 'role="heading" aria-level="2"')
        text = text.replace("<pre>", '<pre tabindex="0">').replace(
            '<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'
        )
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="make site", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "site", help="default: site/")
    target = parser.parse_args().folder
    stage()
    status = build_main(["-W", "--keep-going", "-q", str(STAGE), str(target)])
    shutil.rmtree(target.parent / "jupyter_execute", ignore_errors=True)  # copies of the notebooks, by myst_nb
    accessible(target)
    sys.exit(status)
