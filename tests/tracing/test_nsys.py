from __future__ import annotations

import shlex

from mxdp.experiments.__main__ import parser
from mxdp.tracing.nsys import nsys_command


def test_the_command_runs_the_same_experiment():
    words = shlex.split(nsys_command("two-jobs", ["--preset", "full", "--data-dir", "my data"]))
    assert words[:2] == ["nsys", "profile"]
    assert "--output=two-jobs" in words
    start = words.index("python")
    assert words[start : start + 3] == ["python", "-m", "mxdp.experiments"]
    options = parser().parse_args(words[start + 3 :])
    assert (options.names, options.preset, str(options.data_dir)) == (["two-jobs"], "full", "my data")


def test_the_reports_name():
    assert "--output=my report" in shlex.split(nsys_command("two-jobs", output="my report"))
