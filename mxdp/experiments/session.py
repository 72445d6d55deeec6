"""Several experiments one after the other, with a progress bar, a table for each, and the report at the end."""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Callable, Dict, Iterator, Mapping, Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from mxdp import datasets
from mxdp.errors import UsageError, described
from mxdp.experiments.harness import disturbance, runner
from mxdp.experiments.harness.experiment import Experiment, Settings
from mxdp.experiments.harness.results import plain
from mxdp.experiments.report import page


def run(
    experiments: Sequence[Experiment],
    preset: str,
    settings: Dict[str, Settings],
    folder: Path,
    as_json: bool,
    explain: bool = False,
    guesses: Mapping[str, str] = MappingProxyType({}),
) -> bool:
    """Run ``experiments`` one after the other; True if each was measured, met its oracle and was shown, or was skipped.

    If one fails, the others go on. ``guesses``: what the reader expects, by name. Prints tables (or JSON) to stdout and
    progress to stderr. A ``KeyboardInterrupt`` is raised again after the results so far were written and reported.
    """
    console, results = Console(), []
    columns = TextColumn("{task.description}"), BarColumn(bar_width=20), TaskProgressColumn(), TimeElapsedColumn()
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    well = True
    _make(folder)
    try:
        with progress:
            progress.console.print(disturbance.now(), markup=False)
            # A problem with the data must show before anything is measured.
            for each in settings.values():
                _find_data(each, progress)
            for experiment in experiments:
                try:
                    name = experiment.name
                    with _task(progress, name, f"{name}: ") as step:
                        results.append(runner.run(experiment, preset, settings[name], folder, step))
                    if not as_json:
                        terminal = progress.console if progress.console.is_terminal else console
                        page.print_result(results[-1], terminal, explain, guesses.get(name, ""))
                except UsageError:
                    raise
                except Exception as error:  # a defect of this experiment must not cost the others
                    well = _complain(f"{experiment.name}: {type(error).__name__}: {error}")
    finally:
        # An exception in here would replace a KeyboardInterrupt.
        if any(folder.glob("*.json")):
            try:
                path = page.write_report(folder)
                if not as_json:
                    console.print(f"Report: {path}", soft_wrap=True)
            except Exception as error:
                well = _complain(f"there is no report: {described(error)}")
    if as_json:
        print(json.dumps(plain(results), indent=2))
    return well and all(result["status"] in ("ok", "skipped") and not result["oracle"]["wrong"] for result in results)


def _complain(sentence: str) -> bool:
    """Say on stderr what went wrong; False."""
    print(f"mxdp: {sentence}", file=sys.stderr)
    return False


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UsageError(
            f"can't write results to the folder {folder}: {error.strerror}; name another with --out"
        ) from error


@contextmanager
def _task(progress: Progress, name: str, before: str = "") -> Iterator[Callable[[str, int, int], None]]:
    """A line of the progress bar; yields what updates it: what is done (after ``before``), how much of how much."""
    task = progress.add_task(name, total=None)
    try:
        yield lambda doing, done, total: progress.update(
            task, description=f"{before}{doing}", completed=done, total=total
        )
    finally:
        progress.remove_task(task)


def _find_data(settings: Settings, progress: Progress) -> None:
    """Find (or download) the data before any child needs it; the children load what was found."""
    if "data" not in settings:
        return
    say = partial(progress.console.print, markup=False)
    try:
        with _task(progress, "looking for data") as downloading:
            found = datasets.load(settings["data"], settings["data_dir"], settings["seed"], say, downloading)
    except ValueError as error:
        raise UsageError(str(error)) from error
    settings["data"] = found.name
