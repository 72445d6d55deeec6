"""Runs experiments with little work, two at a time: ``background.py FOLDER NAME...``. Most of it is waiting."""

from __future__ import annotations

import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mxdp.experiments.harness import runner
from mxdp.experiments.harness.experiment import find


def run(name, folder):
    experiment = find(name)
    quick = experiment.presets["quick"]
    common = {key: value for key, value in dict(rounds=2, data="synthetic").items() if key in quick}
    result = runner.run(experiment, "quick", {**quick, **common, **experiment.little}, folder)
    (folder / "unfinished" / name).write_bytes(pickle.dumps(result))
    (folder / "unfinished" / name).rename(folder / name)


def main():
    folder = Path(sys.argv[1])
    (folder / "unfinished").mkdir(exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: run(name, folder), sys.argv[2:]))


if __name__ == "__main__":
    main()
