"""Several questions one after the other: a table that fills as processes end, an answer, a report at the end."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from types import MappingProxyType
from typing import Any, Dict, Mapping, Optional, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from mxdp import datasets
from mxdp.errors import UsageError, described
from mxdp.experiments.lab import provenance, run
from mxdp.experiments.lab.module import Question, Settings
from mxdp.experiments.show import page, terminal
from mxdp.experiments.show.words import duration


def ask(
    questions: Sequence[Question],
    preset: str,
    settings: Dict[str, Settings],
    folder: Path,
    as_json: bool = False,
    why: bool = False,
    guesses: Mapping[str, str] = MappingProxyType({}),
) -> bool:
    """Measure these one after the other; True if each met its oracle and was shown, or was skipped.

    If one fails, the others go on. ``guesses``: what the reader expects, by name. Prints tables (or JSON) to stdout and
    progress to stderr. A ``KeyboardInterrupt`` is raised again after the results so far were written and reported.
    """
    console, results, well = Console(), [], True
    make_folder(folder)
    try:
        with View() as view:
            view.say(provenance.busy_now())
            # A problem with the data must show before anything is measured.
            for chosen in settings.values():
                find_data(chosen, view)
            for question in questions:
                try:
                    seconds = about_seconds(question.name, preset, settings[question.name]["processes"])
                    view.say(f"{question.name}: about {duration(seconds)}" if seconds else question.name)
                    view.begin(question.name)
                    results.append(run.run(question, preset, settings[question.name], folder, view.progress))
                    view.begin("")
                    if not as_json:
                        terminal.print_result([results[-1]], console, why, guesses.get(question.name, ""))
                except UsageError:
                    raise
                except Exception as error:  # a defect of this question must not cost the others
                    well = _complain(f"{question.name}: {type(error).__name__}: {error}")
    finally:
        # An exception in here would replace a KeyboardInterrupt.
        if any(folder.glob("*/*.json")):
            try:
                path = page.write_report(folder)
                if not as_json:
                    console.print(f"Report: {path}", soft_wrap=True)
            except Exception as error:
                well = _complain(f"there is no report: {described(error)}")
    if as_json:
        print(json.dumps(results, indent=2))
    return well and all(one["status"] in ("ok", "skipped") and not one["oracle"]["wrong"] for one in results)


class View:
    """What a terminal shows while something is measured: the table so far, and a bar. It is gone when it ends."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        columns = TextColumn("{task.description}"), BarColumn(bar_width=20), TaskProgressColumn(), TimeElapsedColumn()
        self._bar = Progress(*columns)
        self._task = self._bar.add_task("", total=None)
        self._live = Live(self._bar, console=self.console, transient=True)
        self._begun = 0.0

    def __enter__(self) -> View:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """Print a line above it."""
        self.console.print(text, markup=False, highlight=False)

    def begin(self, what: str) -> None:
        """Something else is measured now."""
        self._begun = time.monotonic()
        self._bar.reset(self._task, description=what, total=None)
        self._live.update(self._bar)

    def progress(self, doing: str, done: int, total: int, result: Optional[Mapping[str, Any]] = None) -> None:
        """What is done, how much of how much, and what was measured so far."""
        if result and done < total:
            doing += f", about {duration((time.monotonic() - self._begun) / done * (total - done))} more"
            self._live.update(Group(terminal.live(result, self.console.width), self._bar))
        self._bar.update(self._task, description=doing, completed=done, total=total)


def about_seconds(name: str, preset: str, processes: int) -> Optional[float]:
    """How long that question takes, if it was measured with this preset (``reference.json``, for one process)."""
    known = json.loads(Path(__file__).with_name("reference.json").read_text(encoding="utf-8"))
    seconds = known["seconds"].get(preset, {}).get(name)
    return None if seconds is None else float(seconds) * processes


def find_data(s: Settings, view: View) -> None:
    """Find (or download) the data before any process needs it; all load what was found.

    Raises:
        UsageError: there are none of that name.
    """
    if "data" not in s:
        return
    try:
        data = datasets.load(s["data"], s["data_dir"], s["seed"], view.say, view.progress)
    except ValueError as error:
        raise UsageError(str(error)) from error
    s["data"] = data.name


def _complain(sentence: str) -> bool:
    """Say on stderr what went wrong; False."""
    print(f"mxdp: {sentence}", file=sys.stderr)
    return False


def make_folder(folder: Path) -> None:
    """Make it, and see that files can be written there.

    Raises:
        UsageError: they can't.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UsageError(
            f"can't write results to the folder {folder}: {error.strerror}; name another with --out"
        ) from error
