"""Every exercise accepts its solution, and says in words which usual mistake it sees."""

import ast
import doctest
import functools
import re
from pathlib import Path

import pytest
from solutions import SOLUTIONS

from mxdp.exercises import EXERCISES, exchanges, plans, shards, steps
from mxdp.exercises.__main__ import main
from mxdp.exercises.check import SEED, settle
from mxdp.exercises.judge import KEPT, answer_of, mistaken, shown, try_case

FOLDER = Path(__file__).parents[2] / "experiments" / "exercises"
UNWRITTEN = "    raise NotImplementedError\n"


def judged(file):
    """The exercise, what is done, words of the checker's answer, the function's body: whole, or lines of the solution
    with ``>`` that become the lines with ``<`` below them."""
    answers = []
    for part in Path(__file__).with_name(file).read_text().split("\n# ")[1:]:
        head, body = f"{part}\n".split("\n", 1)
        name, what, words = re.fullmatch(r"(\w+): (.*?)(?: \(([^()]{12,})\))?", head).groups()
        hunks = re.findall(r"((?:^>.*\n)+)((?:^<.*\n)*)", body, re.MULTILINE)
        body = SOLUTIONS[name] if hunks else body
        for hunk in hunks:
            old, new = (re.sub("^[<>]", " ", lines, flags=re.MULTILINE) for lines in hunk)
            assert old in body, (name, what)
            body = body.replace(old, new)
        answers.append((name, what, words or "", body))
    return answers


def written(name, body):
    """The file of the exercise with this body in the place of the function's ``raise NotImplementedError``."""
    text = (FOLDER / EXERCISES[name].file).read_text()
    before, found, after = text.partition(f"def {name}(")
    head, unwritten, rest = after.partition(UNWRITTEN)
    assert unwritten
    return "KEPT = {}\n" + before + found + head + body.lstrip("\n") + rest


def loaded(text):
    namespace = {"__name__": "student"}
    exec(compile(text, "student.py", "exec"), namespace)
    return namespace


def written_words():
    """The texts of two words or more in the exercises' code, or the parts of these between braces; not the docs."""
    for module in (exchanges, plans, shards, steps):
        nodes = list(ast.walk(ast.parse(Path(module.__file__).read_text())))
        docs = [node.value for node in nodes if isinstance(node, ast.Expr)]
        for node in nodes:
            text = str(node.value) if isinstance(node, ast.Constant) and node not in docs else ""
            if len(text.split()) > 1:
                yield text


def trials(name):
    return [trial for case in EXERCISES[name].cases(SEED).values() for trial in case]


def answers(name, body, cases=None):
    function = loaded(written(name, body))[name]
    cases = cases or EXERCISES[name].cases(SEED).values()
    report = [{"title": ""} for _ in cases]
    for case, entry in zip(cases, report):
        try_case(case, entry, function, "student.py", lambda: None)
    settle(report)
    return report


def test_each_file_is_an_exercise_and_is_listed(capsys):
    files = [exercise.file for exercise in EXERCISES.values()]
    assert sorted(file.name for file in FOLDER.glob("*.py")) == sorted(set(files))
    assert main(["list"]) == 0
    assert [Path(line.split()[-1]).name for line in capsys.readouterr().out.splitlines()] == files
    assert set(SOLUTIONS) == {name for name, *_ in judged("mistakes.txt")} == set(EXERCISES)


@pytest.mark.parametrize("name", EXERCISES)
def test_the_solution_is_right_and_moves_what_the_plan_moves(name):
    for answer in answers(name, SOLUTIONS[name]):
        assert answer["state"] == "right", answer
        assert answer.get("moved") == answer.get("planned")


@pytest.mark.parametrize("name", EXERCISES)
def test_the_printed_example_holds(name):
    namespace = loaded(written(name, SOLUTIONS[name]))
    (example,) = doctest.DocTestFinder().find(namespace[name], name, globs=namespace)
    assert example.examples
    assert not doctest.DocTestRunner().run(example).failed


