"""``python -m mxdp.experiments predict``: what it reads, says and refuses."""

import contextlib
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mxdp.errors import UsageError
from mxdp.experiments.__main__ import main
from mxdp.experiments.predict import checked, command, fits, inputs, published
from mxdp.experiments.predict.ways import BUCKETS, OTHERS, Predicted, all_ways, allreduces, scaling
from mxdp.experiments.show.style import number
from mxdp.plans.cost.cluster import HALVES, NODE_ALLREDUCES, Cluster
from mxdp.plans.cost.link import Link
from mxdp.plans.cost.step import LITTLE, predict_step

MACHINE = "devices = 4\nnodes = 2\noverlap = true\ncores = 2\n" + "".join(
    f"[{where}]\nlatency = 1e-5\nbandwidth = 1e9\nsource = 's'\n" for where in ("inside", "between")
)
MACHINE += "[add]\nseconds_a_byte = 1e-12\n[samples_per_second]\nlenet = 100.0\n"


def said(capsys, *words):
    status = main(["predict", *words])
    return status, *capsys.readouterr()


def node(op, name, *inputs, **attributes):
    return {"op": op, "name": name, "inputs": [[at, 0, 0] for at in inputs], "attrs": attributes}


def symbol(*operators):
    return json.dumps({"nodes": [node("null", "data"), *operators]})


