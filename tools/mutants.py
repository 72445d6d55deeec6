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
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Tuple

import psutil

ROOT = Path(__file__).resolve().parents[1]
ROOMS = (
    "plans",
    "collectives",
    "scratch.py",
    "training",
    "processes",
    "launch",
    "gluon",
    "experiments/lab",
    "experiments/oracle.py",
)
RUNNER = "experiments/test_run.py experiments/test_case_ranks.py"
LAUNCHER = " ".join(
    f"processes/test_{name}.py" for name in ("launch", "launcher_guard", "launcher_ends", "launcher_strangers")
)
ELSEWHERE = {
    "scratch.py": "scratch",
    "collectives/__init__.py": "collectives/test_allreduce.py",
    "plans/__init__.py": "plans/test_algorithms.py",
    "plans/__main__.py": "plans/test_plans_main.py",
    "plans/pipeline.py": "plans/test_plans_pipeline.py",
    "plans/cost/break_even.py": "experiments/test_break_even.py",
    "plans/cost/machine.py": "plans/test_simulate.py",
    "plans/cost/networks.py": "plans/test_scaling_step.py experiments/test_predict.py",
    "plans/cost/step.py": "plans/test_scaling_step.py",
    "training/epochs.py": "training processes/test_ranks.py",
    "training/graph.py": "training",
    "training/loop.py": "training processes/test_resume.py processes/test_ranks.py",
    "training/step.py": "training",
    "processes/checkpoint.py": "processes/test_checkpoint.py processes/test_resume.py",
    "processes/checkpoint_file.py": "processes/test_checkpoint.py",
    "processes/order.py": "processes/test_agreement.py",
    "processes/world.py": "processes/test_agreement.py processes/test_ranks.py processes/test_world.py",
    "launch/__main__.py": "processes/test_launch.py",
    "launch/guard.py": LAUNCHER,
    "launch/guarded.py": LAUNCHER,
    "launch/job.py": LAUNCHER,
    "plans/show/files.py": "test_options.py",
    "plans/show/board.py": "plans/test_moving.py",
    "gluon/updater.py": "gluon/test_updater.py gluon/test_trainer.py gluon/test_sharded.py",
    "collectives/shards.py": "gluon/test_sharded.py processes/test_sharded_ranks.py",
    "gluon/checks.py": "gluon/test_trainer.py",
    "gluon/checkpoint.py": "gluon/test_gluon_checkpoint.py",
    **{f"experiments/lab/{name}.py": RUNNER for name in ("run", "start", "child")},
    "experiments/lab/ranks.py": "experiments/test_case_ranks.py",
    "experiments/lab/settings.py": "experiments/test_module.py",
    "experiments/lab/rows.py": "experiments/test_rows.py experiments/test_run.py",
}
"""Modules whose tests are not ``test_<module>.py`` in the folder of ``tests`` that has the name of their room."""
SAMPLE = 240
LONGER, SPARE_SECONDS = 5, 20
MARK = "MXDP_MUTANTS"
"""A variable of the processes that the tests start: the copy to which they belong."""


def modules(wanted: List[str]) -> List[str]:
    """The modules of ``ROOMS`` whose path in ``mxdp`` begins with one of ``wanted``; all if none is named."""
    rooms = [ROOT / "mxdp" / room for room in ROOMS]
    paths = [path for room in rooms for path in (sorted(room.rglob("*.py")) if room.is_dir() else [room])]
    names = [path.relative_to(ROOT / "mxdp").as_posix() for path in paths]
    # The file of a folder is its docstring, and what it hands on.
    names = [name for name in names if not name.endswith("__init__.py") or name in ELSEWHERE]
    for start in wanted:
        if not any(name.startswith(start) for name in names):
            sys.exit(f"mutants: no module begins with {start!r}; there are: {', '.join(names)}")
    return [name for name in names if not wanted or name.startswith(tuple(wanted))]


def room_of(module: str) -> str:
    """The part of ``ROOMS`` that holds the module."""
    (room,) = (room for room in ROOMS if module == room or module.startswith(f"{room}/"))
    return room


def tests_of(module: str) -> List[str]:
    """The module's test files, or their folder, relative to ``tests``."""
    path = Path(module)
    return ELSEWHERE.get(module, f"{path.parts[0]}/test_{path.name}").split()


def command(module: str) -> str:
    """What runs the module's tests and doctests, until one fails."""
    files = " ".join([f"mxdp/{module}", *(f"tests/{name}" for name in tests_of(module))])
    return f"{sys.executable} -m pytest -x -q -p no:cacheprovider --hypothesis-seed=0 {files}"


def drawn(mutants: List[Any], sample: int, seed: int) -> List[Any]:
    """``sample`` of the mutants, as many of each room; where a room has fewer, more of the others. 0: all."""
    rooms: Dict[str, List[Any]] = collections.defaultdict(list)
    for mutant in mutants:
        rooms[room_of(module_of(mutant))].append(mutant)
    found, left = [], sample or len(mutants)
    for number, room in enumerate(sorted(rooms, key=lambda name: len(rooms[name]))):
        share = min(len(rooms[room]), left // (len(rooms) - number))
        # One generator for each room: the same are drawn whichever other rooms are asked for.
        found += random.Random(f"{seed} {room}").sample(rooms[room], share)
        left -= share
    return found


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
    if options.sample < 0:
        parser.error(f"--sample is a number of mutants, or 0 for all; not {options.sample}")
    if options.jobs < 1:
        parser.error(f"--jobs is at least 1, not {options.jobs}")
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
            outcome, said = run_tests(command(module), limit)
        else:
            result = mutate_and_test([mutant], command(module), limit)
            outcome, said = result.test_outcome, result.diff or ""
    finally:
        end_what_is_left()
    return outcome, said, time.monotonic() - began


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

    killed: Dict[str, List[bool]] = collections.defaultdict(list)
    spent: Dict[str, float] = collections.defaultdict(float)
    mutants.sort(key=lambda mutant: -limits[module_of(mutant)])  # the longest first, so that no process is left alone
    homes = [module_of(mutant) for mutant in mutants]
    results = pool.map(run, homes, [limits[home] for home in homes], mutants)
    for number, (mutant, module, (outcome, diff, seconds)) in enumerate(zip(mutants, homes, results), 1):
        killed[module].append(outcome is TestOutcome.KILLED)
        print(f"{sum(map(sum, killed.values()))} of {number} killed, {len(mutants)} in all", end="\r", file=sys.stderr)
        spent[room_of(module)] += seconds
        if not killed[module][-1]:
            changed = [line for line in diff.splitlines()[3:] if line[:1] in "+-"]
            print(f"survived: mxdp/{module}:{mutant.start_pos[0]}", *changed, sep="\n  ", flush=True)

    for module, outcomes in sorted(killed.items()):
        print(f"{sum(outcomes):5} of {len(outcomes):4} killed  mxdp/{module}")
    for room, seconds in spent.items():
        outcomes = [each for module in killed if room_of(module) == room for each in killed[module]]
        share = f"{sum(outcomes) / len(outcomes):.2f}: {sum(outcomes)} of {len(outcomes)}"
        print(f"score {share} mutants killed in {room}, {seconds / len(outcomes):.0f} s each")
    count, total = sum(map(sum, killed.values())), len(mutants)
    print(f"score {count / total:.2f}: {count} of {total} mutants killed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
