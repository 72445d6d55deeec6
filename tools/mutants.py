"""Measures how much the tests notice: changes the code at one place at a time, and runs the changed module's tests.

    make mutants                                    240 changes, as many in each room below
    make mutants ARGS="plans/cost --sample 0"      all changes of one module; a folder stands for all in it
    make mutants ARGS="collectives --sample 50 --seed 3"

cosmic-ray makes the changes ("mutants"), in copies of the checkout, one for each that is tested at once. A mutant is
killed if a test fails, or does not end within five times the usual time. The score is the share that is killed. 1.0 is
out of reach, since some changes change nothing, and since only the module's doctests and at most six files of tests are
run (and what the catalogue has of a question, or of those that import the module): the whole suite would kill more.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from itertools import chain, groupby, zip_longest
from pathlib import Path
from typing import Any, Dict, List, Set, Tuple

import psutil

ROOT = Path(__file__).resolve().parents[1]
QUESTIONS = tuple(
    f"experiments/{folder}"
    for folder in ("data_parallel", "allreduce", "automatic_parallelism", "other_splits", "many_processes")
)
ROOMS = {
    "scratch": ("scratch.py",),
    "collectives": ("collectives",),
    "training": ("training",),
    "gluon": ("gluon",),
    "processes": ("processes",),
    "parallel": ("parallel",),
    "plans": ("plans",),
    "lab": ("experiments/lab",),
    "oracle": ("experiments/oracle.py",),
    "launch": ("launch",),
    "tracing": ("tracing",),
    "datasets": ("datasets",),
    "exercises": ("exercises",),
    "show": ("experiments/show",),
    "predict": ("experiments/predict",),
    "questions": QUESTIONS,
    "ground": ("backend.py", "curves.py", "engine.py", "errors.py", "files.py", "memory.py", "process.py", "timing.py"),
}
"""Of each, the files and folders of ``mxdp`` that are its."""
MOST_FILES = 6
"""Of tests that are run for one change."""
SAMPLE = 240
SAME = re.compile(r"ReplaceComparisonOperator_(Eq_Is|NotEq_IsNot|Is_Eq|IsNot_NotEq)$")
"""Operators of cosmic-ray that are left out: of ``None``, small numbers and a module's own names, ``is`` says what
``==`` does, so that most of their changes change nothing."""
LONGER, SPARE_SECONDS, MOST_SECONDS = 5, 20, 600
WHOLE, PART = "*whole", "*part"
MARK = "MXDP_MUTANTS"
"""A variable of the processes that the tests start: the copy to which they belong."""


def modules(wanted: List[str]) -> List[str]:
    """The modules of ``ROOMS`` whose path in ``mxdp`` begins with one of ``wanted``, or whose room is one of them; all
    if none is named. A folder's ``__init__.py`` is not changed."""
    wanted = [place for name in wanted for place in ROOMS.get(name, (name,))]
    places = [ROOT / "mxdp" / place for room in ROOMS.values() for place in room]
    paths = [path for place in places for path in (sorted(place.rglob("*.py")) if place.is_dir() else [place])]
    names = [path.relative_to(ROOT / "mxdp").as_posix() for path in paths if path.name != "__init__.py"]
    for start in wanted:
        if not any(name.startswith(start) for name in names):
            sys.exit(f"mutants: no module begins with {start!r}; there are: {', '.join(names)}")
    return [name for name in names if not wanted or name.startswith(tuple(wanted))]


def room_of(module: str) -> str:
    """The one of ``ROOMS`` that holds the module."""
    (room,) = (
        name for name, places in ROOMS.items() for place in places if module == place or module.startswith(f"{place}/")
    )
    return room


def module_of(mutant: Any) -> str:
    """Its path in ``mxdp``."""
    return Path(mutant.module_path).relative_to("mxdp").as_posix()


