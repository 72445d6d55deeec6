"""Every question, whole: in its quick size's shape, but with as little work as its settings allow."""

import json
import operator
import os
import shutil
import xml.etree.ElementTree as ElementTree
from functools import partial
from pathlib import Path

import numpy as onp
import pytest
from beside import rounds_of
from littles import little

from mxdp.errors import UsageError
from mxdp.experiments.lab import result
from mxdp.experiments.lab.module import COMMON, discover, find
from mxdp.experiments.lab.settings import resolve
from mxdp.experiments.oracle import count
from mxdp.experiments.show import page, terminal
from mxdp.experiments.show.words import shown

QUESTIONS = [question for question in discover().values() if question.module.__name__.startswith("mxdp.")]
name = operator.attrgetter("name")
GOLDEN = Path(__file__).with_name("catalog.json")
"""Of each case: how many numbers its oracle compares, which devices that oracle does not see, and what a round gives by
a virtual clock. ``MXDP_GOLDEN=write`` writes it anew, without ``-n``."""
UNLIKE = {
    *("differs", "gain", "loss", "other_replica", "worst_error"),
    *("worst_error_inside", "ahead", "measured_bytes", "peak_bytes", "said"),
}
"""Numbers that another processor computes otherwise, or that the system gives."""
SEED = 12345
LARGER = {
    "operators": {"round_seconds": 10_000.0},
    "peers": {"samples": 170},
    "small-ops": {"round_seconds": 10_000.0},
    "mixed-devices": {"steps": 4},
    "resnet": {"steps": 2},
}
"""Settings that a round shows only if they are above the least."""


