"""Pages in a real browser: each key that a page names does what it says, and all other keys stay the browser's."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from browser import MISSING, REASON, Browser

from mxdp.experiments.show import page
from mxdp.plans.__main__ import main as plans

pytestmark = pytest.mark.skipif(bool(MISSING), reason=REASON)
MEASURED = next(Path(__file__).parents[2].glob("experiments/reference/amd-epyc-2-cores/**/epochs")).parent
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
def browser(tmp_path_factory):
    with contextlib.closing(Browser(tmp_path_factory.mktemp("browser"))) as window:
        yield window


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    for name in SHOWN:
        shutil.copytree(MEASURED / name, folder / name)
    return folder


def becomes(browser, script, wanted):
    """Does it, within 30 s? A browser scrolls smoothly."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if browser.run(script) == wanted:
            return True
        time.sleep(0.05)
    return False


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
    file = page.write_report(results, slides=True)
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
    file = page.write_report(results)
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
    assert plans([*plan.split(), "--html", str(file)]) == 0
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
