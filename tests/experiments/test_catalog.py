"""Every question, whole: in its quick size's shape, but with as little work as its settings allow."""

from __future__ import annotations

import json
import operator
import os
import shutil
import xml.etree.ElementTree as ElementTree
from contextlib import suppress
from pathlib import Path

import numpy as onp
import pytest
from littles import little

from mxdp.errors import UsageError
from mxdp.experiments.lab import child, result, run
from mxdp.experiments.lab.module import COMMON, Skipped, discover, find, lacking
from mxdp.experiments.lab.settings import resolve
from mxdp.experiments.oracle import count
from mxdp.experiments.show import page, terminal
from mxdp.experiments.show.words import shown
from mxdp.plans.cost.machine import CPU

QUESTIONS = [question for question in discover().values() if question.module.__name__.startswith("mxdp.")]
name = operator.attrgetter("name")
COUNTS = Path(__file__).with_name("counts.json")
"""How many numbers the oracle of each case compares. ``MXDP_GOLDEN=write`` writes it anew, without ``-n``."""
GATHERED = {
    *("combined", "latency-throughput", "layerwise", "pipeline", "strategies", "tiles"),  # test_split, test_stages
    *("links", "parameter-server", "parallel-evaluation", "silent-bugs"),
}
"""What these compare was copied to one device first, or is a count: their own tests have broken variants."""
UNTIMED = ("less-traffic", "lost-worker", "predicted", "silent-bugs", "uneven")
"""Whose rounds start processes, or a training that takes long and is not judged by its time."""
RECORDED = ("where-the-time-went",)
"""Whose seconds are a recording's."""
IDLE = ("memory-guard", "run-ahead")
"""Some rounds of these push nothing: what they ask is refused, or Python goes on at once."""
PUSHING = {
    *("devices.mean_seconds", "run_ahead.until_python_goes_on", "run_ahead.additions", "sections.section"),
    *("stage_times._timed", "training.step"),
}
"""Who reads the clock while devices work: it is Python's time."""


@pytest.mark.parametrize("question", QUESTIONS, ids=name)
def test_runs_meets_its_oracle_is_told_and_drawn(question, measured, tmp_path):
    folder, found = measured(question.name)
    if found["status"] == "skipped":
        pytest.skip(found["error"])
    assert (found["status"], found["error"], found["oracle"]["wrong"]) == ("ok", None, 0)
    (path,) = (folder / question.name).glob("*.json")
    assert result.read(path) == json.loads(json.dumps(found))
    s = shown([found])
    for row in s.told:
        assert len(row.seconds.values) == found["settings"]["processes"]
        assert row.device_names
    cells = terminal.tables(s.told, s.told.rows)[0]
    assert all(line[1] not in ("?", terminal.NOTHING) for line in cells.rows)
    assert "?" not in [cell for line in cells.rows + cells.references for cell in line]
    assert any(character.isdigit() for character in s.told.sentence), s.told.sentence
    judged = [claim for claim in s.told.claims.values() if claim.numbers]
    if not found["skipped"]:
        assert judged or not s.told.claims
    for claim in judged:
        assert all(value is not None for number in claim.numbers for value in number.values[:1]), claim.sentence
    shutil.copytree(path.parent, tmp_path / question.name)
    page.write_report(tmp_path)
    picture = ElementTree.parse(tmp_path / f"{question.name}.svg").getroot()
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}path"))) > 10
    assert "be drawn (" not in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert len(list(tmp_path.glob("timelines/*.svg"))) == sum(row.get("timeline") is not None for row in s.told)


@pytest.mark.parametrize("question", QUESTIONS, ids=name)
def test_is_well_described(question):
    quick, full = question.preset("quick"), question.preset("full")
    assert set(quick) == set(full) > set(COMMON["full"])
    for preset in ("quick", "full"):
        settings = resolve([question], preset, {})[1][question.name]
        if preset == "quick":
            assert (settings["processes"], settings["minutes"]) == (None, 1.0)
        else:
            assert settings["processes"] >= 6  # fewer give no interval
        assert settings["rounds"] % 2  # of an even number, skewed noise moves the median
    assert question.question.endswith("?")
    assert set(question.LITTLE) <= set(settings) or "of" in settings
    for cores in (1, 2, 16):
        assert question.expect(little(question), cores)
    labels = [case.label for case in question.cases(little(question))]
    assert len(set(labels)) == len(labels)


SEVERAL = "numbers of which one is above 1"


