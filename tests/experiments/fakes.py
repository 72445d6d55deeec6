"""Questions and results that no laboratory has measured, and what a page says of them."""

import types
from html.parser import HTMLParser

from littles import record

from mxdp.experiments.lab import result
from mxdp.experiments.lab.module import Question
from mxdp.experiments.show import page, words
from mxdp.tracing import Event, Timeline

RECORDED = Timeline(
    0.003, (Event("cpu(0)", "dot", "compute", 0.0, 0.002), Event("cpu(1)", "x", "compute", 0.001, 0.003))
)
EMPTY_TAGS = {"meta", "link", "br", "img", "hr", "input"}


def question(title="Is it <b>faster</b> & [bold]right[/bold]?", **parts):
    module = types.ModuleType("fake", f"{title}\n")
    usual = dict.fromkeys(("cases", "expect", "oracle", "set_up"))
    module.__dict__.update(usual, PRESETS={"quick": {}}, SOURCE="a <deck>", tell=tell)
    module.__dict__.update(parts)
    return Question(module)


def tell(t, s):
    one = t.one(label="1 device")
    for row in t:
        row.speedup = one.seconds / row.seconds
    t.column("device_names", "devices")
    t.column("seconds", "median s", about="the time of a <round>")
    t.column("speedup", "speed-up", form=".2f", unit="x", spread=True)
    t.column("accuracy", form=".1%")
    t.claim("At least 1.8 times as <fast>.", t.one(label="2 devices").speedup, at_least=1.8, source="a deck")
    t.answer(f"Two devices are {t.rows[-1].speedup:.2f} times as fast.")
    t.explain("They share nothing.")
    t.bars()
    t.bars("speedup", "x", title="Speed-up")


def broken(t, s):
    t.column("nosuch", "missing")
    t.column("seconds", "wrong", form="no format")
    t.answer("It is 1.")
    t.draw(lambda axes: axes["<nosuch>"])


def install(monkeypatch):
    """The questions that are installed, for one test."""
    found = {name: question() for name in ("fake", "twin")}
    found["broken"] = question(tell=broken)
    monkeypatch.setattr(words, "discover", lambda: found)
    return found


def failed(status, error, name="fake"):
    return record(name, status=status, error=error, rows=[], oracle={"checked": 0, "wrong": 0, "text": ""})


def timed(name="fake"):
    found = record(name)
    found["rows"][0]["facts"]["timeline"] = RECORDED.to_json()
    return found


class Page(HTMLParser):
    """The parts of a page that tests ask for; a tag that is not closed in order is an error."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.text, self.scripts = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in EMPTY_TAGS:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "script" in self.open:
            self.scripts.append(data)
        elif "style" not in self.open:
            self.text.append(data)

    def words(self):
        return " ".join(" ".join(self.text).split())

    def attributes(self, name):
        return [attrs[name] for _, attrs in self.tags if name in attrs]


def made(folder, *found, slides=False):
    for one in found:
        result.write(one, folder)
    path = page.write_report(folder, slides=slides)
    assert path == folder / ("slides.html" if slides else "report.html")
    return Page(path.read_text(encoding="utf-8"))