def test_an_allreduce_is_put_together_from_both_halves():
    from mxdp.backend import devices, np

    body = SOLUTIONS["all_gather"].lstrip("\n")
    halves = loaded(written("reduce_scatter", SOLUTIONS["reduce_scatter"]).replace(UNWRITTEN, body))
    data = [np.arange(5, ctx=device) * 10**k for k, device in enumerate(devices(3, "cpu"))]
    halves["allreduce"](data)
    for x in data:
        assert x.asnumpy().tolist() == [0, 111, 222, 333, 444]


@pytest.mark.parametrize("name", [name for name in EXERCISES if name != "gpipe"])
def test_the_second_call_has_other_numbers_so_that_nothing_can_be_kept_from_the_first(name):
    for trial in next(iter(EXERCISES[name].cases(SEED).values())):
        for first, second in ((trial.given, trial.again.given), (trial.expected, trial.again.expected)):
            assert shown(first) != shown(second)


@pytest.mark.parametrize("name", ["fill_buckets", "split_and_load", "reduce_scatter", "all_gather", "fit_alpha_beta"])
def test_what_is_kept_from_a_call_to_the_next_is_refused(name):
    (trial,) = next(iter(EXERCISES[name].cases(SEED).values()))
    function, kept = loaded(written(name, SOLUTIONS[name]))[name], []

    def remembered(*given):
        kept.append(function(*given))
        return kept[0]

    answer = answer_of(trial, remembered, "student.py")
    assert answer["problem"].startswith("The first call is right, but not the second, with other numbers")
    assert answer["hints"] == [KEPT]


@pytest.mark.parametrize("name", EXERCISES)
def test_an_unwritten_file_says_so(name):
    for answer in answers(name, UNWRITTEN):
        assert answer["problem"] == "This function is not written yet."


@functools.lru_cache(maxsize=None)
def wrong_answers(name, body):
    return [f"{answer['problem']} {answer.get('hint')}" for answer in answers(name, body) if answer["state"] == "wrong"]


@pytest.mark.parametrize(("name", "words", "_", "body"), judged("mistakes.txt"))
def test_a_mistake_is_named_at_all_sizes(name, words, _, body):
    every, wrong = trials(name), 0
    for trial, answer in zip(every, answers(name, body, [[trial] for trial in every])):
        hints = [hint for hint in trial.mistakes if words in hint]
        if hints and answer["state"] == "wrong":
            assert [answer.get("hint")] == hints, answer
            wrong += 1
    assert wrong


@pytest.mark.parametrize("name", EXERCISES)
def test_each_hint_is_that_of_a_mistake(name):
    named = [words for exercise, words, *_ in judged("mistakes.txt") if exercise == name]
    hints = set()
    for trial in trials(name):
        for hint, values in trial.mistakes.items():
            if mistaken(trial, dict(zip(trial.expected, values))):  # else right at this size, and no mistake
                hints.add(hint)
    assert [hint for hint in hints if not any(words in hint for words in named)] == []


def test_each_sentence_is_said():
    said = [exercise.title for exercise in EXERCISES.values()]
    for name in EXERCISES:
        for trial in trials(name):
            said += [trial.title, *trial.given, *trial.expected, *trial.mistakes]
    for name, *_, body in judged("refused.txt"):
        said += wrong_answers(name, body)
    assert [words for words in written_words() if not any(words in text for text in said)] == []


@pytest.mark.parametrize(("name", "what", "words", "body"), judged("refused.txt"))
def test_an_answer_that_is_right_for_some_sizes_is_refused(name, what, words, body):
    wrong = wrong_answers(name, body)
    assert any(words in answer for answer in wrong), wrong


@pytest.mark.parametrize(("name", "what", "_", "body"), judged("accepted.txt"))
def test_a_right_answer_in_another_style_is_accepted(name, what, _, body):
    for answer in answers(name, body):
        assert answer["state"] == "right", answer
