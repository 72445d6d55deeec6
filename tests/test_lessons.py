"""Every lesson runs from top to bottom, as a reader would run it. Then all tools' ``--help``, the notebooks' first
cell, and the site: a broken page fails the build."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from mxdp import evaluate, get_params, init_lenet
from mxdp.backend import devices
from mxdp.datasets import load
from mxdp.datasets.minibatches import Stream
from mxdp.experiments.lab.module import discover
from mxdp.experiments.lab.settings import resolve
from mxdp.training import TrainStep, train_steps

ROOT = Path(__file__).resolve().parents[1]
LESSONS = sorted((ROOT / "experiments" / "lessons").glob("*.py"))


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_lesson_runs_and_leaves_nothing_behind(lesson, tmp_path, tmp_path_factory):
    temporary = tmp_path_factory.mktemp("temporary")
    script = temporary / lesson.name
    script.write_text(lesson.read_text(encoding="utf-8").replace("batch_size=16", "batch_size=128"), encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "replicas in sync: False" not in done.stdout
    assert done.stdout.count("\n") > 5
    assert list(tmp_path.iterdir()) == []
    for trace in re.findall(r"open (\S+) in ui.perfetto.dev", done.stdout):
        assert json.loads(Path(trace).read_text(encoding="utf-8"))["traceEvents"]


def test_every_question_has_an_answer():
    """As many as each lesson asks at its end, under the lesson's title."""
    page = (ROOT / "docs" / "for-lecturers" / "answers.md").read_text(encoding="utf-8")
    answers = dict(re.findall(r"^## (\d+)\. .*?\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    for lesson in LESSONS:
        asked = lesson.read_text(encoding="utf-8").partition("# ## Questions")[2]
        numbers = re.findall(r"^# (\d)\. ", asked, re.MULTILINE)
        assert numbers == re.findall(r"^\*\*(\d)\. ", answers[str(int(lesson.stem[:2]))], re.MULTILINE), lesson


def test_presets_fit_their_experiments_and_that_for_classes_trains():
    for preset in (ROOT / "experiments" / "presets").glob("*.toml"):
        assert resolve(list(discover().values()), str(preset), {})[0] == preset.stem
    preset = ROOT / "experiments" / "presets" / "classroom.toml"
    sizes = resolve([discover()["epochs"]], str(preset), {})[1]["epochs"]
    data, here = load(sizes["data"], seed=sizes["seed"]), devices(1, "cpu")
    replicas = [get_params(init_lenet(sizes["seed"]), here[0])]  # another number of devices gives the same accuracy
    stream, step = Stream(data.train, sizes["batch_size"], sizes["seed"]), TrainStep(replicas, here, sizes["lr"])
    for _ in range(sizes["processes"] * sizes["rounds"]):
        train_steps(stream.take(sizes["samples"]), step)
        if evaluate(data.test, replicas) > 0.9:  # the rounds after it are only for the clock
            return
    pytest.fail("it did not learn")


# Tools

CELL = ROOT / "tools" / "setup_cell.py"


@pytest.mark.parametrize(
    "name", sorted({path.stem for path in CELL.parent.glob("*.py")} - {CELL.stem, "torture_victim"})
)
def test_help_prints_what_a_tool_does_and_runs_nothing(name, monkeypatch, capsys):
    for package in ("jupytext", "nbformat", "nbclient", "sphinx.cmd.build"):  # of the extra `pages`
        monkeypatch.setitem(sys.modules, package, MagicMock())
    monkeypatch.syspath_prepend(str(CELL.parent))
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--help"])
    monkeypatch.setattr("subprocess.Popen", None)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(CELL.with_name(f"{name}.py")), run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")


def run(tmp_path, gpus, cell=CELL, installed=True):
    """The cell, where ``nvidia-smi`` lists these GPUs (None: there is none), and ``pip`` says what it would do."""
    programs = tmp_path / "bin"
    programs.mkdir()
    if gpus is not None:
        (programs / "nvidia-smi").write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in gpus))
        (programs / "nvidia-smi").chmod(0o755)
    (tmp_path / "pip.py").write_text("import sys; print('pip', *sys.argv[1:], flush=True)")
    path = [str(tmp_path), *([str(ROOT)] if installed else [])]
    env = {"PATH": f"{programs}:/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(path)}
    program = [sys.executable, *([] if installed else ["-S"]), str(cell)]
    return subprocess.run(program, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("gpus", "sentence"),
    [
        ([], "No GPU was found: the lesson runs on CPU devices, such as cpu(0) and cpu(1)."),
        (["NVIDIA H100, 9.0"], "MXNet 1.9.1 has no code for NVIDIA H100: the lesson runs on CPU devices."),
        (["Tesla T4, 7.5"] * 2, "GPUs that MXNet 1.9.1 has code for: Tesla T4, Tesla T4. (mxdp was not run on a GPU"),
    ],
)
def test_it_says_in_one_sentence_what_it_found(tmp_path, gpus, sentence):
    done = run(tmp_path, gpus)
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (0, 1, "")
    assert done.stdout.startswith(sentence)


def test_without_mxdp_it_asks_for_the_address(tmp_path):
    done = run(tmp_path, None, installed=False)
    assert done.returncode == 1
    assert done.stderr == "mxdp is not installed: set REPOSITORY above to its address, and run this cell again.\n"


@pytest.mark.parametrize(("gpus", "extra", "wheel"), [(None, "cpu", "mxnet"), (["T4, 7.5"], "cu112", "mxnet-cu112")])
def test_with_the_address_it_installs_what_the_machine_needs(tmp_path, gpus, extra, wheel):
    cell = tmp_path / "cell.py"
    cell.write_text(CELL.read_text().replace('REPOSITORY = ""', 'REPOSITORY = "https://example.org/mxdp"'))
    done = run(tmp_path, gpus, cell, installed=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == [
        f"pip install --quiet mxdp[{extra},experiments] @ git+https://example.org/mxdp",
        f"pip install --quiet --no-deps {wheel}==1.9.1",
    ]


@pytest.fixture
def tool(monkeypatch):
    """``tools/site.py`` with Sphinx and the lessons' tool in name alone; ``tool(name)`` runs it so."""
    lessons = SimpleNamespace(ROOT=ROOT, LESSONS=ROOT / "experiments" / "lessons", write=lambda folder: None)
    build = SimpleNamespace(build_main=None)
    tables = SimpleNamespace(MACHINES=[])
    for name, module in (
        ("sphinx.cmd.build", build),
        ("notebooks", lessons),
        ("tables", tables),
        ("live", MagicMock()),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    run_tool = lambda name: runpy.run_path(str(ROOT / "tools" / "site.py"), run_name=name)  # noqa: E731
    return SimpleNamespace(run=run_tool, lessons=lessons, build=build, tables=tables)


@pytest.mark.parametrize("status", [0, 1])
def test_a_site_with_a_warning_fails_and_shows_the_newest_results(tool, tmp_path, monkeypatch, status):
    lecturers = ("docs/for-lecturers/README", "docs/for-lecturers/answers")
    for page in ("README", "CONTRIBUTING", "CHANGELOG", "experiments/README", *lecturers):
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{page}.md").touch()
    for version in ("0.9.0", "0.10.0"):
        run = tmp_path / "experiments" / "reference" / "some-machine" / version / "epochs" / f"2025-{version}.json"
        run.parent.mkdir(parents=True)
        run.touch()
    words, shown = [], []
    tool.build.build_main = lambda given: words.extend(given) or status
    tool.tables.MACHINES = [tmp_path / "experiments" / "reference" / "some-machine"]
    tool.lessons.ROOT, tool.lessons.LESSONS = tmp_path, tmp_path / "lessons"
    monkeypatch.setattr("mxdp.plans.__main__.main", lambda arguments: 0)
    monkeypatch.setattr("mxdp.experiments.show.page.write_report", lambda folder, **_: shown.extend(folder.glob("*/*")))
    monkeypatch.setattr(sys, "argv", ["site.py", str(tmp_path / "site")])
    with pytest.raises(SystemExit) as ended:
        tool.run("__main__")
    assert (ended.value.code, [path.name for path in shown]) == (status, ["2025-0.10.0.json"])
    assert {"-W", "--keep-going", str(tmp_path / "site")} <= set(words)


def anchors(page):
    """Of the headings of a page, or of a lesson, as deep as the site gives them anchors."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    start = "# " if page.suffix == ".py" else ""
    headings = re.findall(rf"^{start}#{{1,4}} (.+)$", text, re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]


def test_every_link_of_the_site_leads_to_a_page_or_a_file_and_to_a_heading_that_is_there(tool, tmp_path):
    made = tool.run("site")
    made["rewritten"].__globals__.update(STAGE=tmp_path, FILES=tmp_path / "extra" / "files")
    sources = {place: source for source, place in made["PAGES"].items()}
    for place, source in sources.items():
        if source.suffix == ".py":
            continue
        given = source.read_text(encoding="utf-8")
        text = made["rewritten"](given, source)
        link = re.compile(r"\]\((?!\w+:)([^)#\s]*)#([^)\s]+)\)")
        links = link.findall(given)
        kept = [anchor for target, anchor in links if not target or (source.parent / target).resolve() in made["PAGES"]]
        assert [anchor for _, anchor in link.findall(text)] == kept
        for target, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)", text):
            page = os.path.normpath(Path(place).parent / target) if target else place
            assert page in sources, (place, target)
            assert not anchor or anchor in anchors(sources[page]), (place, target, anchor)
        for target in re.findall(r'(?:href|src)="([^"#:]+)"', text):
            assert os.path.isfile(os.path.normpath(tmp_path / "extra" / Path(place).parent / target)), (place, target)


def test_each_page_has_its_place_on_the_site_and_lessons_link_nothing_that_a_notebook_has_not():
    """``make site`` takes a warning for an error, and is no test: it executes all lessons."""
    text = (ROOT / "tools" / "site.py").read_text(encoding="utf-8").split("TREES = ")[1].partition("}")[0]
    assert {page.stem for page in ROOT.glob("docs/*.md")} <= set(re.findall(r"[\w-]+", text))
    for lesson in LESSONS:
        assert not re.findall(r"\]\((?!https?:)", lesson.read_text(encoding="utf-8")), lesson
