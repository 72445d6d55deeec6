"""How much do the tests notice? Changes the code at one place at a time, and runs the tests of the changed module.

    make mutants                                    400 changes, drawn from all modules below: about an hour
    make mutants ARGS="plans/cost --sample 0"      all changes of one module; a folder stands for all in it
    make mutants ARGS="collectives --sample 50 --seed 3"

cosmic-ray makes the changes ("mutants"), in a copy of the checkout. A mutant is killed if a test fails, or does not end
within five times the usual time. The score is the share that is killed. 1.0 is out of reach, since some changes change
nothing, and since only the module's own tests and doctests are run: the whole suite would kill more.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List

ROOT = Path(__file__).resolve().parents[1]
SCOPE = (
    "plans",
    "collectives",
    "scratch.py",
    "experiments/measure/oracle.py",
    "experiments/harness/runner.py",
)
ELSEWHERE = {
    "scratch.py": "scratch",
    "collectives/__init__.py": "collectives/test_allreduce.py",
    "plans/__init__.py": "plans/test_algorithms.py",
    "plans/__main__.py": "plans/test_plans_main.py",
    "plans/pipeline.py": "plans/test_plans_pipeline.py",
    "plans/cost/machine.py": "plans/test_simulate.py",
}
"""Modules whose tests are not ``test_<module>.py`` in the folder of ``tests`` that has the name of their room."""
SAMPLE = 400
LONGER, SPARE_SECONDS = 5, 20


def modules(wanted: List[str]) -> List[str]:
    """The modules of ``SCOPE`` whose path in ``mxdp`` begins with one of ``wanted``; all if none is named."""
    scope = [ROOT / "mxdp" / part for part in SCOPE]
    paths = [path for part in scope for path in (sorted(part.rglob("*.py")) if part.is_dir() else [part])]
    # The file of an inner folder is its docstring.
    names = [path.relative_to(ROOT / "mxdp").as_posix() for path in paths]
    names = [name for name in names if not (name.endswith("__init__.py") and name.count("/") > 1)]
    for start in wanted:
        if not any(name.startswith(start) for name in names):
            sys.exit(f"mutants: no module begins with {start!r}; there are: {', '.join(names)}")
    return [name for name in names if not wanted or name.startswith(tuple(wanted))]


def tests_of(module: str) -> str:
    """The module's test file, relative to ``tests``."""
    path = Path(module)
    return ELSEWHERE.get(module, f"{path.parts[0]}/test_{path.name}")


def command(module: str) -> str:
    """What runs the module's tests and doctests, until one fails."""
    files = f"mxdp/{module} tests/{tests_of(module)}"
    return f"{sys.executable} -m pytest -x -q -p no:cacheprovider --hypothesis-seed=0 {files}"


def main() -> int:
    """Copy the checkout, and let its modules be changed there; the exit status."""
    parser = argparse.ArgumentParser(prog="make mutants", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="where its path begins, as in plans/cost")
    parser.add_argument("--sample", type=int, default=SAMPLE, metavar="N", help=f"how many; 0: all (default: {SAMPLE})")
    parser.add_argument("--seed", type=int, default=0, help="draws the sample (default: 0)")
    options = parser.parse_args()
    if options.sample < 0:
        parser.error(f"--sample is a number of mutants, or 0 for all; not {options.sample}")
    names = modules(options.modules)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "mxdp"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "runs", "build", "__pycache__"))
        os.chdir(copy)
        os.environ.update(PYTHONPATH=str(copy), MXDP_OFFLINE="1")
        return score(names, options.sample, options.seed)


def score(names: List[str], sample: int, seed: int) -> int:
    """Mutate and test in the current folder, print what survives and the score; the exit status."""
    from cosmic_ray.commands import init
    from cosmic_ray.mutating import mutate_and_test
    from cosmic_ray.testing import run_tests
    from cosmic_ray.work_db import use_db
    from cosmic_ray.work_item import TestOutcome

    with use_db("mutants.sqlite") as database:
        init([Path("mxdp") / name for name in names], database, {})
        mutants = [item.mutations[0] for item in database.work_items]
    mutants.sort(key=lambda mutant: (str(mutant.module_path), mutant.operator_name, mutant.occurrence))
    made = len(mutants)
    if 0 < sample < made:
        mutants = random.Random(seed).sample(mutants, sample)
    print(f"{len(mutants)} of the {made} mutants of {', '.join(names)}; drawn with seed {seed}", flush=True)

    limits: Dict[str, float] = {}
    for module in sorted({str(mutant.module_path.relative_to("mxdp")) for mutant in mutants}):
        began = time.monotonic()
        outcome, output = run_tests(command(module), 600)
        if outcome is not TestOutcome.SURVIVED:
            print(f"mutants: the tests of mxdp/{module} fail without any change:\n{output}", file=sys.stderr)
            return 1
        limits[module] = LONGER * (time.monotonic() - began) + SPARE_SECONDS

    killed: Dict[str, List[bool]] = collections.defaultdict(list)
    for mutant in mutants:
        module = str(mutant.module_path.relative_to("mxdp"))
        result = mutate_and_test([mutant], command(module), limits[module])
        killed[module].append(result.test_outcome is TestOutcome.KILLED)
        if not killed[module][-1]:
            changed = [line for line in (result.diff or "").splitlines()[3:] if line[:1] in "+-"]
            print(f"survived: mxdp/{module}:{mutant.start_pos[0]}", *changed, sep="\n  ", flush=True)

    for module, outcomes in sorted(killed.items()):
        print(f"{sum(outcomes):5} of {len(outcomes):4} killed  mxdp/{module}")
    count, total = sum(map(sum, killed.values())), len(mutants)
    print(f"score {count / total:.2f}: {count} of {total} mutants killed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
