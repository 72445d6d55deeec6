"""Pages: a hostile name in every template is read back as text, a report says everything, and a page stands alone."""

import base64
import hashlib
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest
from fakes import Page, failed, install, made, question, tell, timed
from littles import record

from mxdp.experiments.lab import result
from mxdp.experiments.lab.module import EXTRA_MODULES
from mxdp.experiments.predict import inputs
from mxdp.experiments.predict.inputs import Known
from mxdp.experiments.predict.page import page as predicted_page
from mxdp.experiments.predict.ways import Predicted, all_ways, scaling
from mxdp.experiments.show import page
from mxdp.live.page import TOPICS, answer
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.show.moving import moving
from mxdp.tracing import Event, Timeline

ROOT = Path(__file__).resolve().parents[2]
EVIL = "\"'></title></style></script><script>alert(1)</script><img src=x onerror=alert(2)>&lt;[[DATA]]{{ 7 * 7 }}"
TEMPLATES = [*ROOT.glob("tools/*.html"), *ROOT.glob("mxdp/**/*.html"), *ROOT.glob("mxdp/**/*.j2")]


@pytest.fixture(autouse=True)
def known(monkeypatch):
    return install(monkeypatch)


def evil_inside(value, key=""):
    """The same record, whose texts are evil; but for what mxdp itself has written there."""
    if isinstance(value, dict):
        return {name: evil_inside(of, name) for name, of in value.items()}
    if isinstance(value, list):
        return [evil_inside(of, key) for of in value]
    own = key in ("started", "status", "experiment")
    return EVIL + value if isinstance(value, str) and not own else value


def hostile_tell(t, s):
    t.column("label", EVIL, about=EVIL)
    t.column("word", EVIL, unit=EVIL)
    t.claim(EVIL, t.rows[0].seconds, at_least=1, source=EVIL)
    t.note(EVIL)
    t.answer(f"{EVIL}; {'so ' * 21}{EVIL}.")  # longer than a slide's sentence
    t.explain(EVIL)
    t.first(t.rows[1:])
    t.bars(unit=EVIL, title=EVIL)


@pytest.fixture
def results(known, tmp_path):
    """A folder with a result whose texts are all evil, one that failed, and one of a question that nobody knows."""
    known["fake"] = question(EVIL, tell=hostile_tell, SOURCE=EVIL)
    event = Event(EVIL, EVIL, "compute", 0.0, 0.5)
    for name, status in (("fake", "ok"), ("twin", "failed"), ("nosuch", "ok")):
        found = evil_inside(record(name, status=status, skipped={EVIL: EVIL}, error=EVIL))
        found["settings"][EVIL] = EVIL
        found["environment"]["variables"][EVIL] = EVIL
        found["rows"][0]["facts"]["timeline"] = Timeline(1.0, [event]).to_json()
        result.write(found, tmp_path)
    return tmp_path


def hostile_prediction(folder):
    network = replace(inputs.known_network("lenet", 1000.0)[0], name=EVIL)
    cluster = inputs.machine(devices=2).cluster
    asked = network, cluster, 8
    rows = [row._replace(title=EVIL) for row in all_ways(*asked)]
    return predicted_page(Predicted(*asked, rows, scaling(*asked), [Known(EVIL, EVIL, EVIL, EVIL)]))


def hostile_live(folder):
    """What the tool makes, whose Python is an empty one."""
    spec = importlib.util.spec_from_file_location("live", ROOT / "tools" / "live.py")
    live = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(live)
    with tarfile.open(folder / "python.tgz", "w") as packed:
        for name in live.FILES:
            packed.addfile(tarfile.TarInfo(f"package/{name}"), io.BytesIO())
    live.pyodide = lambda: folder / "python.tgz"
    live.topics = lambda: {EVIL: EVIL}
    live.build(folder, "measured.txt")
    return (folder / "index.html").read_text(encoding="utf-8")


MADE = {
    "report.html.j2": (lambda folder: page.write_report(folder).read_text(encoding="utf-8"), 60),
    "slides.html.j2": (lambda folder: page.write_report(folder, slides=True).read_text(encoding="utf-8"), 20),
    "predict.html.j2": (hostile_prediction, 15),
    "moving.html": (lambda folder: moving(replace(plan("ring", 3), name=EVIL)).html, 3),
    "live.html": (hostile_live, 0),
}
"""Of each template: what makes a page of it, and how often at least the page shows the evil name as text."""