@pytest.mark.parametrize(
    ("name", "setting", "values", "allowed"),
    [
        *((name, "devices", [[1]], SEVERAL) for name in (
            "strategies", "layerwise", "fully-sharded", "combined", "tiles", "pipeline", "latency-throughput",
            "allreduce", "links", "parameter-server", "graph", "mixed-devices", "scaling",
        )),
        ("lost-worker", "devices", [[1]], "2 or more, since one process is lost"),
        ("batch-scaling", "times", [[1, 2]], "above 1, as in 2,4"),
        ("batch-scaling", "samples", [100], "a multiple of 8"),
        ("batch-norm", "shards", [[1, 8], [8, 8]], "different numbers above 1"),
        ("small-ops", "sizes", [[4, -4], [4, 0], [4, 6], [4, 4.0]], ""),
        ("links", "sizes", [[4], [4, 4], [4, 6]], "two or more different multiples of 4"),
        ("layerwise", "batch_sizes", [[8, 8]], "two or more different numbers"),
        ("less-traffic", "steps", [50], "a multiple of 48"),
        ("less-traffic", "hosts_steps", [4], "a multiple of 8"),
        ("less-traffic", "every", [3], "2, 4 or 8"),
        ("less-traffic", "share", [2.0], "above 0 and at most 1"),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_measured_is_refused(name, setting, values, allowed):
    for value in values:
        with pytest.raises(UsageError, match=f"{name}: {setting} must be {allowed}"):
            resolve([find(name)], "quick", {setting: value})


def cases():
    return [
        pytest.param(question, case, id=f"{question.name}: {case.label}")
        for question in QUESTIONS
        for case in question.cases(little(question))
        if case.processes == 1 and not case.environment and not lacking({**question.NEEDS, **case.needs})
    ]


def compared(question, case, tmp_path):
    """What the oracle of the case compares, and what of it is wrong."""
    case.folder = str(tmp_path)
    try:
        return count(question.oracle(case, little(question)))
    except Skipped as why:
        pytest.skip(str(why))


@pytest.fixture(scope="module")
def counts():
    """What was compared in each case; in the end it is written, if that is asked for."""
    known = json.loads(COUNTS.read_text(encoding="utf-8")) if COUNTS.exists() else {}
    found = dict(known)
    yield known, found
    if os.environ.get("MXDP_GOLDEN") == "write":
        COUNTS.write_text(json.dumps(dict(sorted(found.items())), indent=0) + "\n", encoding="utf-8")


@pytest.mark.parametrize(("question", "case"), cases())
def test_an_oracle_compares_as_much_as_ever_and_reads_every_device(
    question, case, counts, measured, monkeypatch, tmp_path
):
    """A device whose numbers nobody reads could hold anything: whatever is read of it is spoiled, one device after the
    other, and the oracle has to find that."""
    from mxdp.backend import mx

    known, found = counts
    checked, wrong = compared(question, case, tmp_path)
    label = f"{question.name}: {case.label}"
    found[label] = checked
    assert (checked > 0, wrong) == (True, 0)
    if os.environ.get("MXDP_GOLDEN") != "write":
        chosen = f"tests/experiments/test_catalog.py -k {question.name}"
        assert checked == known.get(label), f"if this is meant: MXDP_GOLDEN=write make test ARGS='-n 0 {chosen}'"
    if question.name in GATHERED:
        return
    read = mx.nd.NDArray.asnumpy
    random = onp.random.RandomState(0)

    def spoiled_on(device):
        def asnumpy(array):
            values = read(array)
            if array.ctx != device or values.dtype.kind != "f":
                return values
            return values + random.uniform(0.5, 1.5, values.shape).astype(values.dtype) * max(
                1.0, abs(values).max(initial=0)
            )

        return asnumpy

    _, whole = measured(question.name)
    row = next(row for row in whole["rows"] if row["label"] == case.label)
    for device in [
        device for device in map(mx.cpu, range(8)) if len(row["devices"]) > 1 and str(device) in row["devices"]
    ]:
        monkeypatch.setattr(mx.nd.NDArray, "asnumpy", spoiled_on(device))
        with suppress(ValueError, ArithmeticError, TypeError, IndexError):  # it was read, and made no sense
            assert compared(question, case, tmp_path)[1], f"what lies on {device} is not compared"


@pytest.mark.parametrize("question", [each for each in QUESTIONS if each.name not in UNTIMED], ids=name)
def test_rounds_read_clocks_behind_fences_and_all_do_as_much(question, virtual, monkeypatch, tmp_path):
    readers, seconds = set(), {}

    def answer(process, case, **line):
        assert "failed" not in line
        if "ready" in line:
            virtual.readers.clear()  # what warms up may still run
        if "round" in line:
            readers.update(virtual.readers)
            seconds.setdefault(process.cases[case].label, []).append(line["round"]["seconds"])

    monkeypatch.setattr(child.Child, "_answer", answer)
    for part in ("calibrate", "calibrated", "begin_anywhere"):  # they have tests of their own
        if hasattr(question.module, part):
            monkeypatch.setattr(question.module, part, lambda *_: CPU)
    whole = run.Run(question, "quick", little(question, rounds=2), tmp_path)
    whole.begin()
    for group in whole.groups():
        if group[0].processes == 1:
            child.Child(whole.order(1, group, tmp_path), tmp_path / "order").measure()
    assert readers <= PUSHING
    least = -1 if question.name in IDLE else 1  # of a step: a call and a part of the last fence
    assert question.name in RECORDED or all(first == second > least for first, second in seconds.values()), seconds