LAYER = "[[layer]]\nforward = 1\nbackward = 1\n"


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("net.toml", "layer = [3]", "has no layer with parameters"),
        ("net.toml", f"{LAYER.replace('1', '0')}parameters = 3", "no layer takes any time"),
        ("net.toml", "[[layer]]\noperations = 0\nparameters = 3", "all layers have 0 operations"),
        ("net.toml", f"{LAYER}parameters = 3", "so --speed has no effect"),
        ("net.toml", f"{LAYER}operations = 1\nparameters = 3", "give every layer its operations, or forward and"),
        ("net.json", "[]", "is not a symbol that MXNet exported"),
        ("without-input.json", symbol(), "give --input, as in 3,224,224"),
        ("own.toml", "devices = 2", "a machine has devices, nodes, [inside] and [between]"),
        pytest.param("net.json", "[" * 100_000, "is not the JSON of a symbol", id="deep"),
        ("net.json", symbol(), "has no parameters: there is nothing to train"),
        ("net.json", symbol(node("RNN", "rnn", 0)), "operator RNN costs"),
        (
            "own.toml",
            MACHINE.replace("overlap = true", "overlap = 1"),
            "whether sums run beside the backward pass, is true or false, not 1",
        ),
        ("letnet", "", "there is no such file or network; did you mean lenet?"),
        ("resnet50 --nodes 100000", "", "make 800,000 devices: the most are 65,536"),
        ("resnet50 --input 3,x", "", "--input 3,x: give channels, height and width"),
    ],
)
def test_what_can_not_be_is_refused_in_a_sentence(name, text, sentence, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    if text:
        Path(name.split()[0]).write_text(text)
    option = "--machine" if name == "own.toml" else "--model"
    more = ["--input", "1,28,28"] if name == "net.json" else []
    status, out, err = said(capsys, option, *name.split(), "--speed", "100", *more)
    assert (status, out, err[:6], err.count("\n")) == (2, "", "mxdp: ", 1)
    assert sentence.replace("'", "") in err.replace("'", "")


NET = "name = 'n'\nstep = {fixed = 1e-3, update = 1e-3, python = 1e-3, spread = 0.1}\nactivations = 30\n" + 2 * (
    "[[layer]]\nname = 'a'\nforward = 1e-5\nbackward = 2e-5\nparameters = 30\noutputs = 5\n"
)
COUNTED = re.sub("step = .*", "", NET).replace("forward", "operations").replace("backward = 2e-5", "")


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
    net, machine = data.draw(st.sampled_from([NET, COUNTED])), MACHINE
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
    Path("net.toml").write_text(COUNTED)
    Path("timed.toml").write_text(NET)
    layers = node("null", "w"), node("FullyConnected", "d", 0, 1, num_hidden="3", no_bias="True")
    Path("net-symbol.json").write_text(symbol(*layers))
    measured = inputs.as_toml(inputs.known_network("lenet", 1000.0)[0], "steps of ")
    for module, name, what in ((command.page, "page", "a page"), (command.page, "scaling_picture", b"a picture")):
        monkeypatch.setattr(module, name, lambda *asked, what=what: what)

    def run(words, **_):
        return SimpleNamespace(returncode=0, stdout=measured.replace("steps of ", " ".join(words[-4:])), stderr="")

    monkeypatch.setattr(command.subprocess, "run", run)

    def all_of(options):
        status, *found = said(capsys, *mode, *" ".join(options).split())
        for file in Path().glob("x.*"):
            found.append(file.read_bytes())
            file.unlink()
        return status, *found

    taken, result = [], all_of([])
    for option in given:
        found = all_of([*taken, option])
        if found[0]:
            assert (found[0], found[2].count("\n"), found[2][:6]) == (2, 1, "mxdp: ")
        else:
            taken, result = [*taken, option], found
    for option in taken:
        assert all_of([other for other in taken if other != option]) != result, option


VALUES = st.sampled_from([None, True, "1", math.nan, math.inf, -1, 0, 0.5, 1, 2.5, 7e9, 10**9, 10**9 + 1, 10**400])
VALUES |= st.sampled_from([checked.LEAST, checked.LEAST / 2, checked.MOST, 2 * checked.MOST, 1e-31, 1e31])


@given(VALUES, st.booleans())
def test_a_number_is_taken_if_it_is_one_and_in_its_range(value, zero):
    is_number = type(value) in (int, float)
    in_range = is_number and (1e-30 <= value <= 1e30 or (zero and value == 0))
    whole = lambda value, what, zero: checked.whole(value, what)  # noqa: E731
    for check, taken in (
        (checked.checked_number, in_range),
        (checked.count, in_range and value == int(value)),
        (whole, type(value) is int and 1 <= value <= 10**9),
    ):
        if taken:
            assert check(value, "it", zero) == value
        else:
            with pytest.raises(UsageError, match=r"^it is a (whole )?number") as refused:
                check(value, "it", zero)
            if is_number and 0 < value < math.inf and check is checked.checked_number:
                assert str(refused.value).endswith(f", from 1e-30 to 1e+30, not {value!r}")


def test_it_answers_a_reader_and_a_program_and_marks_every_number(capsys, tmp_path):
    words = ["--model", "resnet18", "--speed", "3000", "--nodes", "64", "--batch", "32"]
    text = " ".join(said(capsys, *words)[1].split())
    found = json.loads(said(capsys, *words, "--json")[1])
    assert found["answer"] in text
    assert {"published:", "assumed", "given"} <= set(text.partition("What this starts from")[2].split())
    assert {each["mark"] for each in found["known"]} <= {"calibrated here", "published", "assumed", "given"}
    assert (found["nodes"], found["devices"], found["batch"], found["parameters"]) == (64, 8, 32, 11_175_818)
    said(capsys, *words, "--html", str(tmp_path / "page.html"))
    assert "of 512 devices" in (tmp_path / "page.html").read_text()
    assert [each["mark"] for each in found["known"] if each["what"].endswith(": one device")] == ["given"]
    own = json.loads(said(capsys, "--model", "resnet18", "--machine", "d2l-2-gpus", "--json")[1])["known"]
    assert [each["mark"] for each in own if each["what"].endswith(": one device")] == ["published"]
    ring = next(way for way in found["ways"] if way["way"].startswith("ring"))
    assert ring["alone_seconds"] == pytest.approx(32 / 3000)
    assert ring["seconds"] == pytest.approx(ring["alone_seconds"] + sum(ring["lost_seconds"].values()))


def test_a_measured_network_is_read_as_it_was_written(tmp_path):
    network = replace(inputs.known_network("resnet18", 1000.0)[0], fixed=1e-3, update=2e-3, python=3e-4, spread=0.04)
    file = tmp_path / "net.toml"
    file.write_text(inputs.as_toml(network, "a step \u2713"))
    assert inputs.known_network(str(file)) == (network, f"{file}, from a step \u2713")


def test_what_is_asked_for_is_measured_with_little_memory_and_said(capsys, monkeypatch, tmp_path):
    asked, file = [], str(tmp_path / "net.toml")
    network = replace(inputs.known_network("lenet", 1000.0)[0], fixed=1e-3)
    done = SimpleNamespace(returncode=0, stdout=inputs.as_toml(network, "steps of 2, 4 samples"), stderr="")
    monkeypatch.setattr(command.subprocess, "run", lambda words, env, **_: asked.append((words[-4:], env)) or done)
    for words in (["--batch", "7", "--kind", "cpu", "--save", file], ["--model", file]):
        known = json.loads(said(capsys, *words, "--json")[1])["known"]
        assert [each for each in known if each["source"].endswith("from steps of 2, 4 samples")]
    ((words, env),) = asked
    assert (words, env["MXNET_CPU_TEMP_COPY"]) == (["lenet", "7", "cpu", "1,28,28"], "4")


@pytest.mark.parametrize(("sample", "sizes"), [(1e-4, [16, 32, 64]), (0.04, [2, 4, 8]), (9.0, [1])])
def test_a_long_step_is_measured_with_fewer_samples(sample, sizes, monkeypatch):
    """A step takes 1 ms, of which the update is a quarter, and ``sample`` for each sample."""
    from mxdp.experiments.predict import measured

    seconds = lambda model, batch, steps: (1e-3 + sample * len(batch[0]), 0.0)  # noqa: E731
    monkeypatch.setattr(measured, "seconds_a_step", seconds)
    monkeypatch.setattr(measured, "_update_seconds", lambda params: 2.5e-4)
    monkeypatch.setattr(measured, "_timed", lambda name, layers, model, x: layers)
    found, words = measured.measure_network("lenet", 64, "cpu", (1, 28, 28))
    assert words.startswith(f"steps of {', '.join(map(str, sizes))} samples on cpu(0)")
    if len(sizes) > 1:
        assert found.fixed == pytest.approx(7.5e-4)
        assert found.passes(8) + found.update == pytest.approx(1e-3 + 8 * sample)


def test_a_layer_has_the_medians_of_its_blocks_without_their_warm_ups(monkeypatch):
    """Of each block, rounds 1 to 5 take 1 to 5 forward and 10 to 50 backward; a step 30 and its batch's samples."""
    from mxdp.experiments.predict import measured

    class Timer(contextlib.nullcontext):
        def __init__(self):
            super().__init__()
            self.times = []

        def __exit__(self, *error):
            turn, backward = divmod(len(self.times), 2)
            self.times.append((10 if backward else 1) * (turn or 1000))

    monkeypatch.setattr(measured, "Timer", Timer)
    monkeypatch.setattr(measured, "LONGEST_STEP", 99.0)
    monkeypatch.setattr(measured, "seconds_a_step", lambda model, batch, steps: (30.0 + len(batch[0]), 0.25))
    found, _ = measured.measure_network("lenet", 4, "cpu", (1, 28, 28))
    shares = [share / 297 for share in (9, 9, 6, 3)]
    assert [layer.forward for layer in found.layers] == pytest.approx(shares)
    assert [layer.backward for layer in found.layers] == pytest.approx([10 * share for share in shares])
    assert (found.update, found.fixed, found.python, found.spread) == (10, pytest.approx(20), 0.25, 0)


def test_every_clock_of_a_measurement_stands_between_two_fences(virtual):
    from mxdp.experiments.predict import measured

    found, _ = measured.measure_network("lenet", 4, "cpu", (1, 28, 28))
    assert not virtual.readers
    assert len(found.layers) == 4


def test_a_symbol_is_measured_if_nobody_says_how_fast_it_is(capsys, tmp_path):
    from mxdp.backend import gluon, np

    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(4, 3), gluon.nn.BatchNorm(), gluon.nn.Dense(10))
    net.initialize()
    net.hybridize()
    net(np.zeros((1, 3, 8, 8)))
    net.export(str(tmp_path / "net"))
    file = tmp_path / "net-symbol.json"
    given = ["--model", str(file), "--batch", "8", "--kind", "cpu", "--input", "3,8,8", "--json"]
    found = json.loads(said(capsys, *given, "--devices", "2", "--save", str(tmp_path / "net.toml"))[1])
    trained = [param.data().size for param in net.collect_params().values() if param.grad_req != "null"]
    assert found["parameters"] == sum(trained)
    assert {each["what"]: each["mark"] for each in found["known"]}["net: shares of its layers"] == "assumed"
    network, _ = inputs.known_network(str(tmp_path / "net.toml"))
    assert network.passes(8) + network.update == pytest.approx(found["ways"][0]["alone_seconds"])
    file.write_text(file.read_text().replace('"kernel"', '"unheard": "of", "kernel"'))
    status, _, err = said(capsys, *given)
    assert status == 1
    assert re.fullmatch(r"mxdp: .*net-symbol.json can't be measured here: .*unheard.*; give --speed, .*\n", err)


