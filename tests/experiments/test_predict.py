"""``python -m mxdp.experiments predict``: what it reads, says and refuses."""

from __future__ import annotations

import json
import math
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mxdp.errors import UsageError
from mxdp.experiments.__main__ import main
from mxdp.experiments.predict import checked, command, fits, inputs, published
from mxdp.experiments.predict.symbols import layers_of_symbol
from mxdp.experiments.predict.ways import BUCKETS, OTHERS, Predicted, all_ways, allreduces, scaling
from mxdp.experiments.show.style import number
from mxdp.plans.cost.cluster import HALVES, NODE_ALLREDUCES, Cluster
from mxdp.plans.cost.layer_lists import NETWORKS
from mxdp.plans.cost.link import Link
from mxdp.plans.cost.step import LITTLE, Way, predict_step

NODES = ["predict", "--model", "resnet18", "--speed", "3000", "--nodes", "64"]


LINKED = "devices = 4\nnodes = 1\n[inside]\nlatency = 0\nbandwidth = 1e9\n[between]\nlatency = 0\nbandwidth = 1"


def said(capsys, *words):
    status = main(["predict", *words])
    return status, *capsys.readouterr()


def node(op, name, *inputs, **attributes):
    return {"op": op, "name": name, "inputs": [[at, 0, 0] for at in inputs], "attrs": attributes}


def exported(folder, shape, *layers):
    """A gluon network's symbol, its file, and how many parameters gluon trains."""
    from mxdp.backend import gluon, np

    net = gluon.nn.HybridSequential()
    net.add(*layers)
    net.initialize()
    net.hybridize()
    net(np.zeros((1, *shape)))
    net.export(str(folder / "net"))
    file = folder / "net-symbol.json"
    trained = [param.data().size for param in net.collect_params().values() if param.grad_req != "null"]
    return json.loads(file.read_text()), file, sum(trained)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--model", "letnet"], "there is no such file or network; did you mean lenet?"),
        (["--model", "resnet50"], "nobody has said how fast one device trains resnet50: give --speed"),
        (["--speed", "1", "--link", "10gb"], "link '10gb': give seconds to start a message"),
        (["--speed", "1", "--nodes", "100000"], "make 800,000 devices: the most are 65,536"),
        (["--speed", "1", "--input", "3,x"], "--input 3,x: give channels, height and width"),
        (["--machine", "dgx-1-p10"], "there is no such file or machine; did you mean dgx-1-p100?"),
        (["--speed", "1", "--picture", "x.bmp"], "--picture ends in .png, .pdf or .svg, not .bmp"),
        (["--memory", "--parameters", "7e9", "--model", "vgg16"], "--parameters and --model both say how large"),
        (["--memory", "--optimizer", "adagrad"], "--optimizer adagrad: it is sgd, momentum, adam"),
        (["--memory", "--dtype", "int8"], "--dtype int8: it is float32, mixed"),
    ],
)
def test_what_can_not_be_is_refused_in_a_sentence(words, sentence, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    status, out, err = said(capsys, *words)
    assert (status, out) == (2, "")
    assert sentence.replace("'", "") in err.replace("'", "")
    assert err.startswith("mxdp: ")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


WIDE = node("Convolution", "c", 0, kernel="(3, 3, 3)", num_filter="4")
LAYER = "[[layer]]\nforward = 1\nbackward = 1\n"


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("net.toml", "layer = 1 = 2", "is not a TOML file that can be read"),
        pytest.param("net.toml", "a = " + "[" * 100_000, "is not a TOML file that can be read", id="deep TOML"),
        ("net.toml", "", "has no layer with parameters"),
        ("net.toml", "layer = [3]", "has no layer with parameters"),
        ("net.toml", "[[layer]]\nforward = 1\nparameters = 3", "forward and backward, in seconds a sample"),
        ("net.toml", f"[step]\nspeed = 1\n{LAYER}parameters = 3", "[step] has fixed, update"),
        ("net.toml", f"{LAYER.replace('1', '0')}parameters = 3", "no layer takes any time"),
        ("net.toml", "[[layer]]\noperations = 0\nparameters = 3", "all layers have 0 operations"),
        ("net.toml", f"{LAYER}parameters = 3", "so --speed has no effect"),
        ("net.toml", f"{LAYER}operations = 1\nparameters = 3", "give every layer its operations, or forward and"),
        ("net.toml", "[step]\nfixed = 1\n[[layer]]\noperations = 1\nparameters = 3", "[step] has no effect on layers"),
        ("net.json", "{", "is not the JSON of a symbol"),
        pytest.param("net.json", "[" * 100_000, "is not the JSON of a symbol", id="deep"),
        ("net.json", "[]", "is not a symbol that MXNet exported"),
        ("net.json", json.dumps({"nodes": [node("null", "data")]}), "has no parameters: there is nothing to train"),
        ("net.json", json.dumps({"nodes": [node("null", "data"), node("RNN", "rnn", 0)]}), "operator RNN costs"),
        ("net.json", json.dumps({"nodes": [node("null", "x"), WIDE]}), "window has 3 sides, and its input 2"),
        ("net.json", json.dumps({"nodes": [node("null", "data"), node("Convolution", "c", 0)]}), "c cant be read"),
        ("own.toml", "devices = 2", "a machine has devices, nodes, [inside] and [between]"),
        ("own.toml", "devices = 2\nnodes = 2\nadd = 3\n[inside]\n[between]", "it may have [add] and"),
        ("own.toml", f"overlap = 1\n{LINKED}", "whether sums run beside the backward pass, is true or false, not 1"),
        ("own.toml", f"{LINKED}\n[samples_per_second]\nlent = 9", "and no lent; did you mean lenet?"),
        ("own.toml", LINKED.replace("1e9", "1e-320"), "at least 0, from 1e-30 to 1e+30, not 1e-320"),
    ],
)
def test_a_network_or_machine_that_can_not_be_is_refused_in_a_sentence(name, text, sentence, capsys, tmp_path):
    (tmp_path / name).write_text(text)
    words = ["--machine" if name == "own.toml" else "--model", str(tmp_path / name)]
    if name == "net.json":
        words += ["--input", "1,28,28"]
    status, out, err = said(capsys, "--speed", "100", *words)
    assert (status, out) == (2, "")
    assert sentence in err.replace("'", "")


