from __future__ import annotations

import pytest

from mxdp.errors import UsageError
from mxdp.experiments.harness.experiment import find
from mxdp.experiments.harness.settings import BUILT_IN, resolve

EPOCHS, TWO_JOBS = find("epochs"), find("two-jobs")


def test_a_built_in_preset_as_it_is():
    name, settings = resolve([EPOCHS, TWO_JOBS], "full", {})
    assert name == "full"
    assert settings == {each.name: {**BUILT_IN["full"], **each.presets["full"]} for each in (EPOCHS, TWO_JOBS)}
    assert (settings["epochs"]["batch_size"], settings["epochs"]["lr"], settings["epochs"]["repeats"]) == (256, 0.2, 6)


def test_the_presets_are_never_written_to():
    resolve([EPOCHS], "quick", {})[1]["epochs"]["seed"] = 99
    assert EPOCHS.presets["quick"]["seed"] == 0


def test_options_apply_where_they_mean_something():
    _, settings = resolve([EPOCHS, TWO_JOBS], "quick", {"data": "digits", "seed": 3})
    assert settings["epochs"]["data"] == "digits"
    assert "data" not in settings["two-jobs"]
    assert settings["epochs"]["seed"] == settings["two-jobs"]["seed"] == 3


def test_a_file_lays_its_tables_over_full(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[epochs]\nbatch_size = 64\nlr = 1  # an int will do\ndevices = [1, 4]\n")
    name, settings = resolve([EPOCHS, TWO_JOBS], str(path), {"seed": 7})
    assert name == "mine"
    changed = {"batch_size": 64, "lr": 1.0, "devices": [1, 4], "seed": 7}
    assert settings["epochs"] == {**BUILT_IN["full"], **EPOCHS.presets["full"], **changed}
    assert settings["two-jobs"] == {**BUILT_IN["full"], **TWO_JOBS.presets["full"], "seed": 7}


def test_a_number_of_rounds_that_is_asked_for_is_not_added_to():
    fixed = resolve([EPOCHS], "full", {"rounds": 9})[1]["epochs"]
    assert (fixed["rounds"], fixed["looks"], fixed["budget"]) == (9, 1, 0.0)
    assert resolve([EPOCHS], "quick", {"rounds": 9})[1]["epochs"]["looks"] == 1
    assert resolve([EPOCHS], "quick", {"seed": 9})[1]["epochs"]["looks"] == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[epochs]\nbatchsize = 3", "epochs has no setting 'batchsize'; it has: devices, "),
        ("[epochs]\nbatch_size = 'many'", "batch_size must be of type int, not 'many'"),
        ("[epochs]\nbatch_size = true", "batch_size must be of type int, not True"),
        ("[epochs]\nbatch_size = 0", "batch_size must be more than 0, not 0"),
        ("[epochs]\nlooks = 4", "epochs: looks must be from 1 to 3, not 4"),
        ("[epochs]\nseed = -1", "seed must be from 0 to 4294967295, not -1"),
        ("[epochs]\nlr = nan", "lr must be more than 0, not nan"),
        ("[epochs]\ndevices = [1, 1]", "devices must be different numbers"),
        ("[epochs]\ndevices = [1, 0]", "devices must be different numbers"),
        ("[epochs]\ndevices = []", "devices must be different numbers"),
        ("[epochs]\ndevices = [1, '2']", "devices must be different numbers"),
        ("[epochs]\nsamples = -5", "samples must be more than 0"),
        ("[epochs]\nsamples = 'all'", "samples must be of type int, not 'all'"),
        ("[allreduce]\nsizes = []", "allreduce: sizes must be one or more numbers above 0, not "),
        ("[allreduce]\nsizes = [4, 0]", "sizes must be one or more numbers above 0"),
        ("[buckets]\nbucket_mb = [1, 'x']", "bucket_mb must be one or more numbers above 0"),
        ("batch_size = 3", "'batch_size' stands outside a table"),
        ("[epoch]\nseed = 1", "has no table for epochs, only for epoch"),
        ("", "has no table for epochs, only for nothing"),
        ("[epochs\n", "not a TOML file"),
    ],
)
def test_a_file_that_is_wrong(tmp_path, text, message):
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message.replace("[", r"\[")):
        resolve([EPOCHS, *(find(name) for name in ("allreduce", "buckets") if name in text)], str(path), {})


def test_a_file_that_is_not_text(tmp_path):
    path = tmp_path / "wrong.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not a TOML file"):
        resolve([EPOCHS], str(path), {})
