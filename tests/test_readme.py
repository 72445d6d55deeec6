"""What the pages tell a reader to run, run as written: every block alone, in a shell or at a prompt of its own.

A ``text`` block after a Python block is what that block prints, but for the last digits of numbers.
In a shell block ``make`` is ``make -n``, and ``python`` only takes note of what it is asked: the command then runs in
this process, as far as measuring. ``python`` has mxdp only after the block's own activation of ``.venv``.
"""

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import test_layers

from mxdp import allreduce, book, datasets, process, scratch
from mxdp.backend import devices, np
from mxdp.book import __main__ as book_main
from mxdp.exercises import __main__ as exercises_main
from mxdp.experiments import __main__ as experiments_main
from mxdp.experiments.predict import command, inputs
from mxdp.launch import __main__ as launch_main
from mxdp.plans import __main__ as plans_main
from mxdp.plans.collective.algorithms import ALGORITHMS

book.restore()  # the import has replaced functions in this process

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "experiments" / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
LINKED = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
PROSE = [*PAGES, ROOT / "CONTRIBUTING.md", *ROOT.glob("experiments/lessons/*.py"), *ROOT.glob("experiments/presets/*")]
MAINS = {
    "mxdp.book": book_main.main,
    "mxdp.exercises": exercises_main.main,
    "mxdp.experiments": experiments_main.main,
    "mxdp.launch": launch_main.main,
    "mxdp.plans": plans_main.main,
    "mxdp.scratch": scratch.main,
}
NOTES = '#!/bin/sh\nprintf "%s\\037" "{}" "$@" >>"$ASKED"\necho >>"$ASKED"\n'
"""A Python that takes note of what it is asked."""


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def all_blocks(language):
    """Once each that stands on several pages."""
    found = {text: f"{page.stem}-{n}" for page in PAGES for n, text in enumerate(blocks(page, language), 1)}
    return [pytest.param(text, id=name) for text, name in found.items()]