@pytest.fixture(scope="module")
def golden():
    """``golden(label, **found)``: what of a case is as in the file, or is written into it."""
    known = json.loads(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.exists() else {}
    writes = os.environ.get("MXDP_GOLDEN") == "write"

    def compare(label, **found):
        kept = known.setdefault(label, {})
        if writes:
            kept.update(found)
        for key, value in found.items():
            assert value == kept.get(key), f"if this is meant: make golden ARGS='-k {label.partition(':')[0]}'"

    yield compare
    if writes:
        lines = [f"{json.dumps(label)}: {json.dumps(known[label])}" for label in sorted(known)]
        GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


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
        assert all(allowed(settings[key]) for key, (allowed, _) in question.CHECKS.items())
        assert all(value == sorted(value) for value in settings.values() if isinstance(value, list))
        assert settings["rounds"] % 2  # of an even number, skewed noise moves the median
    assert question.question.endswith("?")
    assert set(question.LITTLE) <= set(settings) or "of" in settings
    for cores in (1, 2, 16):
        assert question.expect(little(question), cores)
    labels = [case.label for case in question.cases(little(question))]
    assert len(set(labels)) == len(labels)


SEVERAL = """strategies layerwise fully-sharded combined tiles pipeline latency-throughput allreduce links
    parameter-server graph mixed-devices scaling lost-worker"""
REFUSED = {
    **{f"{name} devices": [[1]] for name in SEVERAL.split()},
    "batch-scaling times": [[1, 2]],
    "batch-scaling samples": [100],
    "batch-norm shards": [[1, 8], [8, 8]],
    "small-ops sizes": [[4, -4], [4, 0], [4, 6], [4, 4.0]],
    "links sizes": [[4], [4, 4], [4, 6]],
    "layerwise batch_sizes": [[8, 8]],
    "less-traffic steps": [50],
    "less-traffic hosts_steps": [4],
    "less-traffic every": [3],
    "less-traffic share": [2.0],
}


@pytest.mark.parametrize("where", REFUSED)
def test_a_setting_that_cannot_be_measured_is_refused(where):
    name, setting = where.split()
    for value in REFUSED[where]:
        with pytest.raises(UsageError, match=f"{name}: {setting} must be "):
            resolve([find(name)], "quick", {setting: value})


class Asked:
    """A case, and what an oracle asks it for: of another one with the same answers it finds the same."""

    def __init__(self, case):
        self.case, self.answers = case, {}

    def __getattr__(self, name):
        return self.answers.setdefault(name, getattr(self.case, name))


def spoiled_on(device, used, read):
    """``asnumpy``, which gives wrong numbers for that device, and notes in ``used`` whose arrays it reads."""
    random = onp.random.RandomState(0)

    def asnumpy(array):
        values = read(array)
        used.add(array.ctx)
        if array.ctx != device or values.dtype.kind != "f":
            return values
        off = random.uniform(0.5, 1.5, values.shape).astype(values.dtype)
        return values + off * max(1.0, abs(values).max(initial=0))

    return asnumpy


def unseen_by(question, case, devices, monkeypatch):
    """Which of these devices may hold anything: the oracle finds it right all the same."""
    from mxdp.backend import mx

    unseen = []
    read = mx.nd.NDArray.asnumpy
    everything = None  # known when an oracle has run to its end
    for device in devices:
        if everything is None or device in everything:
            used = set()
            with monkeypatch.context() as patch:
                patch.setattr(mx.nd.NDArray, "asnumpy", spoiled_on(device, used, read))
                try:
                    # Whatever comes after the first wrong number changes nothing.
                    wrong = any(count([one])[1] for one in question.oracle(case, little(question)))
                except (ValueError, ArithmeticError, TypeError, IndexError):  # it was read, and made no sense
                    wrong = True
            if wrong:
                continue
            everything = used
        unseen.append(str(device))
    return unseen


@pytest.mark.parametrize("question", QUESTIONS, ids=name)
def test_an_oracle_reads_every_device(question, golden, measured, monkeypatch, tmp_path):
    """A device whose numbers nobody reads could hold anything: whatever is read of it is spoiled, one device after the
    other, and the oracle has to find that. A device that it doesn't see is in the golden file: what lies there was
    copied to another one first."""
    from mxdp.backend import mx

    _, whole = measured(question.name)
    rows = {row["label"]: row for row in whole["rows"]}
    known = []
    for case in question.cases(little(question)):
        if case.processes > 1 or case.environment or case.label not in rows:
            continue
        row = rows[case.label]
        case.folder = str(tmp_path)
        alike = [unseen for answers, unseen in known if all(getattr(case, key) == answers[key] for key in answers)]
        if not alike:
            devices = [device for device in map(mx.cpu, range(8)) if str(device) in row["devices"]]
            asked = Asked(case)
            alike = [unseen_by(question, asked, devices if len(devices) > 1 else [], monkeypatch)]
            if asked.answers:  # else it ran for no device
                known.append(({**asked.answers, "devices": case.devices}, *alike))
        golden(f"{question.name}: {case.label}", checked=row["oracle"]["checked"], unseen=alike[0])


def flat(numbers):
    """Those of a round, also those in its dicts, as a text gives them back."""
    entries = {}
    for key, value in numbers.items():
        if isinstance(value, dict) and key not in UNLIKE:
            entries.update({f"{key} {inner}": one for inner, one in flat(value).items()})
        elif key not in UNLIKE:
            entries[key] = float(f"{value:.7g}") if isinstance(value, (int, float)) else value
    return entries


@pytest.mark.parametrize("question", QUESTIONS, ids=name)
def test_rounds_give_exact_numbers_by_a_clock_that_counts_what_is_pushed(
    question, golden, virtual, monkeypatch, tmp_path
):
    """Its settings have a seed of their own, and so has whatever draws."""
    from mxdp.backend import mx

    drawn = set()

    def draw(real, seed, *more, **options):
        drawn.add(int(onp.ravel(seed)[0]))
        return real(seed, *more, **options)

    for place, draws in ((onp.random, "RandomState"), (onp.random, "seed"), (mx.random, "seed")):
        monkeypatch.setattr(place, draws, partial(draw, getattr(place, draws)))
    virtual.weighs = True
    settings = little(question, rounds=2, seed=SEED, **LARGER.get(question.name, {}))
    for label, (facts, *rounds) in rounds_of(question, settings, tmp_path, monkeypatch, virtual).items():
        for number, given in enumerate(rounds):
            seed = given.pop("seed", None)
            assert seed is None or seed == SEED + 1000 * (1000 * 3 + 1) + number
            assert seed is None or seed in drawn
        first, second = map(flat, rounds)
        assert first == second
        golden(f"{question.name}: {label}", round=first, facts=flat(facts))
    assert all(seed >= SEED for seed in drawn), sorted(drawn)