def test_a_symbol_is_not_read_without_the_size_of_a_sample(capsys, tmp_path):
    dense = node("FullyConnected", "d", 0, 1, num_hidden="3")
    (tmp_path / "net.json").write_text(json.dumps({"nodes": [node("null", "data"), node("null", "w"), dense]}))
    for more in (["--speed", "9"], ["--memory"], []):
        status, out, err = said(capsys, "--model", str(tmp_path / "net.json"), *more)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert "give --input, as in 3,224,224" in err


MACHINE = "devices = 4\nnodes = 2\noverlap = true\ncores = 2\n" + "".join(
    f"[{where}]\nlatency = 1e-5\nbandwidth = 1e9\nsource = 's'\n" for where in ("inside", "between")
)
MACHINE += "[add]\nseconds_a_byte = 1e-12\n[samples_per_second]\nlenet = 100.0\n"
NET = "name = 'n'\nstep = {fixed = 1e-3, update = 1e-3, python = 1e-3, spread = 0.1}\nactivations = 30\n" + 2 * (
    "[[layer]]\nname = 'a'\nforward = 1e-5\nbackward = 2e-5\nparameters = 30\noutputs = 5\n"
)


def test_a_key_that_nobody_knows_is_named(capsys, tmp_path):
    """Each key of a machine and of a network, misspelt."""
    for option, text in (("--machine", MACHINE), ("--model", NET)):
        for start, stop in [match.span(1) for match in re.finditer(r"(?m)(\w+) =", text)]:
            wrong = f"{text[start:stop]}_x"
            (tmp_path / "x.toml").write_text(text[:start] + wrong + text[stop:])
            status, out, err = said(capsys, option, str(tmp_path / "x.toml"))
            assert (status, out, err.count("\n")) == (2, "", 1)
            assert f"no '{wrong}'; " in err