def tests_of(module: str) -> List[str]:
    """The module's tests, relative to the checkout, ``MOST_FILES`` at most. ``test_<module>.py`` comes first,
    then those that import it, or what a package above it imports of it: first those in the room's folder of ``tests``,
    then those that import the least else. Where there are fewer, the room's others follow."""
    known = names_of(module)
    name = Path(module).stem
    room = ROOT / "tests" / module.partition("/")[0].partition(".")[0]
    ranks = {}
    for file in (ROOT / "tests").rglob("test_*.py"):
        if file.stem == "test_catalog":
            continue  # it takes minutes: a question's part of it is run apart
        imported = imports(file)
        of_room = room in file.parents
        of_module = bool(imported & known)
        own = file.stem == f"test_{name}" and (of_room or of_module)
        if own or of_module or (of_room and room.name != "experiments"):
            ranks[file] = (not own, not of_module, not of_room, len(imported), file)
    files = sorted(ranks, key=lambda file: ranks[file])
    return [file.relative_to(ROOT).as_posix() for file in files[:MOST_FILES]]


def names_of(module: str) -> Set[Tuple[str, str]]:
    """What ``imports`` may find where the module, or something of it, is imported."""
    dotted = f"mxdp.{module[:-3].replace('/', '.')}"
    package, _, name = dotted.rpartition(".")
    known = {(dotted, WHOLE), (dotted, PART), (package, name)}
    while package != "mxdp":
        shown = imports(ROOT / package.replace(".", "/") / "__init__.py")
        names = {one for source, one in shown if source == dotted and one != PART}
        if names:
            names.add(WHOLE)
        known |= {(package, one) for one in names}
        package = package.rpartition(".")[0]
    return known


def asked_of(module: str) -> List[str]:
    """The question that a module of a question's room is, or else those that import it, as the catalogue names them."""
    if not module.startswith(QUESTIONS):
        return []
    known = names_of(module)
    found = {}
    for name in modules(["questions"]):
        path = ROOT / "mxdp" / name
        if "\ndef tell(" in path.read_text(encoding="utf-8") and (name == module or imports(path) & known):
            found[name] = path.stem.replace("_", "-")
    return [found[module]] if module in found else [*found.values()]


@lru_cache(maxsize=None)
def imports(file: Path) -> Set[Tuple[str, str]]:
    """For each import in a file the module and ``WHOLE``, or a name that is imported of it, and ``PART``. Words of a
    comment count, too."""
    text = file.read_text(encoding="utf-8")
    found: Set[Tuple[str, str]] = set()
    for line in re.findall(r"^# (mxdp[\w.]* import .*)", text, re.MULTILINE):
        text += f"\nfrom {line}"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {(node.module, alias.name) for alias in node.names} | {(node.module, PART)}
        elif isinstance(node, ast.Import):
            found |= {(alias.name, WHOLE) for alias in node.names}
    return found


def drawn(mutants: List[Any], sample: int, seed: int) -> List[Any]:
    """``sample`` of the mutants, as many of each room; where a room has fewer, more of the others. 0: all."""
    rooms: Dict[str, List[Any]] = defaultdict(list)
    for mutant in random.Random(seed).sample(mutants, len(mutants)):
        rooms[room_of(module_of(mutant))].append(mutant)
    turns = zip_longest(*rooms.values())  # one of each room, then one more of each that has one
    return [mutant for turn in turns for mutant in turn if mutant][: sample or None]


def settle(folder: str) -> None:
    """Give this process a copy of the checkout in ``folder``."""
    copy = Path(tempfile.mkdtemp(dir=folder)) / "mxdp"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "runs", "build", "__pycache__"))
    (copy / ".git").symlink_to(ROOT / ".git")  # tests of results look into the history
    os.chdir(copy)
    os.environ.update({"PYTHONPATH": str(copy), "MXDP_OFFLINE": "1", MARK: str(copy)})


