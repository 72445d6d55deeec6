"""The house has floors, and a file imports only from floors below its own (or from its own, but on floor 3)."""

import ast
import functools
import io
import keyword
import token
import tokenize
from itertools import groupby
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "mxdp"

ROOMS_OF = {
    0: "errors files sections processor plans",
    1: "process cuda compat backend engine plugin __main__",
    2: "collectives layers processes scratch datasets timing curves memory",
    3: "parallel tracing",
    4: "training gluon launch book exercises",
    5: "experiments live",
}
FLOORS = {f"mxdp.{name}": floor for floor, names in ROOMS_OF.items() for name in names.split()}
NO_SIBLINGS = 3
ROOMS = ("data_parallel", "allreduce", "automatic_parallelism", "many_processes", "other_splits", "twins")
"""Of the experiments: none knows another one."""
SHARED = {"lab": (), "show": ("lab",)}
"""What each of the rooms that all experiments share may import of the other."""
PURE = """__future__ typing dataclasses mxdp.plans mxdp.errors mxdp.files math os numbers functools itertools argparse
sys difflib json shutil textwrap html contextlib collections statistics pathlib re"""
"""What floor 0 imports. (shutil knows how wide the terminal of ``python -m mxdp.plans`` is, html makes its page.)"""
MOST_FILES = 20
MOST_LINES = 60
"""Of a function, without its docstring."""
MOST_TOKENS = 30
"""Of a line."""
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def module_of(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path) for path in FILES}


def room(module):
    """``mxdp.plans.partition`` -> ``mxdp.plans``."""
    return ".".join(module.split(".")[:2])


def of_experiments(module):
    """``mxdp.experiments.show.style`` -> ``show``; an empty string for what is none of the experiments' rooms."""
    return module.partition("mxdp.experiments.")[2].split(".")[0]


@functools.lru_cache(maxsize=None)
def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path, typing=True):
    """Modules that the file imports, anywhere in it, or but for its types. Of ``from mxdp import x`` that is
    ``mxdp.x``, and so it is of another package of mxdp's."""
    nodes = list(ast.walk(tree(path)))
    hidden = set()
    if not typing:
        types = [node for node in nodes if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
        hidden = {id(inner) for block in types for inner in ast.walk(block)}
    for node in nodes:
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES or node.module == "mxdp" else node.module for name in inner)
        elif isinstance(node, ast.Constant) and node.value in MODULES and not typing:
            yield node.value


def violations(path):
    module = module_of(path)
    here, mine = room(module), of_experiments(module)
    for name in imports(path):
        other = of_experiments(name)
        if here == "mxdp.experiments" and mine not in ROOMS and other in ROOMS:
            yield f"{module} imports {name}: what all experiments share knows none of them"
        if mine in SHARED and other in SHARED and other not in (mine, *SHARED[mine]):
            yield f"{module} imports {name}: {mine} knows nothing of {other}"
        if mine in ROOMS and other in ROOMS and other != mine:
            yield f"{module} imports {name}: a room of its own"
        if name.split(".")[0] == "mxnet" and module != "mxdp.backend":
            yield f"{module} imports {name}: only mxdp.backend may"
        if here == "mxdp.plans" and not name.startswith(tuple(PURE.split())):
            yield f"{module} imports {name}: floor 0 is pure Python"
        target = room(name)
        if not name.startswith("mxdp.") or target == here or target not in FLOORS:
            continue
        if FLOORS[target] > FLOORS[here] or FLOORS[target] == FLOORS[here] == NO_SIBLINGS:
            yield f"{module} (floor {FLOORS[here]}) imports {name} (floor {FLOORS[target]})"


def test_imports_go_down():
    assert {room(module_of(path)) for path in FILES} <= set(FLOORS), "a new room: give it a floor"
    assert [violation for path in FILES for violation in violations(path)] == []
    assert "mxdp.process" in imports(PACKAGE / "backend.py"), "else this test sees no import"


def test_files_and_functions_are_small_enough_to_read():
    long = [module_of(path) for path in FILES if len(path.read_text(encoding="utf-8").splitlines()) > 330]
    for path in FILES:
        functions = [n for n in ast.walk(tree(path)) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
        long += [f"{module_of(path)}.{node.name}" for node in functions if lines(node) > MOST_LINES]
    assert long == []


def lines(function):
    """How many a function has without its docstring."""
    first = function.body[0]
    docstring = 0 if ast.get_docstring(function) is None else first.end_lineno - first.lineno + 1
    return function.end_lineno - function.lineno + 1 - docstring


LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}