ODD = ["0", "1", "3", "0.5", "-1", "1e-320", "1e-12", "1e9", "1e308", "nan", "inf", "true", '"x"', "[]", "[1]", "{}"]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_a_file_says_is_predicted_in_finite_numbers_or_refused_in_a_sentence(data, capsys, tmp_path):
    """One or two numbers of good files are replaced by odd ones."""
    counted = re.sub("step = .*", "", NET).replace("forward", "operations").replace("backward = 2e-5", "")
    net, machine = data.draw(st.sampled_from([NET, counted])), MACHINE
    for _ in range(data.draw(st.integers(1, 2))):
        text = data.draw(st.sampled_from([net, machine]))
        start, stop = data.draw(st.sampled_from([m.span(1) for m in re.finditer(r"= ([^,{}\n]+)", text)]))
        changed = text[:start] + data.draw(st.sampled_from(ODD)) + text[stop:]
        net, machine = (changed, machine) if text is net else (net, changed)
    for name, text in (("net.toml", net), ("machine.toml", machine)):
        (tmp_path / name).write_text(text)
    speed = [] if "forward" in net else ["--speed", str(data.draw(st.sampled_from([1e-320, 1e-29, 3.0, 1e29])))]
    model = data.draw(st.sampled_from(["lenet", str(tmp_path / "net.toml")]))
    batch = str(data.draw(st.sampled_from([1, 7, 10**9, 10**400])))
    words = ["--model", model, "--machine", str(tmp_path / "machine.toml"), "--batch", batch, "--json"]
    words += data.draw(st.sampled_from([["--memory"], speed if model != "lenet" else []]))
    status, out, err = said(capsys, *words)
    if status == 0:
        found = json.loads(out, parse_constant=lambda text: pytest.fail(f"{text}\n{net}\n{machine}"))
        assert all(way["seconds"] > 0 and way["samples_per_second"] > 0 for way in found.get("ways", []))
        assert all(stage["bytes"] > 0 for stage in found.get("stages", []))
    else:
        assert (status, out, err.count("\n"), err[:6]) == (2, "", 1, "mxdp: ")


GIVEN = [
    *(f"--model {net}" for net in ("resnet50", "net.toml", "timed.toml", "net-symbol.json")),
    "--input 2,12,12", "--batch 7", "--speed 900", "--machine horovod-2017", "--devices 3", "--devices 1", "--nodes 3",
    "--nodes 2", "--link 10gbe", "--inside pcie", "--kind cpu", "--save x.toml", "--picture x.svg", "--html x.html",
    "--parameters 7e9", "--optimizer sgd", "--dtype mixed", "--room 9",
]  # fmt: skip


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    mode=st.sampled_from([[], ["--memory"], ["--published"], ["--published", "--memory"]]),
    given=st.lists(st.sampled_from(GIVEN), max_size=6, unique_by=lambda words: words.split()[0]),
)
def test_each_option_that_is_taken_has_an_effect(mode, given, capsys, monkeypatch, tmp_path):
    """Without it, something else is printed, written or refused."""
    monkeypatch.chdir(tmp_path)
    counted = re.sub("step = .*", "", NET).replace("forward", "operations").replace("backward = 2e-5", "")
    Path("net.toml").write_text(counted)
    Path("timed.toml").write_text(NET)
    layers = [node("null", "w"), node("Convolution", "c", 0, 1, num_filter="9", kernel="(3, 3)", no_bias="True")]
    layers += [node("null", "v"), node("FullyConnected", "d", 2, 3, num_hidden="3", no_bias="True")]
    Path("net-symbol.json").write_text(json.dumps({"nodes": [node("null", "data"), *layers]}))
    measured = inputs.as_toml(inputs.known_network("lenet", 1000.0)[0], "steps of ")
    for module, name, what in ((command.page, "page", "a page"), (command.page, "scaling_picture", b"a picture")):
        monkeypatch.setattr(module, name, lambda *asked, what=what: what)

    def run(words, **_):
        return SimpleNamespace(returncode=0, stdout=measured.replace("steps of ", " ".join(words[-4:])), stderr="")

    monkeypatch.setattr(command.subprocess, "run", run)

    def all_of(options):
        before = {path.name for path in Path().iterdir()}
        found = said(capsys, *mode, *" ".join(options).split())
        for name in {path.name for path in Path().iterdir()} - before:
            found = (*found, Path(name).read_bytes())
            Path(name).unlink()
        return found

    taken, result = [], all_of([])
    assert result[0] == 0
    for option in given:
        status, *rest = all_of([*taken, option])
        if status:
            _, err = rest
            assert (status, err.count("\n"), err[:6]) == (2, 1, "mxdp: ")
        else:
            taken, result = [*taken, option], (status, *rest)
    for option in taken:
        assert all_of([other for other in taken if other != option]) != result, option


