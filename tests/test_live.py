"""The page ``live/``: its numbers beside those of the commands. And pages in a real browser: each key that a page names
does what it says, and all other keys stay the browser's."""

import contextlib
import functools
import itertools
import json
import random
import re
import shutil
import subprocess
import threading
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from mxdp.experiments import __main__ as experiments
from mxdp.experiments.predict import inputs
from mxdp.experiments.show import page as report
from mxdp.experiments.show.style import number
from mxdp.live.drawn import as_bytes, milliseconds
from mxdp.live.page import TOPICS, answer
from mxdp.plans import __main__ as plans

ROOT = Path(__file__).resolve().parents[1]
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
    s, _ = drawn("allreduce", seed)
    s["place"] = "memory"
    tables = tables_of(json.loads(answer(f"allreduce?{urlencode(s)}")))
    plan = printed(plans.main, s["algorithm"], s["devices"])
    sent = [0] * s["devices"]
    for send in itertools.chain(*plan["steps"]):
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
    words = ["--model", s["model"], "--batch", s["batch"]]
    if s["model"][0].isdigit():
        words = ["--parameters", s["model"]]
    for name in ("optimizer", "dtype", "room", "devices"):
        words += [f"--{name}", s[name]]
    found = printed(experiments.main, "predict", "--memory", *words)
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
        patch.syspath_prepend(str(ROOT / "tools"))
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


PROGRAMS = ("chromium", "chromedriver")
MISSING = [name for name in PROGRAMS if not shutil.which(name)]
REASON = f"there is no {' and no '.join(MISSING)} here (Debian: apt-get install chromium chromium-driver)"
FLAGS = """
--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --disable-dev-shm-usage --disable-smooth-scrolling
"""
# The private characters by which WebDriver names keys.
NAMED = dict(Shift=8, Control=9, PageUp=14, PageDown=15, End=16, Home=17, F5=0x35, Tab=4, Enter=7)
ARROWS = dict(ArrowLeft=18, ArrowUp=19, ArrowRight=20, ArrowDown=21)
KEYS = {name: chr(0xE000 + code) for name, code in {**NAMED, **ARROWS}.items()}
ALONE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
"""The browser reaches this machine alone."""