def survives(module: str, mutants: List[Any], limit: float) -> Tuple[bool, str]:
    """Run the module's tests and doctests with these mutants, until one fails: True if none does, and the difference
    of the code, or else the output."""
    from cosmic_ray.mutating import mutate_and_test
    from cosmic_ray.work_item import TestOutcome

    pytest = f"{sys.executable} -m pytest -x -q -n 0 -p no:cacheprovider --hypothesis-seed=0"
    commands = [f"{pytest} mxdp/{module} {' '.join(tests_of(module))}"]
    if asked_of(module):
        commands.append(f"{pytest} tests/experiments/test_catalog.py -k '{' or '.join(asked_of(module))}'")
    try:
        for command in commands:
            result = mutate_and_test(mutants, command, limit)
            if result.test_outcome is not TestOutcome.SURVIVED:
                break
    finally:  # kill what the tests have left behind, in whatever session or process group
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(MARK) == os.environ[MARK]:
                    process.kill()
    return result.test_outcome is TestOutcome.SURVIVED, result.diff or result.output or ""


def limit_of(module: str) -> float:
    """Seconds that the module's tests may take, from a run without a change. Ends with an error if one fails."""
    began = time.monotonic()
    passed, output = survives(module, [], MOST_SECONDS)
    if not passed:
        raise RuntimeError(f"mutants: the tests of mxdp/{module} fail without any change:\n{output}")
    return LONGER * (time.monotonic() - began) + SPARE_SECONDS


def test(mutants: List[Any]) -> List[Tuple[bool, str]]:
    """Of each of a module's mutants, True if it survives, and its difference."""
    module = module_of(mutants[0])
    limit = limit_of(module)
    return [survives(module, [mutant], limit) for mutant in mutants]


def mutants_of(names: List[str]) -> List[Any]:
    """All mutants of these modules, always in the same order."""
    from cosmic_ray.commands import init
    from cosmic_ray.work_db import use_db

    os.chdir(ROOT)
    with use_db(":memory:") as database:
        init([Path("mxdp") / name for name in names], database, {})
        made = [item.mutations[0] for item in database.work_items]
    mutants = [mutant for mutant in made if not SAME.search(mutant.operator_name)]
    return sorted(mutants, key=lambda mutant: (str(mutant.module_path), mutant.operator_name, mutant.occurrence))


def main() -> None:
    """Let the modules be changed in copies of the checkout; print the mutants that survive, and the scores."""
    parser = argparse.ArgumentParser(prog="make mutants", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="where its path begins, as in plans/cost")
    parser.add_argument("--sample", type=int, default=SAMPLE, metavar="N", help=f"how many; 0: all (default: {SAMPLE})")
    parser.add_argument("--seed", type=int, default=0, help="draws the sample (default: 0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many at once (default: one a processor)")
    options = parser.parse_args()
    if options.sample < 0 or options.jobs < 1:
        parser.error(f"--sample is at least 0 and --jobs at least 1, not {options.sample} and {options.jobs}")
    names = modules(options.modules)
    made = mutants_of(names)
    mutants = sorted(drawn(made, options.sample, options.seed), key=module_of)
    print(
        f"{len(mutants)} of the {len(made)} mutants of {', '.join(names)}; drawn with seed {options.seed}", flush=True
    )
    of_modules = [list(group) for _, group in groupby(mutants, module_of)]
    groups: Dict[str, List[bool]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(options.jobs, None, settle, (folder,)) as pool:
        outcomes = chain.from_iterable(pool.map(test, of_modules))
        for mutant, (survived, difference) in zip(mutants, outcomes):
            module = module_of(mutant)
            for group in (f"mxdp/{module}", f"room {room_of(module)}", "score"):
                groups[group].append(not survived)
            killed = groups["score"]
            print(f"{sum(killed)} of {len(killed)} killed, {len(mutants)} in all", end="\r", file=sys.stderr)
            if survived:
                changed = [line for line in difference.splitlines()[3:] if line[:1] in "+-"]
                print(f"survived: mxdp/{module}:{mutant.start_pos[0]}", *changed, sep="\n  ", flush=True)
    for group, killed in sorted(groups.items()):
        print(f"{group} {sum(killed) / len(killed):.2f}: {sum(killed)} of {len(killed)} mutants killed")


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as error:
        sys.exit(str(error))