def read_back(text):
    """Everything that a page says, also in its data and in the pages inside it."""
    found = Page(text)
    assert not [name for _, attrs in found.tags for name in attrs if name.startswith("on")]
    assert all(source.startswith("data:") for source in found.attributes("src"))
    said = [" ".join(found.text), *found.attributes("alt"), *found.attributes("title"), *found.attributes("aria-label")]
    for (_, attrs), script in zip([tag for tag in found.tags if tag[0] == "script"], found.scripts):
        if attrs.get("type") == "application/json":
            said.append(str(json.loads(script)).replace("\\'", "'"))
        else:
            assert "alert" not in script
    return " ".join([*said, *map(read_back, found.attributes("srcdoc"))])


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_a_hostile_name_is_text_in_every_template(template, results):
    """A new template is tested by being there: this list has to say what makes a page of it."""
    make, least = MADE[template.name]
    said = read_back(make(results))
    assert said.count(EVIL) >= max(1, least)
    assert said.count("alert(1)") == said.count(EVIL), "where it is cut, it is not read back"


def test_what_an_address_says_is_never_markup():
    """The page's script writes nothing but ``html`` as markup, and no word of an address comes there."""
    script = (ROOT / "tools" / "live.html").read_text(encoding="utf-8")
    assert re.findall(r"innerHTML = (.*?);", script) == ["found.html"]
    for name, topic in TOPICS.items():
        read_back(json.loads(answer(name))["html"])
        for key in (*(control.key for control in topic.controls), EVIL):
            assert set(json.loads(answer(f"{name}?{key}={EVIL}"))) == {"error"}
    assert EVIL in json.loads(answer(EVIL))["error"].replace("\\'", "'")


# The report and the slides


def test_the_page_says_everything_of_a_result(tmp_path):
    said = made(tmp_path, record()).words()
    for text in (
        "Machine Example <CPU> (family 25, model 17, AVX-512), 2 cores, 8.0 GiB of memory",
        "Python 3.11.7, mxnet 1.9.1, numpy 1.23.5",
        "devices median s speed-up accuracy 1 device cpu(0) 2.00 1.00x 83.0% 2 devices",
        "Equal to the serial run: 1,234 numbers checked, 0 wrong (every [red] gradient).",
        "In 1 of 2 processes other programs took 31% to 31% of the processors' time.",
        "Preset quick: devices 1, 2; lr 0.2; data_dir –; processes 3. Measured 2025-01-02 03:04 UTC, in 12 s.",
        "1 device 2.000, 1.000, 4.000",
    ):
        assert text in said, text


@pytest.mark.parametrize("slides", [False, True])
def test_a_page_stands_alone_can_be_used_without_eyes_and_runs_its_own_script_alone(slides, tmp_path):
    html = made(tmp_path, timed(), record("twin"), failed("failed", "it fell", "broken"), slides=slides)
    text = (tmp_path / ("slides.html" if slides else "report.html")).read_text(encoding="utf-8")
    assert not re.search(r"https?:|@import", text)
    assert set(html.attributes("href")) <= {f"#{name}" for name in html.attributes("id")} | {"data:,"}
    assert {source.split(",")[0] for source in html.attributes("src")} == {"data:image/svg+xml"}
    hashed = base64.b64encode(hashlib.sha256(html.scripts[-1].encode()).digest()).decode()
    assert f"script-src 'sha256-{hashed}'" in text
    assert dict(html.tags)["html"] == {"lang": "en"}
    levels = [tag for tag, _ in html.tags if re.fullmatch("h[1-6]", tag)]
    assert levels == ["h2"] * 4 if slides else ["h1", "h2", "h2", "h2"]
    assert {attrs.get("scope") for tag, attrs in html.tags if tag == "th"} == (set() if slides else {"row", "col"})
    boxes = {(attrs["tabindex"], attrs["role"]) for _, attrs in html.tags if attrs.get("class") == "scroll"}
    assert boxes == (set() if slides else {("0", "region")})
    assert all(name in html.attributes("id") for name in html.attributes("aria-labelledby"))


