"""How much do the tests notice? Changes the code at one place at a time, and runs the tests of the changed module.

    make mutants                                    240 changes, as many in each room below: 40 minutes on two cores
    make mutants ARGS="plans/cost --sample 0"      all changes of one module; a folder stands for all in it
    make mutants ARGS="collectives --sample 50 --seed 3"

cosmic-ray makes the changes ("mutants"), in copies of the checkout, one for each that is tested at once. A mutant is
killed if a test fails, or does not end within five times the usual time. The score is the share that is killed. 1.0 is
out of reach, since some changes change nothing, and since only the module's own tests and doctests are run: the whole
suite would kill more.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import os
import random
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Tuple

import psutil

ROOT = Path(__file__).resolve().parents[1]
ROOMS = (
    *("plans", "collectives", "scratch.py", "training", "processes", "launch", "gluon"),
    *("experiments/lab", "experiments/oracle.py"),
)
SAMPLE = 240
LONGER, SPARE_SECONDS = 5, 20
MARK = "MXDP_MUTANTS"
"""A variable of the processes that the tests start: the copy to which they belong."""


def modules(wanted: List[str]) -> List[str]:
    """The modules of ``ROOMS`` whose path in ``mxdp`` begins with one of ``wanted``; all if none is named. A folder's
    ``__init__.py`` is not changed."""
    rooms = [ROOT / "mxdp" / room for room in ROOMS]
    paths = [path for room in rooms for path in (sorted(room.rglob("*.py")) if room.is_dir() else [room])]
    names = [path.relative_to(ROOT / "mxdp").as_posix() for path in paths if path.name != "__init__.py"]
    for start in wanted:
        if not any(name.startswith(start) for name in names):
            sys.exit(f"mutants: no module begins with {start!r}; there are: {', '.join(names)}")
    return [name for name in names if not wanted or name.startswith(tuple(wanted))]


def room_of(module: str) -> str:
    """The part of ``ROOMS`` that holds the module."""
    (room,) = (room for room in ROOMS if module == room or module.startswith(f"{room}/"))
    return room


def tests_of(module: str) -> List[str]:
    """The module's tests, relative to the checkout: ``test_<module>.py`` in its room's folder of ``tests``; else three
    files that import it, of that folder if possible, those that import the least else; else the folder."""
    path = Path(module).with_suffix("")
    room = ROOT / "tests" / path.parts[0]
    package, _, name = f"mxdp.{'.'.join(path.parts)}".rpartition(".")
    if not path.parts[1:] or (room / f"test_{name}.py").exists():
        return [f"tests/{path.parts[0]}/test_{name}.py" if path.parts[1:] else f"tests/{name}"]
    imports = re.compile(rf"{re.escape(package)}(\.{name}\b| import .*\b{name}\b)")
    texts = {file: file.read_text(encoding="utf-8") for file in sorted((ROOT / "tests").rglob("test_*.py"))}
    files = sorted(
        filter(lambda file: imports.search(texts[file]), texts), key=lambda file: texts[file].count("import ")
    )
    files = [file for file in files if room in file.parents] or files
    return [file.relative_to(ROOT).as_posix() for file in files[:3] or [room]]


def command(module: str) -> str:
    """What runs the module's tests and doctests, until one fails."""
    files = " ".join([f"mxdp/{module}", *tests_of(module)])
    return f"{sys.executable} -m pytest -x -q -p no:cacheprovider --hypothesis-seed=0 {files}"