def outputs():
    """What a page says that its Python blocks print, by block."""
    pair = re.compile(r"^```python\n(.*?)^```\n\s*^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return dict(found for page in PAGES for found in pair.findall(page.read_text(encoding="utf-8")))


def close(printed, expected):
    """Is this what a page says? Decimal fractions may differ by 0.05: other processors round otherwise."""
    fraction = r"\d+\.\d+"
    same = re.sub(fraction, "#", printed) == re.sub(fraction, "#", expected)
    pairs = zip(re.findall(fraction, printed), re.findall(fraction, expected))
    return same and all(abs(float(one) - float(other)) <= 0.05 for one, other in pairs)


def run(words, folder, **variables):
    """The finished command in ``folder``, with this checkout's mxdp, no network and no data but the digits."""
    set_by_others = {*process.describe(), "MAKEFLAGS", "MAKELEVEL", "MFLAGS"}
    environ = {name: value for name, value in os.environ.items() if name not in set_by_others}
    environ.update(MXDP_OFFLINE="1", MXDP_DATA_DIR="", XDG_CACHE_HOME=str(folder / "cache"), PYTHONPATH=str(ROOT))
    given = variables.pop("input", None)
    environ.update(variables)
    return subprocess.run(words, cwd=folder, env=environ, input=given, capture_output=True, text=True, timeout=120)


def short(text):
    """In ``text``, a training of many small steps becomes two epochs of a few; one that goes on has one more."""
    text = text.replace("in (5, 6)", "in (1, 2)").replace("batch_size=16", "batch_size=256")
    return re.sub(r"num_epochs=\d+", "num_epochs=2", text)


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """A function that does what ``python`` was asked, in ``tmp_path``, as far as measuring; the exit status."""
    written = []

    def ask(questions, preset, settings, folder, *_):
        for question in questions:
            mine = settings[question.name]
            assert list(question.cases(mine))
            assert mine.get("data", "auto") in (*datasets.NAMES, "mine.npz")
        written.append(folder)
        return True

    def of_results(folder, *_):
        assert folder in written or (ROOT / folder).is_dir()

    def measured(*_, **more):
        steps = inputs.as_toml(inputs.known_network("lenet", 1000.0)[0], "steps")
        return SimpleNamespace(returncode=0, stdout=steps)

    monkeypatch.setattr(command, "subprocess", SimpleNamespace(run=measured))
    monkeypatch.setattr(experiments_main, "ask", ask)
    monkeypatch.setattr(experiments_main.compare, "measured", lambda *_: [])
    monkeypatch.setattr(experiments_main.doctor, "main", lambda as_json: 0)
    for owner, name in ((experiments_main.page, "write_report"), (experiments_main.pictures, "export")):
        monkeypatch.setattr(owner, name, of_results)
    monkeypatch.setattr(book_main, "run_cells", lambda code: 0)
    monkeypatch.setattr(exercises_main, "check", lambda file, *_: {"right": file.exists()})
    monkeypatch.setattr(exercises_main, "show", lambda *_: None)
    monkeypatch.setattr(exercises_main, "watch", lambda path, *_: 1 - (ROOT / path).exists())
    monkeypatch.setattr(launch_main, "mpiexec", lambda *_: [])
    monkeypatch.setattr(launch_main, "Launch", lambda *_: SimpleNamespace(run=lambda: None))
    monkeypatch.setattr(scratch, "train", lambda *_, **options: options)
    monkeypatch.syspath_prepend(tmp_path)

    def script(file):
        if (ROOT / file).exists():  # tests/test_lessons.py and tests/test_moved_loop.py run these
            return 0
        return run([sys.executable, file], tmp_path).returncode

    def asked(place, words):
        if words[0] != "-m":
            return script(words[0])
        if words[1:3] == ["pip", "install"]:
            config = configparser.ConfigParser()
            config.read(ROOT / "setup.cfg")
            extras = set(re.findall(r"\w+", "".join(re.findall(r"^\.\[.*\]$", "\n".join(words), re.M))))
            return int(not extras <= set(config["options.extras_require"]))
        after = words[words.index("--") + 1 :] if "--" in words else []
        if after:
            assert script(after[1]) == 0
        return MAINS[words[1]](words[2:]) if place == "environment" else 1

    return asked


def run_shell(text, folder, asked):
    """``sh -e`` where a reader is who has just set up the clone; the exit status, or that of a command of Python's."""
    environment, system = folder / ".venv" / "bin", folder / "system"
    for place, path in (("environment", environment), ("system", system)):
        path.mkdir(parents=True)
        (path / "python").write_text(NOTES.format(place))
    (system / "make").write_text(f'#!/bin/sh\nexec "{shutil.which("make")}" -n "$@"\n')
    for program in (environment / "python", system / "python", system / "make"):
        program.chmod(0o755)
    (environment / "activate").write_text(f'PATH="{environment}:$PATH"\n')
    for name in ("experiments", "setup.cfg"):
        (folder / name).symlink_to(ROOT / name)
    # In place of the book's.
    (folder / "multiple-gpus.md").write_text("```{.python .input}\n#@tab mxnet\nd = 1\n```\n")
    (folder / "multi-gpu.ipynb").write_text('{"cells": [{"cell_type": "code", "source": ["d = 1"]}]}')
    path = os.pathsep.join([str(system), "/usr/bin", "/bin"])
    notes = folder / "asked"
    notes.touch()
    variables = {"PATH": path, "REPOSITORY": str(ROOT), "ASKED": str(notes)}
    done = run(["/bin/sh", "-e", "-c", short(text)], folder, **variables)
    for line in notes.read_text().splitlines():
        place, *words = line.split("\037")[:-1]
        if asked(place, words):
            return 1
    return done.returncode


def test_every_block_is_one_that_is_run():
    fences = [line for page in PAGES for line in page.read_text(encoding="utf-8").splitlines() if line[:3] == "```"]
    assert set(fences[::2]) == {"```python", "```sh", "```text", "```diff", "```toml"}
    shown = [text for page in PAGES for text in blocks(page, "diff")]  # written by tools/tables.py
    shown += outputs()
    shown += blocks(ROOT / "docs" / "exercises.md", "text")  # compared by tests/exercises
    shown += blocks(ROOT / "docs" / "predict.md", "toml")  # read by tests/experiments/test_predict.py
    run_here = [text for page in PAGES for language in ("python", "sh") for text in blocks(page, language)]
    assert len(fences) == 2 * len(run_here + shown)


STARTUP = """import sys
sys.stdout, sys.stderr, echoed = open("stdout", "w"), open("stderr", "w"), open("echoed", "w")
sys.displayhook = lambda value: value is None or print(repr(value), file=echoed)
"""


def paste(text, folder):
    """What the code has printed and said, and which values of expressions the prompt shows: an older Python's, at which
    an empty line must end a loop."""
    (folder / "startup.py").write_text(STARTUP, encoding="utf-8")
    run([sys.executable, "-q", "-i"], folder, PYTHONSTARTUP="startup.py", input=text)
    (folder / "startup.py").unlink()
    files = [folder / name for name in ("stdout", "stderr", "echoed")]
    written = [file.read_text(encoding="utf-8") for file in files]
    for file in files:
        file.unlink()
    return written


@pytest.mark.parametrize("text", all_blocks("python"))
def test_a_python_block_is_pasted_into_a_prompt(text, tmp_path):
    stdout, stderr, echoed = paste(short(text), tmp_path)
    assert not re.search("Error|Warning", stderr), stderr
    assert close(stdout, outputs().get(text, stdout)), stdout
    assert echoed.count("\n") < 100, "a prompt shows what an expression gives, in a loop each time"
    assert {path.name for path in tmp_path.iterdir()} <= {"runs", "cache"}, "blocks write to runs/ alone"


def test_what_can_not_be_pasted_is_caught(tmp_path):
    assert "SyntaxError" in paste("for number in (1, 2):\n    print(number)\nprint(3)\n", tmp_path)[1]
    assert close("0.94 True", "0.97 True")
    assert not any(close(other, "0.97 True") for other in ("0.1 True", "0.97 False", "0.97 True" * 2, ""))


@pytest.mark.parametrize("text", all_blocks("sh"))
def test_a_shell_block_runs_alone(text, tmp_path, asked, monkeypatch, capsys):
    if "git clone" in text and not (ROOT / ".git").exists():
        pytest.skip("this copy of the project is no repository")
    monkeypatch.chdir(tmp_path)
    assert run_shell(text, tmp_path, asked) == 0, capsys.readouterr().err


@pytest.mark.parametrize("text", ["python -m mxdp.plans ring 4", 'python -m pip install ".[gpu]"'])
def test_a_shell_block_without_its_environment_or_with_a_wrong_extra_is_caught(text, tmp_path, asked, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_shell(text, tmp_path, asked) != 0


def test_commands_in_the_text_are_ones_that_the_programs_take(monkeypatch, capsys, tmp_path, asked):
    monkeypatch.chdir(ROOT)
    text = "\n".join(page.read_text(encoding="utf-8") for page in PROSE)
    found = re.findall(
        r"(?:`|^# +)(?!MXDP_EXPERIMENTS)(?:\w+=\S+ )*python -m mxdp\.(experiments|plans) ([^`\n]*)", text, re.MULTILINE
    )
    assert len(found) > 25
    for program, arguments in dict.fromkeys(found):
        if arguments.endswith("--html"):
            arguments += f" {tmp_path / 'page.html'}"
        words = ["-m", f"mxdp.{program}", *shlex.split(arguments)]
        assert asked("environment", words) == 0, (arguments, capsys.readouterr().err)
    for words in set(re.findall(r"`make ([^`]*)`", text)):
        assert run(["make", "-n", *shlex.split(words)], ROOT).returncode == 0, words


def test_options_in_the_text_are_ones_that_a_program_has(capsys):
    lines = [f"experiments {name}" for name in ("list", "run", "report", "compare", "doctor", "predict")]
    for line in [*lines, "exercises check", "plans", "launch", "book run"]:
        program, *words = line.split()
        with pytest.raises(SystemExit):
            MAINS[f"mxdp.{program}"]([*words, "--help"])
    known = set(re.findall(r"--[\w-]+", capsys.readouterr().out))
    for page in PAGES:
        assert set(re.findall(r"`(--[\w-]+)", page.read_text(encoding="utf-8"))) <= known, page


def test_the_page_of_messages_quotes_what_the_code_says():
    """Each message's words stand in the code, or are NumPy's."""
    source = " ".join(path.read_text(encoding="utf-8") for path in (ROOT / "mxdp").rglob("*.py"))
    source = re.sub(r'"\s*\n\s*f?"|\{[^{}]*\}', "", source)
    rows = re.findall(r"^\| `([^`]*)` \|", (ROOT / "docs" / "messages.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) >= 10
    for message in rows:
        for words in message.split("..."):
            assert words.strip(" :,.)(") in source or "numpy" in words, message


def wrong_links(page, text):
    """What the page refers to that is not there: files, headings, and paths in backticks."""
    for target in re.findall(r'\]\(([^)\s]+)\)|src="([^"]+)"', text):
        path, _, anchor = "".join(target).partition("#")
        file = page.parent / path if path else page
        if re.match(r"\w+:", path):
            continue
        if not file.exists():
            yield path
        elif anchor:
            headings = re.findall(r"^#+ (.*)", file.read_text(encoding="utf-8") if path else text, re.MULTILINE)
            if anchor not in [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]:
                yield f"{path}#{anchor}"
    for path in re.findall(r"`((?:docs|experiments|mxdp|tests|tools)/[\w./-]+)`", text):
        if not (ROOT / path).exists():
            yield path


def test_what_a_page_refers_to_is_there():
    wrong = "[x](docs/instal.md) [x](docs/install.md#with-mak) [x](#install) `tests/test_tables.py`"
    right = "# Here\n[x](docs/install.md#python-313) [x](#here)"
    assert len(list(wrong_links(ROOT / "README.md", f"{right} {wrong}"))) == 4
    assert [(page, link) for page in LINKED for link in wrong_links(page, page.read_text(encoding="utf-8"))] == []


# CONTRIBUTING's guides to a new experiment and a new all-reduce, followed to the letter

GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_question_of_the_guide_is_measured_drawn_and_reported(tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n# batch_size\.py\n(.*?)```", GUIDE, re.S)
    assert len(code.splitlines()) <= 60
    # Under another name: a reader may have put it into a room.
    file = tmp_path / "size_of_a_batch.py"
    file.write_text(code, encoding="utf-8")
    monkeypatch.setattr(test_layers, "PACKAGE", tmp_path)
    monkeypatch.setattr(test_layers, "FILES", [file])
    test_layers.test_a_line_holds_one_idea()
    test_layers.test_unrelated_values_are_not_assigned_at_once()
    for words in (["format", "--check"], ["check"]) if find_spec("ruff") else ():
        ruff = [sys.executable, "-m", "ruff", *words, "--stdin-filename", f"mxdp/experiments/twins/{file.name}", "-"]
        assert subprocess.run(ruff, cwd=ROOT, input=code, text=True).returncode == 0
    (tmp_path / "little.toml").write_text("[size-of-a-batch]\nsizes = [16, 64]\nsamples = 256\nprocesses = 1\n")
    (line,) = re.findall(r"MXDP_EXPERIMENTS=batch_size python (-m mxdp.experiments run batch-size)", GUIDE)
    line = f"{line} --preset little.toml --out out".replace("batch-size", "size-of-a-batch")
    environ = dict(MXDP_EXPERIMENTS="size_of_a_batch", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    done = run([sys.executable, *line.split()], tmp_path, **environ)
    assert done.returncode == 0, done.stderr
    assert "equal to the serial run" in " ".join(done.stdout.split())
    assert re.search(r"batch 64 +[\d,]+ +\d\.\d\d", done.stdout)
    assert (tmp_path / "out" / "size-of-a-batch.svg").stat().st_size > 1000
    assert "Training with a batch of 64 " in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_the_all_reduce_of_the_guide_is_a_plan_that_sums(monkeypatch, capsys):
    ((code, said),) = re.findall(r"```python\n(# mxdp/plans/collective/.*?)```\n\n```text\n(.*?)```", GUIDE, re.S)
    exec(code, names := {"__name__": "star"})
    assert capsys.readouterr().out == said
    monkeypatch.setitem(ALGORITHMS, "star", names["star"])
    data = [np.arange(5, ctx=device) + 10 * number for number, device in enumerate(devices(3, "cpu"))]
    allreduce(data, "star")
    assert [x.tolist() for x in data] == [[30.0, 33.0, 36.0, 39.0, 42.0]] * 3


def test_the_walks_name_files_functions_and_calls_that_are_there():
    walks = GUIDE.partition("run epochs`, read six files")[2]
    first, others = walks.partition("## Rules")[0].split("Other walks")
    hops = re.findall(r"^\| `(\S+\.py)` \| `(\w+)`.*? \| .*?`(.*?)`", first, re.M)
    hops = [(f"mxdp/experiments/{file}", f"`{function}`", call) for file, function, call in hops]
    hops += re.findall(r"`(\S+\.py)` \((.*?)\)()", others)
    hops += re.findall(r"^\| `(\S+\.py)` \| (`.*?) \|()", others, re.M)
    assert len(hops) == 6 + 7 + 4 + 8
    for file, functions, call in hops:
        code = (ROOT / file).read_text(encoding="utf-8")
        assert set(re.findall(r"`(\w+)`", functions)) <= set(re.findall(r"^ *def (\w+)\(", code, re.M)), file
        assert call in code