VALUES = st.sampled_from([None, True, "1", math.nan, math.inf, -1, 0, 0.5, 1, 2.5, 7e9, 10**9, 10**9 + 1, 10**400])
VALUES |= st.sampled_from([checked.LEAST, checked.LEAST / 2, checked.MOST, 2 * checked.MOST, 1e-31, 1e31])


@given(VALUES, st.booleans())
def test_a_number_is_taken_if_it_is_one_and_in_its_range(value, zero):
    is_number = type(value) in (int, float)
    in_range = is_number and (1e-30 <= value <= 1e30 or (zero and value == 0))
    for check, taken in (
        (checked.checked_number, in_range),
        (checked.count, in_range and value == int(value)),
        (lambda value, what, zero: checked.whole(value, what), type(value) is int and 1 <= value <= 10**9),
    ):
        with nullcontext() if taken else pytest.raises(UsageError, match=r"^it is a (whole )?number") as refused:
            assert check(value, "it", zero) == value
        if not taken and is_number and 0 < value < math.inf and check is checked.checked_number:
            assert str(refused.value).endswith(f", from 1e-30 to 1e+30, not {value!r}")


def test_it_answers_a_reader_and_a_program_and_marks_every_number(capsys):
    assert main([*NODES, "--batch", "32"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert main([*NODES, "--json", "--batch", "32"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["answer"] in text
    assert {"published:", "assumed", "given"} <= set(text.partition("What this starts from")[2].split())
    assert (found["nodes"], found["devices"], found["batch"], found["parameters"]) == (64, 8, 32, 11_175_818)
    ring = next(way for way in found["ways"] if way["way"].startswith("ring"))
    assert ring["alone_seconds"] == pytest.approx(32 / 3000)
    assert ring["seconds"] == pytest.approx(ring["alone_seconds"] + sum(ring["lost_seconds"].values()))
    assert {each["mark"] for each in found["known"]} <= {"calibrated here", "published", "assumed", "given"}
    assert found["scaling"]["weak"][-1]["devices"] == 512


def test_the_layers_of_a_symbol_are_counted_and_its_attributes_are_no_code(tmp_path):
    code = f"__import__('pathlib').Path({str(tmp_path / 'evil')!r}).touch()"
    depthwise = dict(kernel="(3, 3)", num_filter="8", num_group="8", no_bias="True", pad="(1, 1)", layout=code)
    nodes = [node("null", "data"), node("null", "w"), node("Convolution", "conv", 0, 1, **depthwise)]
    (work,) = layers_of_symbol({"nodes": nodes}, "net", (8, 10, 10))
    assert (work.parameters, work.forward, work.outputs) == (8 * 9, 2 * 8 * 9 * 100, 800)
    assert not list(tmp_path.iterdir())


def test_a_measured_network_is_read_as_it_was_written(tmp_path):
    network = replace(inputs.known_network("resnet18", 1000.0)[0], fixed=1e-3, update=2e-3, python=3e-4, spread=0.04)
    file = tmp_path / "net.toml"
    file.write_text(inputs.as_toml(network, "a step \u2713"))
    assert inputs.known_network(str(file)) == (network, f"{file}, from a step \u2713")


def test_what_is_asked_for_is_measured_with_little_memory_and_said(capsys, monkeypatch, tmp_path):
    asked = []
    network = replace(inputs.known_network("lenet", 1000.0)[0], fixed=1e-3)
    done = SimpleNamespace(returncode=0, stdout=inputs.as_toml(network, "steps of 2, 4 samples"), stderr="")
    monkeypatch.setattr(command.subprocess, "run", lambda words, env, **_: asked.append((words[-4:], env)) or done)
    file = tmp_path / "net.toml"
    assert main(["predict", "--batch", "7", "--kind", "cpu", "--save", str(file), "--json"]) == 0
    ((words, env),) = asked
    assert (words, env["MXNET_CPU_TEMP_COPY"]) == (["lenet", "7", "cpu", "1,28,28"], "4")
    for again in ([], ["--model", str(file)]):
        if again:
            assert main(["predict", *again, "--json"]) == 0
        known = json.loads(capsys.readouterr().out)["known"]
        assert [each for each in known if each["source"].endswith("from steps of 2, 4 samples")]


@pytest.mark.parametrize(("sample", "sizes"), [(1e-4, [16, 32, 64]), (0.04, [2, 4, 8]), (9.0, [1])])
def test_a_long_step_is_measured_with_fewer_samples(sample, sizes, monkeypatch):
    """A step takes 1 ms, of which the update is a quarter, and ``sample`` for each sample."""
    from mxdp.experiments.predict import measured

    seconds = lambda model, batch, steps: (1e-3 + sample * len(batch[0]), 0.0)  # noqa: E731
    monkeypatch.setattr(measured, "seconds_a_step", seconds)
    monkeypatch.setattr(measured, "_update_seconds", lambda params: 2.5e-4)
    found, words = measured.measure_network("lenet", 64, "cpu", (1, 28, 28))
    assert words.startswith(f"steps of {', '.join(map(str, sizes))} samples on cpu(0)")
    if len(sizes) > 1:
        assert found.fixed == pytest.approx(7.5e-4)
        assert found.passes(8) + found.update == pytest.approx(1e-3 + 8 * sample)


def test_a_layer_has_the_medians_of_its_blocks_without_their_warm_ups(monkeypatch):
    """Of each block, rounds 1 to 5 take 1 to 5 forward and 10 to 50 backward; and a step a second more than its batch
    has samples."""
    from mxdp.experiments.predict import measured

    class Timer:
        def __init__(self):
            self.times = []

        def __enter__(self):
            turn, backward = divmod(len(self.times), 2)
            self.times.append((10 if backward else 1) * (turn or 1000))

        def __exit__(self, *error):
            """Nothing is left to do."""

    monkeypatch.setattr(measured, "Timer", Timer)
    monkeypatch.setattr(measured, "LONGEST_STEP", 99.0)
    monkeypatch.setattr(measured, "seconds_a_step", lambda model, batch, steps: (30.0 + len(batch[0]), 0.25))
    found, _ = measured.measure_network("lenet", 4, "cpu", (1, 28, 28))
    assert [layer.forward for layer in found.layers] == pytest.approx([share / 297 for share in (9, 9, 6, 3)])
    assert [layer.backward for layer in found.layers] == pytest.approx([10 * share / 297 for share in (9, 9, 6, 3)])
    assert (found.update, found.fixed, found.python, found.spread) == (10, pytest.approx(20), 0.25, 0)


def test_every_clock_of_a_measurement_stands_between_two_fences(virtual):
    from mxdp.experiments.predict import measured

    found, _ = measured.measure_network("lenet", 4, "cpu", (1, 28, 28))
    assert not virtual.readers
    assert len(found.layers) == 4


def test_a_symbol_is_measured_if_nobody_says_how_fast_it_is(capsys, tmp_path):
    from mxdp.backend import gluon

    layers = gluon.nn.Conv2D(4, 3), gluon.nn.BatchNorm(), gluon.nn.Dense(10)
    symbol, file, trained = exported(tmp_path, (3, 8, 8), *layers)
    given = ["predict", "--model", str(file), "--batch", "8", "--kind", "cpu", "--json"]
    assert main([*given, "--input", "3,8,8", "--devices", "2", "--save", str(tmp_path / "net.toml")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["parameters"] == trained
    assert {each["what"]: each["mark"] for each in found["known"]}["net: shares of its layers"] == "assumed"
    network, source = inputs.known_network(str(tmp_path / "net.toml"))
    assert source
    assert network.passes(8) + network.update == pytest.approx(found["ways"][0]["alone_seconds"])
    assert all(layer.backward == pytest.approx(2 * layer.forward) for layer in network.layers)
    next(each for each in symbol["nodes"] if each["op"] == "Convolution")["attrs"]["unheard"] = "of"
    file.write_text(json.dumps(symbol))
    assert main([*given, "--input", "3,8,8"]) == 1
    assert re.fullmatch(
        r"mxdp: .*net-symbol.json can't be measured here: .*; give --speed, .*\n", capsys.readouterr().err
    )


LINK = Link(5e-5, 1e-9)


@settings(max_examples=25)
@given(
    devices=st.integers(1, 12),
    nodes=st.integers(1, 5),
    batch=st.integers(1, 64),
    model=st.sampled_from(["lenet", "resnet18"]),
)
def test_each_way_is_what_the_model_says_and_the_best_ones_are_taken(devices, nodes, batch, model):
    network, cluster = inputs.known_network(model, 3000.0)[0], Cluster(devices, nodes, LINK, LINK)
    count = devices * nodes
    rows = all_ways(network, cluster, batch)
    for row in rows:
        assert row.step == predict_step(network, cluster, batch, row.way)
        assert (row.step.limit == "nothing") is (f"{row.step.efficiency:.0%}" in ("100%", "101%"))
    plain, names = rows, ["one device"]
    if count > 1:
        known = [name for name in NODE_ALLREDUCES if name != "two-level" or min(devices, nodes) > 1]
        plain = rows[: len(known)]
        assert [row.way.allreduce for row in plain] == known
        for row in plain:
            every = [Way(row.way.allreduce, mib * 2**20) for mib in BUCKETS]
            least = min(predict_step(network, cluster, batch, way).seconds for way in every)
            assert row.step.seconds == least
            assert row.title == f"{row.way.allreduce}, buckets of {row.way.bucket / 2**20:g} MiB"
        best = min(plain, key=lambda row: row.step.seconds).way
        half = min((row for row in plain if row.way.allreduce in HALVES), key=lambda row: row.step.seconds).way
        names = [f"{best.allreduce}, 4 passes a sum", f"{half.allreduce}, optimiser in shards"]
        assert rows[len(plain)].way == replace(best, accumulate=4)
        assert rows[len(plain) + 1].way == replace(half, shard_optimizer=True)
        stages = max(n for n in range(1, devices + 1) if devices % n == 0 and n <= len(network.layers))
        if stages > 1:
            replicas = f" x {count // stages} replicas" if count > stages else ""
            names.append(f"pipeline of {stages} stages{replicas}")
            assert (rows[-1].way.stages, rows[-1].way.micro_batches) == (stages, 4 * stages)
    assert [row.title for row in rows[-len(names) :]] == names
    curves = scaling(network, cluster, batch)
    ring = next((row.step for row in rows if row.way.allreduce == "ring"), rows[0].step)
    found = Predicted(network, cluster, batch, rows, curves, [])
    if count == 1:
        assert found.answer.endswith(f"{network.name} takes {1e3 * rows[0].step.seconds:.3g} ms a step.")
    else:
        reaches = max(row.step.efficiency for row in plain)
        better = f"; with {min(plain, key=lambda row: row.step.seconds).way.allreduce} {reaches:.0%}."
        much = reaches - ring.efficiency > LITTLE
        assert (better if much else OTHERS) in found.answer
        assert ("and nothing limits it" in found.answer) is (ring.limit == "nothing")
        assert found.answer.endswith(" Published systems reached 71 to 98% of such predictions.")
        assert f"On {cluster} {network.name} reaches {ring.efficiency:.0%} of linear with a ring, " in found.answer
    weak, strong = curves["weak"], curves["strong"]
    assert weak[-1][0] == count
    assert all(n in (1, count) or n % devices == 0 or n < devices for n, _ in weak)
    assert weak[-1][1] == pytest.approx(count * max(row.step.efficiency for row in plain))
    assert strong[0] == (1, pytest.approx(1))
    alone = network.passes(batch * devices) + network.update
    for n, speedup in strong:
        shared = allreduces(network, cluster.of(n), batch * devices / n)
        assert speedup == pytest.approx(alone / min(row.step.seconds for row in shared))
    assert [n for n, _ in strong] == [n for n, _ in weak if n <= batch * devices]


def test_at_least_eight_published_figures_have_a_source_and_a_distance(capsys):
    found = published.figures("figure")
    assert len({each.source for each in found}) >= 8
    assert all(each.published > 0 and each.predicted > 0 for each in found)
    for table in inputs.read(Path(published.__file__).with_name("published.toml"))["figure"]:
        # A published speed-up is over the speed from which is predicted, not over that of another version.
        known = inputs.machine(table["machine"]).samples_per_second.get(table.get("network"))
        assert "rates" not in table or table["rates"][1] == known or table["batch"] == 32
        assert len({"rates", "speedup", "busbw"} & set(table)) == 1
    assert main(["predict", "--published", "--json"]) == 0
    assert [each["what"] for each in json.loads(capsys.readouterr().out)] == [each.what for each in found]


@pytest.mark.parametrize("name", sorted(path.stem for path in inputs.MACHINES.glob("*.toml")))
def test_every_machine_of_the_package_can_be_predicted(name):
    found = inputs.machine(name)
    assert found.source
    assert set(found.samples_per_second) <= set(NETWORKS)
    for network, rate in found.samples_per_second.items():
        assert all_ways(inputs.known_network(network, rate)[0], found.cluster, 64)


def test_the_list_of_layers_in_the_page_is_read(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "predict.md").read_text(encoding="utf-8")
    (tmp_path / "mine.toml").write_text(re.search(r"```toml\n(.*?)```", page, re.DOTALL)[1])
    network, source = inputs.known_network(str(tmp_path / "mine.toml"))
    assert source == str(tmp_path / "mine.toml")
    assert (network.name, network.spread, network.layers[0].outputs) == ("mine", 0.05, 200704)
    machines = re.search(r"one of (`big-basin`.*?) \|", page)[1]
    assert set(re.findall("`(.*?)`", machines)) == {path.stem for path in inputs.MACHINES.glob("*.toml")}


def test_a_machine_may_have_devices_that_share_cores_and_cannot_hide_sums(capsys, tmp_path):
    def step(text):
        (tmp_path / "own.toml").write_text(text + LINKED)
        words = ["--model", "resnet18", "--speed", "100", "--machine", str(tmp_path / "own.toml"), "--json"]
        found = json.loads(said(capsys, *words)[1])
        assert ("given" in {each["mark"] for each in found["known"] if "cores" in each["what"]}) is bool(text)
        return next(way for way in found["ways"] if way["way"].startswith("ring"))

    own, shared, one_by_one = (step(text) for text in ("", "cores = 2\n", "overlap = false\n"))
    assert shared["limit"] == "Python and shared cores"
    assert shared["lost_seconds"][shared["limit"]] == pytest.approx(own["alone_seconds"])  # twice as long
    assert one_by_one["seconds"] > own["seconds"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parameters=st.integers(1, 9).map(lambda billions: 1e9 * billions),
    devices=st.sampled_from([1, 2, 3, 5, 8]),
    optimizer=st.sampled_from([None, *fits.STATE]),
    dtype=st.sampled_from([None, *fits.BYTES]),
    batch=st.integers(1, 4096),
    model=st.sampled_from(["lenet", "vgg16", "all.toml", "part.toml", ""]),
    place=st.integers(0, 3),
    more=st.sampled_from([0.5, 1 - 1e-9, 1.0, 1 + 1e-9, 2.0]),
)
def test_what_fits_has_at_most_the_bytes_of_the_room(
    parameters, devices, optimizer, dtype, batch, model, place, more, monkeypatch, tmp_path
):
    """The room is that of one of the stages, or a little less or more."""
    monkeypatch.chdir(tmp_path)
    Path("all.toml").write_text(NET)
    Path("part.toml").write_text(NET.replace("activations = 30", ""))
    asked = dict(input=None, optimizer=optimizer, dtype=dtype, parameters=None if model else parameters, model=model)

    def predicted(room):
        return fits.predicted(SimpleNamespace(**asked, room=room), devices, batch)

    room = more * predicted(None)[0]["stages"][place]["bytes"] / 1e9
    found, rows = predicted(room)
    assert (found["optimizer"], found["dtype"], found["room"]) == (optimizer or "adam", dtype or "float32", 1e9 * room)
    kinds = ("parameters", "gradients", "state", "activations", "gathered")
    first = "none fits."
    for stage, row, title in reversed(list(zip(found["stages"], rows, fits.STAGES))):
        assert stage["bytes"] == pytest.approx(sum(stage[kind] or 0 for kind in kinds))
        assert stage["fits"] is (stage["bytes"] <= found["room"])
        assert (row[0], row[-1]) == (title, "yes" if stage["fits"] else "no")
        of_model = sum(stage[kind] for kind in kinds[:3])
        numbers = [*(stage[kind] for kind in kinds[:3]), of_model, stage["activations"], stage["gathered"]]
        for cell, nbytes in zip(row[1:], [*numbers, stage["bytes"]]):
            assert cell == ("–" if nbytes is None else number(nbytes / 1e9) if nbytes else "0")
        if stage["fits"]:
            but = {"": " without activations", "part.toml": " with a part of the activations"}.get(model, "")
            first = f"the first that fits{but} is {title}."
    assert found["answer"].endswith(first)
    copies, sharded = (sum(found["stages"][at][kind] or 0 for kind in (*kinds[:3], "gathered")) for at in (0, -1))
    assert (
        f" of {room:g} GB: {copies / 1e9:.4g} GB each by copies, {sharded / 1e9:.4g} GB fully sharded; "
        in found["answer"]
    )
    assert (" of activations; " in found["answer"]) is bool(model)
    words = {"": "neither activations nor gathered layers", "part.toml": "only what the layers hand on"}
    assert words.get(model, "all arrays that MXNet keeps for the backward pass") in found["counted"]
    if model.endswith("toml"):
        assert (
            found["stages"][0]["activations"]
            == fits.BYTES[found["dtype"]] * batch * {"all.toml": 30, "part.toml": 5 + 5}[model]
        )


def test_published_memory_is_ours_to_the_digits_that_were_printed(capsys):
    found = published.figures("memory")
    assert [figure.published for figure in found] == [112, 14, 120, 31.4, 16.6, 1.9]
    for figure in found:
        digits = len(str(figure.published).partition(".")[2])
        assert round(figure.predicted, digits) == figure.published
        assert figure.source
    assert main(["predict", "--memory", "--published", "--json"]) == 0
    assert [record["ours"] for record in json.loads(capsys.readouterr().out)] == [each.predicted for each in found]
    assert main(["predict", "--memory", "--published"]) == 0
    assert "31.4 GB" in capsys.readouterr().out
    page = (Path(__file__).parents[2] / "docs" / "predict.md").read_text(encoding="utf-8")
    for figure in found:
        assert f"| {figure.published:g} GB | {figure.predicted:.3g} GB |" in page