@settings(max_examples=25)
@given(
    devices=st.integers(1, 12),
    nodes=st.integers(1, 5),
    batch=st.integers(1, 64),
    model=st.sampled_from(["lenet", "resnet18"]),
)
def test_each_way_is_what_the_model_says_and_the_best_ones_are_taken(devices, nodes, batch, model):
    link = Link(5e-5, 1e-9)
    network = replace(inputs.known_network(model, 3000.0)[0], update=0.001)
    cluster = Cluster(devices, nodes, link, link)
    count = devices * nodes
    rows, plain = all_ways(network, cluster, batch), allreduces(network, cluster, batch)
    assert all(row.step == predict_step(network, cluster, batch, row.way) for row in rows)
    assert rows[: len(plain)] == plain
    best = min(plain, key=lambda row: row.step.seconds)
    curves = scaling(network, cluster, batch)
    answer = Predicted(network, cluster, batch, rows, curves, []).answer
    if count == 1:
        assert answer.endswith(f"{network.name} takes {1e3 * best.step.seconds:.3g} ms a step.")
    else:
        alike = {"two-level"} if 1 in (devices, nodes) else set()
        assert {row.way.allreduce for row in plain} == set(NODE_ALLREDUCES) - alike
        for row in plain:
            every = [replace(row.way, bucket=mib * 2**20) for mib in BUCKETS]
            assert row.step.seconds == min(predict_step(network, cluster, batch, way).seconds for way in every)
        passes, sharded, *piped = rows[len(plain) :]
        half = min((row for row in plain if row.way.allreduce in HALVES), key=lambda row: row.step.seconds)
        assert passes.way == replace(best.way, accumulate=4)
        assert sharded.way == replace(half.way, shard_optimizer=True)
        assert all(devices % row.way.stages == 0 and row.way.micro_batches == 4 * row.way.stages for row in piped)
        ring = next(row.step for row in plain if row.way.allreduce == "ring")
        better = f"; with {best.way.allreduce} {best.step.efficiency:.0%}."
        assert (better if best.step.efficiency - ring.efficiency > LITTLE else OTHERS) in answer
        assert f"On {cluster} {network.name} reaches {ring.efficiency:.0%} of linear with a ring, " in answer
    weak, strong = curves["weak"], curves["strong"]
    assert weak[-1] == (count, pytest.approx(count * best.step.efficiency))
    assert [n for n, _ in strong] == [n for n, _ in weak if n <= batch * devices]
    alone = network.passes(batch * devices) + network.update
    for n, speedup in strong:
        shared = allreduces(network, cluster.of(n), batch * devices / n)
        assert speedup == pytest.approx(alone / min(row.step.seconds for row in shared))