class Browser:
    """A window of Chromium, moved by plain HTTP (W3C's WebDriver). ``folder``: an empty one for its own files."""

    def __init__(self, folder):
        self._driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        said = ""
        while "successfully on port" not in said:
            said = self._driver.stdout.readline()
            assert said, "chromedriver ended"
        self._url = f"http://127.0.0.1:{re.findall('on port ([0-9]+)', said)[0]}/session"
        options = {"args": [*FLAGS.split(), ALONE, f"--user-data-dir={folder}"], "binary": shutil.which("chromium")}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        self._url += f"/{self._call('', {'capabilities': {'alwaysMatch': wanted}})['sessionId']}"

    def open(self, page, width=1280, height=720):
        """Load the file, or what is at an address, in a window of that size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": size})
        self._call("/url", {"url": page if isinstance(page, str) else page.as_uri()})

    def log(self, kind):
        """What it has noted since it was last asked: "browser", of scripts; "performance", of the network."""
        return self._call("/se/log", {"type": kind})

    def run(self, script):
        """What this JavaScript returns in the page."""
        return self._call("/execute/sync", {"script": script, "args": []})

    def press(self, *keys):
        """Press the last key while the others are held, as a person would."""
        codes = [KEYS.get(key, key) for key in keys]
        down = [{"type": "keyDown", "value": code} for code in codes]
        up = [{"type": "keyUp", "value": code} for code in reversed(codes)]
        self._call("/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": down + up}]})

    def close(self):
        """End the browser and its driver."""
        with urlopen(Request(self._url, method="DELETE")):
            pass
        self._driver.terminate()
        self._driver.wait(10)
        self._driver.stdout.close()

    def _call(self, path, asked):
        request = Request(f"{self._url}{path}", json.dumps(asked).encode(), {"Content-Type": "application/json"})
        with urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if MISSING:
        pytest.skip(REASON)
    with contextlib.closing(Browser(tmp_path_factory.mktemp("browser"))) as window:
        yield window


def becomes(browser, script, wanted):
    """Does it, in time? A browser scrolls smoothly."""
    until = time.monotonic() + SECONDS
    while browser.run(script) != wanted and time.monotonic() < until:
        time.sleep(0.05)
    return browser.run(script) == wanted


def shows(browser, selector, pattern):
    """Wait until an element shows a text that fits; return it."""
    text = f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"
    fits = f"return new RegExp({json.dumps(pattern)}).test({text})"
    assert becomes(browser, fits, True), (selector, pattern)
    return browser.run(f"return {text}")


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
    shows(page, "#error", "^$")


def test_nothing_is_asked_of_another_host_and_nothing_fails(page, site):
    page.open("about:blank")
    page.log("performance"), page.log("browser")  # of other tests
    page.open(site)
    shows(page, "#state", "^Python is ready")
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


# Slides, reports and plans

MEASURED = next(ROOT.glob("experiments/reference/amd-epyc-2-cores/**/epochs")).parent
SHOWN = ("epochs", "two-jobs", "where-the-time-went")  # the last has timelines
SLIDE = """
const far = slide => Math.abs(slide.getBoundingClientRect().top + slide.getBoundingClientRect().bottom - innerHeight);
return [...document.querySelectorAll("section")].findIndex(slide => far(slide) < 6);
"""
"""The number of the slide in the middle of the window, or -1."""
NOTES = """
const seen = box => box.height > 0 && box.top >= 0 && box.bottom < innerHeight + 6;
return [...document.querySelectorAll("aside")].find(notes => seen(notes.getBoundingClientRect()))?.id ?? null;
"""
"""Which notes can be read in the window, or None."""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    for name in SHOWN:
        shutil.copytree(MEASURED / name, folder / name)
    return folder


def check_others(browser):
    """Whoever listens must let the browser have these."""
    note = "event => taken.push([event.key, event.defaultPrevented])"
    browser.run(f"window.taken = []; addEventListener('keydown', {note})")
    for keys in (["F5"], ["Control", "p"], ["x"], ["Control", "ArrowRight"]):
        browser.press(*keys)
    taken = browser.run("return taken")
    assert len(taken) >= 4
    assert not any(prevented for _, prevented in taken), taken


def check_width(browser, file):
    """No page is wider than its window."""
    for width in (360, 768, 1280):
        browser.open(file, width, 800)
        beyond = browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert beyond <= 0, width


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (360, 740)])
def test_slides_are_turned_by_the_keyboard(browser, results, width, height):
    file = report.write_report(results, slides=True)
    browser.open(file, width, height)
    last = browser.run("return document.querySelectorAll('section').length") - 1
    assert last >= 3
    turned = [("PageDown", 1), (" ", 2), ("PageUp", 1), ("Shift+ ", 0), ("ArrowDown", 1), ("ArrowUp", 0)]
    turned += [("ArrowRight", 1), ("ArrowLeft", 0), ("End", last), ("ArrowRight", last), ("Home", 0), ("ArrowRight", 1)]
    for keys, slide in turned:
        browser.press(*keys.split("+"))
        assert becomes(browser, SLIDE, slide), (keys, slide, browser.run(SLIDE))
    browser.press("End")
    for there in ("notes-where-the-time-went", None):
        browser.press("n")
        assert becomes(browser, NOTES, there), "a recorded timeline has the notes of its experiment"
    browser.press("Home")
    for keys, there, slide in (("n", "notes-epochs", -1), ("PageDown", None, 1), ("PageDown", "notes-two-jobs", -1)):
        browser.press(keys)
        assert becomes(browser, NOTES, there), keys
        assert becomes(browser, SLIDE, slide), keys
    browser.press("n")
    assert becomes(browser, SLIDE, 1), "the slide of the notes that were read"
    check_others(browser)
    check_width(browser, file)


def test_a_timeline_is_moved_by_the_keyboard(browser, results):
    file = report.write_report(results)
    browser.open(file)
    for _ in range(60):
        browser.press("Tab")
        if browser.run("return document.activeElement.tagName") == "CANVAS":
            break
    drawn = "return document.activeElement.toDataURL()"
    whole = browser.run(drawn)
    browser.press("+")
    enlarged = browser.run(drawn)
    assert enlarged != whole
    browser.press("ArrowLeft")
    moved = browser.run(drawn)
    assert moved not in (whole, enlarged)
    for key, wanted in (("ArrowRight", enlarged), ("-", whole), ("=", enlarged), ("0", whole)):
        browser.press(key)
        assert becomes(browser, drawn, wanted), key
    check_others(browser)
    check_width(browser, file)


@pytest.mark.parametrize("plan", ["ring 4", "tiles 4"])
def test_a_plan_is_stepped_through_by_the_keyboard(browser, plan, tmp_path):
    file = tmp_path / "plan.html"
    assert plans.main([*plan.split(), "--html", str(file)]) == 0
    browser.open(file)
    step = "return Number(document.getElementById('slider').value)"
    last = int(browser.run("return board.frames.length")) - 1
    stepped = [("ArrowRight", 1), ("PageDown", 2), ("ArrowLeft", 1), ("PageUp", 0), ("End", last), ("Home", 0)]
    stepped += [(" ", 1), (" ", 1), ("ArrowRight", 2), ("Home", 0)]  # plays, and pauses
    for focus in ("", "document.getElementById('slider').focus()"):  # where it is after the mouse has moved the slider
        browser.run(focus)
        for key, wanted in stepped:
            browser.press(key)
            assert becomes(browser, step, wanted), (focus, key)
    check_others(browser)
    check_width(browser, file)
