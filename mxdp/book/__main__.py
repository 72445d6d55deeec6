"""``python -m mxdp.book``: runs a chapter or a notebook of the book, and lists what is replaced for it."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, List, Optional, Sequence

from mxdp.errors import UsageError, as_command

OK = 0
FAILED = 1
CELL = re.compile(r"^```\{\.python \.input[^}]*\}\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
TAB = re.compile(r"^(?:#@|%%)tab +(.+)$", re.MULTILINE)
AUTHORS = re.compile(r"^%load_ext d2lbook\.tab *$", re.MULTILINE)
"""A magic of the book's authors, which shows the cells of one library, and defines ``tab``."""


def parser() -> argparse.ArgumentParser:
    """The whole grammar."""
    top = argparse.ArgumentParser(
        prog="python -m mxdp.book", description="Run the book's own chapters, as they stand."
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run", help="run the MXNet cells of a chapter (.md) or notebook (.ipynb), in order"
    )
    run.add_argument("file", type=Path, metavar="FILE")
    run.add_argument("--samples", type=int, metavar="N", help="pictures to train on (default: all)")
    run.add_argument(
        "--devices",
        type=int,
        metavar="N",
        help="devices that stand for the book's GPUs (default: 2)",
    )
    commands.add_parser("list", help="what `import mxdp.book` replaces")
    return top


@as_command()
def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command; the exit status: 0 all well, 1 a cell failed, 2 usage."""
    options = parser().parse_args(arguments)
    if options.command == "list":
        import mxdp.book

        print("\n".join(mxdp.book.replaced()))
        return OK
    for name in ("samples", "devices"):
        value = getattr(options, name)
        if value is None:
            continue
        if value < 1:
            raise UsageError(f"--{name} must be at least 1, not {value}")
        os.environ[f"MXDP_BOOK_{name.upper()}"] = str(value)
    return run_cells(cells(options.file))


def cells(file: Path) -> List[str]:
    """The code of a notebook, or a chapter's cells for MXNet, in order. Raises a UsageError if there are none."""
    try:
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".ipynb":
            every = json.loads(text)["cells"]
            code = ["".join(cell["source"]) for cell in every if cell["cell_type"] == "code"]
        elif file.suffix == ".md":
            code = [cell for cell in CELL.findall(text) if _for_mxnet(cell)]
        else:
            raise UsageError(f"{file} is neither a chapter (.md) nor a notebook (.ipynb)")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{file} can't be read ({error}); give a chapter (.md) or a notebook (.ipynb)"
        ) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{file} is no notebook ({error!r})") from error
    if not code:
        raise UsageError(f"{file} has no cell for MXNet")
    return code


class Tab:
    """The authors' ``tab``, where MXNet was chosen."""

    def interact_select(self, *_: Any) -> None:
        """Here a reader would choose."""

    def selected(self, *names: str) -> bool:
        """Whether code for one of these libraries is to run."""
        return "mxnet" in names


def _for_mxnet(cell: str) -> bool:
    """True also for cells for all libraries, with the tab ``all`` or none."""
    tabs = {name.strip() for names in TAB.findall(cell) for name in names.split(",")}
    return not tabs or not tabs.isdisjoint(("mxnet", "all"))


def run_cells(code: Sequence[str]) -> int:
    """Run the cells in one namespace, as IPython does, up to the first that fails."""
    os.environ.setdefault("MPLBACKEND", "agg")
    from IPython.core.interactiveshell import InteractiveShell

    shell: Any = InteractiveShell.instance(colors="nocolor")
    shell.enable_gui = lambda gui=None: None  # for `%matplotlib`: there are no windows
    shell.push({"tab": Tab()})
    for number, cell in enumerate(code, 1):
        plain = AUTHORS.sub("", TAB.sub("", cell))
        result = shell.run_cell(plain, store_history=False)
        if not result.success:
            error = result.error_in_exec or result.error_before_exec
            if isinstance(error, KeyboardInterrupt):
                raise error
            print(
                f"mxdp: cell {number} of {len(code)} failed: {type(error).__name__}: {error}",
                file=sys.stderr,
            )
            return FAILED
    return OK


if __name__ == "__main__":
    sys.exit(main())