def tokens_of_lines(text):
    """The tokens of each line; an f-string is one token, which Python 3.12 cuts into several."""
    found, within = [], 0
    for each in tokenize.generate_tokens(io.StringIO(text).readline):
        if each.type not in LAYOUT and not within:
            found.append(each)
        name = token.tok_name[each.type]
        within += (name == "FSTRING_START") - (name == "FSTRING_END")
    return [list(line) for _, line in groupby(found, key=lambda each: each.start[0])]


def is_of_a_table(line):
    """Of a table's row, or a text's, there are at most three names, and each stands for itself: none is computed."""
    names = [each.string for each in line if each.type == token.NAME and not keyword.iskeyword(each.string)]
    return len(names) <= 3 and not any(each.string in ("for", "if", "lambda") for each in line)


def test_a_line_holds_one_idea():
    long = []
    for path in FILES:
        for line in tokens_of_lines(path.read_text(encoding="utf-8")):
            if len(line) > MOST_TOKENS and not is_of_a_table(line):
                long.append(f"{module_of(path)}:{line[0].start[0]}")
    assert long == []


def parallel_assignments(path):
    """``a, b = x, y`` of unrelated values: no swap, ``a, b = b, a + b``."""
    for node in ast.walk(tree(path)):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Tuple)
            and isinstance(node.value, ast.Tuple)
        ):
            values = {inner.id for inner in ast.walk(node.value) if isinstance(inner, ast.Name)}
            targets = {inner.id for inner in ast.walk(node.targets[0]) if isinstance(inner, ast.Name)}
            if not values & targets:
                yield f"{module_of(path)}:{node.lineno}"


def test_unrelated_values_are_not_assigned_at_once():
    assert [place for path in FILES for place in parallel_assignments(path)] == []


def test_the_test_knows_every_room_of_the_experiments():
    folders = {path.name for path in (PACKAGE / "experiments").iterdir() if (path / "__init__.py").exists()}
    assert folders == {*ROOMS, "lab", "predict", "show"}


def test_no_folder_holds_more_files_than_can_be_surveyed():
    folders = [PACKAGE, *(path for path in PACKAGE.rglob("*") if (path / "__init__.py").exists())]
    counts = {str(folder): sum(path.is_file() for path in folder.iterdir()) for folder in folders}
    assert {folder: count for folder, count in counts.items() if count > MOST_FILES} == {}


def drawn(page):
    """The floor of each path in the drawing: what a line begins with, in the folders of the shallower line above."""
    floors, floor, above = {}, None, []
    for line in page.partition("```\n")[2].partition("```")[0].splitlines():
        floor, rest = int(line[0]) if line[:1].isdigit() else floor, line[1:]
        names = rest.strip().partition("  ")[0].split()
        if names and all(name.endswith(("/", ".py")) for name in names):
            depth = len(rest) - len(rest.lstrip())
            above = [(other, paths) for other, paths in above if other < depth]
            paths = [parent + name for parent in (above[-1][1] if above else [""]) for name in names]
            above.append((depth, paths))
            floors.update(dict.fromkeys(paths, floor))
    return floors


def test_the_drawing_in_contributing_is_of_this_house():
    floors = drawn((PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    folders = {f"{path.parent.relative_to(PACKAGE.parent).as_posix()}/" for path in FILES if path.stem == "__init__"}
    assert folders - set(floors) == set(), "the drawing lacks these"
    assert [path for path in floors if not (PACKAGE.parent / path).exists()] == []
    assert {f"mxdp.{path.split('/')[1].split('.')[0]}": floor for path, floor in floors.items()} == FLOORS


def in_circles(graph):
    """The modules from which a way leads into a circle of imports."""
    free = {module for module in graph if not graph[module] & set(graph)}
    left = {module: graph[module] for module in graph if module not in free}
    return in_circles(left) if free else sorted(graph)


def test_no_modules_import_each_other():
    graph = {module_of(path): set(imports(path, typing=False)) & MODULES - {module_of(path)} for path in FILES}
    assert in_circles(graph) == []


def test_no_two_classes_have_one_name():
    """Of those in ``mxdp``: one name, one thing."""
    places = {}
    for path in FILES:
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module_of(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
