"""What tests of this folder import. (Several folders have a ``conftest``: only one of them can be imported.)"""

import os
import runpy
import time
from pathlib import Path

from mxdp.experiments.lab.module import COMMON, Settings
from mxdp.experiments.show.together import release

TABLES = Path(__file__).parents[2] / "tools" / "tables.py"
MEASURED = [release(machine) for machine in runpy.run_path(str(TABLES))["MACHINES"]]
"""The folders of the results that pages show."""


def little(question, **changes):
    """The settings with which a test runs ``question``, a module or a Question, in a few seconds."""
    given = vars(question)["PRESETS"]["quick"] if "PRESETS" in vars(question) else question.preset("quick")
    quick = {**COMMON["quick"], **given, "processes": 1}
    data = {"data": "synthetic"} if "data" in quick else {}
    return Settings({**quick, **data, **getattr(question, "LITTLE", {}), **changes})


def hang():
    """Hang, and say so by a file."""
    Path(os.environ["MXDP_TEST_HANGING"]).touch()
    time.sleep(1000)


def record(name="fake", **changes):
    """A result as it is in a file: two rows and a reference, in three processes."""
    environment = {
        "cpu_model": "Example <CPU>", "cores": 2, "memory_bytes": 8 << 30, "platform": "Linux", "python": "3.11.7",
        "processor": {"vendor": "Example", "family": "25", "model": "17", "vectors": "AVX-512"}, "gpus": [],
        "versions": {"mxnet": "1.9.1", "numpy": "1.23.5", "mxdp": "0.2.0"}, "commit": "0123456789ab",
        "variables": {"OMP_NUM_THREADS": "1"},
    }  # fmt: skip

    def row(label, devices, seconds, reference=False, **numbers):
        return {
            "label": label, "reference": reference, "devices": [f"cpu({n})" for n in range(devices)],
            "case": {"devices": devices, "processes": 1, "engine": ""}, "facts": {"word": "x"},
            "processes": [{"seconds": s, **{key: x[n] for key, x in numbers.items()}} for n, s in enumerate(seconds)],
            "oracle": {"checked": 617, "wrong": 0},
        }  # fmt: skip

    found = {
        "schema_version": 5, "experiment": name, "question": "Is it <b>faster</b> & [bold]right[/bold]?",
        "preset": "quick", "settings": {"devices": [1, 2], "lr": 0.2, "data_dir": None, "processes": 3},
        "environment": environment, "prediction": "2.0 on 2 cores",
        "started": "2025-01-02T03:04:05+00:00", "elapsed_seconds": 12.5, "status": "ok", "error": None, "skipped": {},
        "oracle": {"checked": 1234, "wrong": 0, "text": "every [red] gradient"},
        "elsewhere": [0.0, 0.31, None],
        "rows": [
            row("1 device", 1, [2.0, 1.0, 4.0], accuracy=[0.83] * 3),
            row("2 devices", 2, [1.0, 0.5, 2.0], accuracy=[0.84] * 3),
            row("ceiling", 1, [0.9, 0.9, 0.9], reference=True),
        ],
    }  # fmt: skip
    return {**found, **changes}
