"""The page ``live/``: its numbers beside those of the commands, and the page itself in a real browser."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import random
import re
import shutil
import threading
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlencode

import pytest
from browser import MISSING, REASON, Browser

from mxdp.experiments import __main__ as experiments
from mxdp.experiments.predict import inputs
from mxdp.experiments.show.style import number
from mxdp.live.drawn import as_bytes, milliseconds
from mxdp.live.page import TOPICS, answer
from mxdp.plans import __main__ as plans

TOOLS = Path(__file__).resolve().parents[1] / "tools"
SECONDS = 120
"""For Python to load in a browser, on a machine that does other work."""


def drawn(name, seed):
    """Settings of a topic, drawn at random, and what the page shows for them."""
    chooser = random.Random(seed)
    settings = {control.key: chooser.choice(control.allowed) for control in TOPICS[name].controls}
    return settings, json.loads(answer(f"{name}?{urlencode(settings)}"))


def tables_of(shown):
    """The texts of all cells below the headings, by the caption of their table."""
    tables = {}
    for caption, body in re.findall(r"<caption>(.*?)</caption>(.*?)</table>", shown["html"]):
        rows = [re.findall(r"<t[hd].*?>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", body)]
        tables[caption] = [[re.sub("<.*?>", "", cell) for cell in row] for row in rows]
    return tables


@pytest.fixture
def printed(capsys):
    """What a command prints as JSON."""

    def run(main, *words):
        capsys.readouterr()
        assert main([*map(str, words), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


SEEDS = pytest.mark.parametrize("seed", range(3))


@SEEDS
def test_an_allreduce_is_that_of_the_commands(seed, printed):
    s, shown = drawn("allreduce", seed)
    if "error" in shown:
        s["place"] = "memory"
        shown = json.loads(answer(f"allreduce?{urlencode(s)}"))
    plan = printed(plans.main, s["algorithm"], s["devices"])
    tables = tables_of(shown)
    sent = [0] * s["devices"]
    for step in plan["steps"]:
        for send in step:
            if send["action"] != "read":
                sent[send["source"]] += s["bytes"] / plan["chunks"]
    assert tables["Time of a step"][-1][0].split(" to ")[-1] == str(len(plan["steps"]))
    assert {row[1] for row in tables["Sent in all"][1:]} == {*map(as_bytes, sent)}


@pytest.mark.parametrize("name", ["naive", "ring", "tree", "doubling"])
def test_an_allreduce_takes_as_long_as_on_a_cluster_of_one_node(name):
    for place, devices, nbytes in (("pcie", 2, 4), ("10gbe", 6, 1 << 16), ("pcie", 16, 1 << 30)):
        seconds = inputs.machine(devices=devices, inside=place).cluster.exchange(name, nbytes).seconds
        shown = json.loads(answer(f"allreduce?algorithm={name}&devices={devices}&bytes={nbytes}&place={place}"))
        assert shown["said"].startswith(f"{name} takes {milliseconds(seconds)} for {as_bytes(nbytes)} on")


def test_of_a_tie_both_sides_are_named():
    """Lesson 2 asks which of the two is faster for four bytes: each has 2 (k - 1) starts, one after another."""
    said = json.loads(answer("allreduce?algorithm=naive&devices=4&bytes=4&place=pcie"))["said"]
    assert re.search(r" on 4 devices, as long as [^;]*\bring\b[^;]*; doubling takes ", said)


@pytest.mark.parametrize("topic", TOPICS)
def test_the_ends_of_each_slider_have_an_answer(topic):
    for control in TOPICS[topic].controls:
        for value in (control.allowed[0], control.allowed[-1]):
            shown = json.loads(answer(f"{topic}?{urlencode({control.key: value})}"))
            assert "error" not in shown, (control.key, value)
            assert set(shown["idle"]) <= set(shown["values"])


@SEEDS
def test_scaling_is_that_of_predict(seed, printed):
    s, _ = drawn("scaling", seed)
    s["speed"] = s["speed"] or 100
    s["bucket"] = 0
    shown = json.loads(answer(f"scaling?{urlencode(s)}"))
    words = ["--model", s["model"], "--speed", s["speed"], "--batch", s["batch"], "--devices", s["devices"]]
    words += ["--nodes", s["nodes"], "--inside", s["inside"], "--link", s["between"]]
    found = printed(experiments.main, "predict", *words)
    assert shown["said"].endswith(found["answer"])
    tables = tables_of(shown)
    ways = tables["A step and its all-reduce, ms"][1:]
    assert [row[-1] for row in ways] == [number(1e3 * way["seconds"]) for way in found["ways"][: len(ways)]]
    for shares, weak, strong in zip(tables.get("Of linear scaling", [])[1:], *found["scaling"].values()):
        for share, point in zip(shares[1:], (weak, strong)):
            assert share == f"{100 * point['speedup'] / point['devices']:.3g} %"


@SEEDS
def test_memory_is_that_of_predict(seed, printed):
    s, shown = drawn("memory", seed)
    words = ["--optimizer", s["optimizer"], "--dtype", s["dtype"], "--room", s["room"], "--devices", s["devices"]]
    size = ["--model", s["model"], "--batch", s["batch"]]
    if s["model"][0].isdigit():
        size = ["--parameters", s["model"]]
    found = printed(experiments.main, "predict", "--memory", *size, *words)
    assert shown["said"] == found["answer"]
    stages = next(rows for caption, rows in tables_of(shown).items() if caption.startswith("Every stage"))
    assert [row[-1] for row in stages[1:]] == [number(stage["bytes"] / 1e9) for stage in found["stages"]]


@SEEDS
def test_a_pipeline_is_that_of_plans(seed, printed):
    s, shown = drawn("pipeline", seed)
    plan = printed(plans.main, s["schedule"], s["stages"], "--micro-batches", s["micro-batches"])
    heading, *rows = tables_of(shown)["Micro-batches kept"]
    column = heading.index(s["schedule"])
    for row, tasks in zip(rows, plan["tasks"]):
        alive = itertools.accumulate(1 if task["kind"] == "F" else -1 for task in tasks)
        assert int(row[column]) == max(alive)
    assert f" takes {2 * (s['micro-batches'] + s['stages'] - 1)} cycles, " in shown["said"]


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("allreduce?devices=99", r"devices is 2, 3, .* or 16, not '99': change it in the address"),
        ("allreduce?device=4", r"no setting here is called 'device'; did you mean 'devices'\?"),
        ("allreduce?algorithm=shared-memory&place=pcie", r"shared-memory reads the other devices' memory: take "),
        ("pipelines", r"no part of this page is called 'pipelines'; did you mean 'pipeline'\?"),
    ],
)
def test_what_is_wrong_in_an_address_is_a_sentence(address, sentence):
    assert re.match(sentence, json.loads(answer(address)).pop("error"))


@pytest.fixture(scope="module")
def live():
    """The tool that makes the page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOOLS))
        import live
    return live


