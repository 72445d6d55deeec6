"""The laboratory: asks a question by measuring, in processes started anew. :mod:`.module` says what a question is.

Imports no MXNet. A question imports everything that it needs from here.
"""

from mxdp.experiments.lab.module import Case, Settings, Skipped, Work
from mxdp.experiments.lab.rows import Number, Row, by_process, contenders, factor, fastest, mean
from mxdp.experiments.lab.told import Told, faster

__all__ = ["Case", "Number", "Row", "Settings", "Skipped", "Told", "Work"]
__all__ += ["by_process", "contenders", "factor", "faster", "fastest", "mean"]