def drawn(mutants: List[Any], sample: int, seed: int) -> List[Any]:
    """``sample`` of the mutants, as many of each room; where a room has fewer, more of the others. 0: all."""
    rooms: Dict[str, List[Any]] = collections.defaultdict(list)
    for mutant in mutants:
        rooms[room_of(module_of(mutant))].append(mutant)
    chosen, left = [], sample or len(mutants)
    for number, room in enumerate(sorted(rooms, key=lambda name: len(rooms[name]))):
        share = min(len(rooms[room]), left // (len(rooms) - number))
        # One generator for each room: the same are drawn whichever other rooms are asked for.
        chosen += random.Random(f"{seed} {room}").sample(rooms[room], share)
        left -= share
    return chosen


def module_of(mutant: Any) -> str:
    """Its path in ``mxdp``."""
    return Path(mutant.module_path).relative_to("mxdp").as_posix()


def main() -> int:
    """Let the modules be changed in copies of the checkout; the exit status."""
    parser = argparse.ArgumentParser(prog="make mutants", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="where its path begins, as in plans/cost")
    parser.add_argument("--sample", type=int, default=SAMPLE, metavar="N", help=f"how many; 0: all (default: {SAMPLE})")
    parser.add_argument("--seed", type=int, default=0, help="draws the sample (default: 0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many at once (default: one a processor)")
    options = parser.parse_args()
    if options.sample < 0 or options.jobs < 1:
        parser.error(f"--sample is at least 0 and --jobs at least 1, not {options.sample} and {options.jobs}")
    names = modules(options.modules)
    os.environ["MXDP_OFFLINE"] = "1"
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ProcessPoolExecutor(
        options.jobs, initializer=settle, initargs=(folder,)
    ) as pool:
        return score(names, options.sample, options.seed, pool)


def settle(folder: str) -> None:
    """Give this process a copy of the checkout in ``folder``."""
    copy = Path(tempfile.mkdtemp(dir=folder)) / "mxdp"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "runs", "build", "__pycache__"))
    os.chdir(copy)
    os.environ.update({"PYTHONPATH": str(copy), MARK: str(copy)})


def run(module: str, limit: float, mutant: Any = None) -> Tuple[Any, str, float]:
    """The module's tests, with the mutant if there is one: outcome, output or difference, seconds."""
    from cosmic_ray.mutating import mutate_and_test
    from cosmic_ray.testing import run_tests

    began = time.monotonic()
    try:
        if mutant is None:
            outcome, words = run_tests(command(module), limit)
        else:
            result = mutate_and_test([mutant], command(module), limit)
            outcome, words = result.test_outcome, result.diff or ""
    finally:
        end_what_is_left()
    return outcome, words, time.monotonic() - began


def end_what_is_left() -> None:
    """Kill what the tests have started and left behind, in whatever session or process group."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == os.environ[MARK]:
                process.kill()


def score(names: List[str], sample: int, seed: int, pool: concurrent.futures.Executor) -> int:
    """Mutate and test, print what survives and the scores; the exit status."""
    from cosmic_ray.commands import init
    from cosmic_ray.work_db import use_db
    from cosmic_ray.work_item import TestOutcome

    os.chdir(ROOT)
    with use_db(":memory:") as database:
        init([Path("mxdp") / name for name in names], database, {})
        mutants = [item.mutations[0] for item in database.work_items]
    mutants.sort(key=lambda mutant: (str(mutant.module_path), mutant.operator_name, mutant.occurrence))
    made = len(mutants)
    mutants = drawn(mutants, sample, seed)
    print(f"{len(mutants)} of the {made} mutants of {', '.join(names)}; drawn with seed {seed}", flush=True)

    tested = sorted({module_of(mutant) for mutant in mutants})
    limits: Dict[str, float] = {}
    for module, (outcome, output, seconds) in zip(tested, pool.map(run, tested, [600] * len(tested))):
        if outcome is not TestOutcome.SURVIVED:
            print(f"mutants: the tests of mxdp/{module} fail without any change:\n{output}", file=sys.stderr)
            return 1
        limits[module] = LONGER * seconds + SPARE_SECONDS

    groups: Dict[str, List[bool]] = collections.defaultdict(list)
    mutants.sort(key=lambda mutant: -limits[module_of(mutant)])  # the longest first, so that no process is left alone
    homes = [module_of(mutant) for mutant in mutants]
    results = pool.map(run, homes, [limits[home] for home in homes], mutants)
    for mutant, module, (outcome, diff, _) in zip(mutants, homes, results):
        for group in (f"mxdp/{module}", f"room {room_of(module)}", "score"):
            groups[group].append(outcome is TestOutcome.KILLED)
        killed = groups["score"]
        print(f"{sum(killed)} of {len(killed)} killed, {len(mutants)} in all", end="\r", file=sys.stderr)
        if not killed[-1]:
            changed = [line for line in diff.splitlines()[3:] if line[:1] in "+-"]
            print(f"survived: mxdp/{module}:{mutant.start_pos[0]}", *changed, sep="\n  ", flush=True)
    for group, killed in sorted(groups.items()):
        print(f"{group} {sum(killed) / len(killed):.2f}: {sum(killed)} of {len(killed)} mutants killed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