def test_another_archive_than_the_pinned_one_is_refused(live, tmp_path, monkeypatch):
    monkeypatch.setattr(live, "ROOT", tmp_path)
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / f"pyodide-{live.VERSION}.tgz").write_bytes(b"another")
    with pytest.raises(live.MxdpError, match="is not what was pinned"):
        live.build(tmp_path / "live", "")
    shutil.rmtree(tmp_path / "build")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(live.MxdpError, match="npm is missing"):
        live.build(tmp_path / "live", "")
    assert not (tmp_path / "live").exists()


@pytest.fixture(scope="module")
def site(live, tmp_path_factory):
    """The address of the page, which a thread serves."""
    folder = tmp_path_factory.mktemp("live")
    try:
        live.build(folder, "measured.txt")
    except live.MxdpError as error:
        pytest.skip(str(error))

    with served(folder) as address:
        yield address


@contextlib.contextmanager
def served(folder):
    """Serve the folder, and give its address."""
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if MISSING:
        pytest.skip(REASON)
    with contextlib.closing(Browser(tmp_path_factory.mktemp("browser"))) as window:
        yield window


def text_of(browser, selector):
    return browser.run(f"return document.querySelector({json.dumps(selector)})?.innerText ?? ''")


def shows(browser, selector, pattern):
    """Wait until an element shows a text that fits; return it."""
    until = time.monotonic() + SECONDS
    while not re.search(pattern, text_of(browser, selector)):
        assert time.monotonic() < until, (selector, pattern, text_of(browser, selector))
        time.sleep(0.05)
    return text_of(browser, selector)


@pytest.fixture(scope="module")
def page(browser, site):
    """The browser with the page, whose Python is loaded."""
    browser.open(site)
    shows(browser, "#state", "^Python is ready")
    return browser


def test_a_link_opens_its_state(page, site):
    displayed = "[...document.querySelectorAll('section')].filter(one => one.checkVisibility()).map(one => one.id)"
    for name in TOPICS:
        settings, expected = drawn(name, 7)
        page.open(f"{site}#{name}?{urlencode(settings)}")
        shows(page, f"#{name} .said", re.escape(expected["said"]))
        rows = page.run(f"return document.querySelectorAll('#{name} .shown tr').length")
        assert rows == expected["html"].count("<tr>")
        assert page.run(f"return {displayed}") == [name]


def test_a_key_moves_a_slider_and_a_guess_meets_the_model(page, site):
    page.open(f"{site}#allreduce")
    shows(page, "#allreduce .said", "on 4 devices")
    page.run("document.querySelector('#allreduce [name=devices]').focus()")
    page.press("ArrowRight")
    shows(page, "#allreduce .said", "on 5 devices")
    address = page.run("return location.hash")
    assert "devices=5&bytes=" in address
    page.run("document.querySelector('#allreduce [name=guess]').focus()")
    for key in ("1", ".", "5", "Enter"):
        page.press(key)
    truth = json.loads(answer(address.partition("#")[2]))["truth"]
    assert shows(page, "#allreduce .ask output", "guess") == f"Your guess: 1.5. The model says: {truth}."


def test_a_bad_value_in_the_address_is_one_sentence_and_the_page_goes_on(page, site):
    page.open(f"{site}#scaling?nodes=<b>3</b>")
    assert shows(page, "#error", "nodes is ") == json.loads(answer("scaling?nodes=<b>3</b>"))["error"]
    page.open(f"{site}#scaling?nodes=2")
    shows(page, "#scaling .said", "2 nodes")
    assert text_of(page, "#error") == ""


def test_nothing_is_asked_of_another_host_and_nothing_fails(page, site):
    asked = set()
    for entry in page.log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.add(message["params"]["request"]["url"].partition("#")[0])
    assert f"{site}pyodide/pyodide.asm.wasm" in asked
    assert {url for url in asked if not url.startswith((site, "data:", "about:", "chrome:"))} == set()
    assert page.log("browser") == []


def test_the_first_pictures_need_no_python(browser, site, live, tmp_path):
    live.build(tmp_path, "measured.txt")
    shutil.rmtree(tmp_path / "pyodide")
    with served(tmp_path) as address:
        browser.open(address)
        shows(browser, "#state", "^Python can't be loaded")
        for name in TOPICS:
            browser.run(f"document.querySelector('nav a[data-topic={name}]').click()")
            assert shows(browser, f"#{name} .said", ".") == json.loads(answer(name))["said"]