def test_at_least_eight_published_figures_have_a_source_and_a_distance(capsys):
    found = published.figures("figure")
    assert len({each.source for each in found}) >= 8
    assert all(each.published > 0 and each.predicted > 0 for each in found)
    shown = json.loads(said(capsys, "--published", "--json")[1])
    assert [each["what"] for each in shown] == [each.what for each in found]


def test_every_machine_of_the_package_can_be_predicted():
    for path in inputs.MACHINES.glob("*.toml"):
        found = inputs.machine(path.stem)
        assert found.source
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
    fitting = []
    for stage, row, title in zip(found["stages"], rows, fits.STAGES):
        parts = [stage[kind] for kind in ("parameters", "gradients", "state", "activations", "gathered")]
        assert stage["bytes"] == pytest.approx(sum(filter(None, parts)))
        assert stage["fits"] is (stage["bytes"] <= 1e9 * room)
        fitting += [title] * stage["fits"]
        numbers = [*parts[:3], sum(parts[:3]), *parts[3:], stage["bytes"]]
        cells = ["–" if nbytes is None else number(nbytes / 1e9) if nbytes else "0" for nbytes in numbers]
        assert row == [title, *cells, "yes" if stage["fits"] else "no"]
    but = {"": " without activations", "part.toml": " with a part of the activations"}.get(model, "")
    assert found["answer"].endswith(f"the first that fits{but} is {fitting[0]}." if fitting else "none fits.")
    activations = found["stages"][0]["activations"]
    copies, *_, sharded = (f"{(stage['bytes'] - (activations or 0)) / 1e9:.4g} GB" for stage in found["stages"])
    assert f" of {room:g} GB: {copies} each by copies, {sharded} fully sharded; " in found["answer"]
    assert (" of activations; " in found["answer"]) is bool(model)
    if model.endswith("toml"):
        kept = {"all.toml": 30, "part.toml": 5 + 5}[model]
        assert activations == fits.BYTES[dtype or "float32"] * batch * kept


def test_published_memory_is_ours_to_the_digits_that_were_printed(capsys):
    found = published.figures("memory")
    assert [figure.published for figure in found] == [112, 14, 120, 31.4, 16.6, 1.9]
    for figure in found:
        digits = len(str(figure.published).partition(".")[2])
        assert (round(figure.predicted, digits), bool(figure.source)) == (figure.published, True)
    shown = json.loads(said(capsys, "--memory", "--published", "--json")[1])
    assert [record["ours"] for record in shown] == [each.predicted for each in found]
    page = (Path(__file__).parents[2] / "docs" / "predict.md").read_text(encoding="utf-8")
    for figure in found:
        assert f"| {figure.published:g} GB | {figure.predicted:.3g} GB |" in page
