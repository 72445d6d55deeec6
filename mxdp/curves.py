"""Draws test accuracy by epoch while the training runs: live in a notebook, and into a file."""

from __future__ import annotations

import importlib
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Union

from mxdp.errors import need
from mxdp.files import write_beside

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Curves:
    """A picture with one curve for each training, redrawn after each epoch (source: the book's ``d2l.Animator``)::

        curves = mxdp.Curves("accuracy.svg")
        for n in (1, 2):
            mxdp.scratch.train(n, batch_size=256, lr=0.2, draw=curves)

    In a notebook it appears below the cell. With ``path`` it is also written to that file, whole or not at all, in the
    format of its ending (``.png``, ``.svg``, ``.pdf``). Doesn't wait for a device. Raises a ModuleNotFoundError without
    matplotlib, and a ValueError if matplotlib has no such format.
    """

    def __init__(self, path: Optional[Union[str, Path]] = None) -> None:
        need("mxdp.Curves", "experiments", "matplotlib")
        from matplotlib.figure import Figure

        self.path = Path(path) if path is not None else None
        self.accuracies: Dict[str, List[float]] = {}
        """Test accuracies, by the label of the training."""
        self._shown: Any = None
        formats = Figure().canvas.get_supported_filetypes()
        if self.path and self.path.suffix[1:] not in formats:
            raise ValueError(
                f"{self.path} must end in one of {', '.join(formats)}: it is a picture's file"
            )

    def __call__(self, label: str, accuracies: Sequence[float]) -> None:
        """Draw the curve ``label`` again, through ``accuracies``, one for each epoch so far."""
        self.accuracies[label] = list(accuracies)
        figure = self.figure()
        if self.path:
            write_beside(self.path, _drawn(figure, self.path.suffix[1:]))
        if in_notebook():
            display: Any = importlib.import_module("IPython.display")
            image = display.Image(data=_drawn(figure, "png"))
            if self._shown is None:
                self._shown = display.display(image, display_id=True)
            else:
                self._shown.update(image)

    def figure(self) -> Figure:
        """All curves, as a matplotlib figure."""
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        figure = Figure(figsize=(5, 3.5), layout="constrained")
        axes = figure.add_subplot(xlabel="epoch", ylabel="test accuracy")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.grid(alpha=0.3)
        for label, values in self.accuracies.items():
            epochs = range(1, len(values) + 1)
            axes.plot(epochs, values, marker="o", markersize=4, label=label)
        if self.accuracies:
            axes.legend()
        return figure


def _drawn(figure: Figure, kind: str) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format=kind)
    return file.getvalue()


def in_notebook() -> bool:
    """Whether this Python is a notebook's kernel."""
    ipython: Any = sys.modules.get("IPython")
    return ipython is not None and type(ipython.get_ipython()).__name__ == "ZMQInteractiveShell"