def test_a_slide_has_a_sentence_and_a_picture_and_the_rest_is_in_notes(tmp_path):
    html = made(tmp_path, timed(), failed("timeout", "line one\nline two", "twin"), record("broken"), slides=True)
    assert sorted(path.name for path in tmp_path.glob("*.[hs]*")) == ["slides.html"]
    assert [tag for tag, _ in html.tags if tag in ("section", "h2", "figure", "aside")] == [
        *("section", "h2", "aside"),  # broken: its picture fails
        *("section", "h2", "figure", "aside", "section", "h2", "figure"),  # and its timeline
        *("section", "h2", "aside"),
    ]
    said = html.words()
    assert "measured on a busy machine) fake preset quick, measured 2025-01-02 03:04 UTC They share" in said
    assert "Timed out. line one line two twin" in said
    assert "Recorded: 1 device." in said
    assert "Measured: at 0.2.0 (0123456), Example <CPU>" in said


def test_the_same_results_give_the_same_files_and_no_picture_is_written_twice(tmp_path):
    made(tmp_path, timed(), record("twin"))
    first = {path: (path.read_bytes(), path.stat().st_ino) for path in tmp_path.rglob("*.*g")}
    assert [path.name for path in sorted(first)] == ["fake.svg", "fake.1-device.svg", "twin.svg"]
    page.write_report(tmp_path)
    assert {path: (path.read_bytes(), path.stat().st_ino) for path in first} == first
    shown = [unquote(source) for source in Page((tmp_path / "report.html").read_text("utf-8")).attributes("src")]
    assert f"data:image/svg+xml,{(tmp_path / 'twin.svg').read_text(encoding='utf-8')}" in shown


def test_a_picture_that_fails_is_a_sentence_and_the_rest_is_there(tmp_path):
    (tmp_path / "broken.svg").write_text("from a run before")
    said = made(
        tmp_path, record("broken"), record(), record("nosuch"), failed("failed", "it \x1b[35mfell \udc80", "twin")
    ).words()
    assert "The picture of broken can't be drawn (TypeError: 'Axes' object is not subscriptable)." in said
    assert "There is no picture of nosuch: this installation has no experiment of that name; MXDP_EXPERIMENTS" in said
    assert "There is no picture of twin: nothing was measured; measure it again." in said
    assert "it fell \\udc80" in said, "no colour of a child, and nothing that is no text"
    assert [path.name for path in tmp_path.glob("*.svg")] == ["fake.svg"]


def test_what_differs_between_machines_is_not_said_of_all(tmp_path):
    other = record("twin", started="2024-01-02T03:04:05+00:00")
    other["environment"]["commit"] = "feedfacecafe"
    said = made(tmp_path, record(), other).words()
    head = said[: said.index("The questions and what this run says")]
    assert "Commit differs: see each experiment" in head
    assert "Measured at 2 commits, feedfac to 0123456, Example" in head
    assert "2024-01-02 to 2025-01-02: 1 run. It took 25 s in all." in head
    assert said.count("feedfacecafe") == 1  # below its table


def test_a_long_table_shows_the_rows_that_answer_and_the_page_has_all(tmp_path, known):
    known["fake"] = question(tell=lambda t, s: (tell(t, s), t.first(t.rows[1:])))
    html = made(tmp_path, record())
    assert re.search(r"accuracy 2 devices .*ceiling .*All 2 rows .*accuracy 1 device .*2 devices", html.words())


OWN = """'How long does it take?'
PRESETS = {"quick": {}}
cases = expect = oracle = set_up = None
def tell(t, s):
    t.bars()
"""


def test_a_report_needs_no_mxnet_and_knows_a_teachers_own_question(tmp_path):
    (tmp_path / "mxnet.py").write_text("")  # whoever imports it is found out, with or without MXNet installed
    (tmp_path / "own.py").write_text(OWN)
    result.write(record("own"), tmp_path / "out")
    code = (
        "import sys; from mxdp.experiments.__main__ import main; main(['report', 'out']); main(['list']); "
        "print(sorted({'mxnet', 'torch', 'scipy', 'sklearn', 'matplotlib.pyplot'} & set(sys.modules)))"
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")])
    environ = {**os.environ, "PYTHONPATH": path, EXTRA_MODULES: "own"}
    said = subprocess.check_output([sys.executable, "-c", code], env=environ, text=True, cwd=tmp_path)
    assert said.splitlines()[-1] == "[]"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["own", "own.svg", "report.html"]
