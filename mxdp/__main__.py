"""``python -m mxdp`` says what there is."""

import sys
from typing import Optional, Sequence

from mxdp.errors import as_command

COMMANDS = """mxdp has no command of that name alone. There are:

python -m mxdp.scratch       train LeNet on one device, then on two
python -m mxdp.experiments   questions about several devices, measured here (`list` shows them)
python -m mxdp.plans         who sends what to whom, as text or as a page that moves
python -m mxdp.exercises     exercises that check themselves
python -m mxdp.book          the book's chapters, as they stand
python -m mxdp.launch        start a training on several processes or machines

Each has --help. README.md says where to begin."""


@as_command()
def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Print it, whatever the arguments."""
    print(COMMANDS)


if __name__ == "__main__":
    sys.exit(main())
