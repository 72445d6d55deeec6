"""Makes MXNet 1.9.1 work with later releases of Python and NumPy, and makes its import faster.

:func:`install` changes how Python loads MXNet's modules, whoever imports them. It gives each its own ``__import__``, in
its ``__builtins__``, where Python looks for it:

- ``import numpy`` gives NumPy with the names that it has removed (:func:`numpy_for_mxnet`), to these modules alone.
- ``distutils.version``, which Python 3.12 removed, is a stand-in.
- NumPy 2's scalars are written in attributes as plain numbers, not as ``np.int64(2)`` (:func:`attribute_text`).
- scikit-learn, a quarter of MXNet's import, is missing: only ``mx.model.FeedForward`` needs it, which is deprecated.
- SciPy, another quarter of the import, and Requests are loaded at their first use.
- The functions of MXNet's 2,500 operators, which it writes as text, are compiled at their first call
  (:func:`compile_later`). To compile all takes more than half of the import.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import importlib.util
import re
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import FunctionType, ModuleType
from typing import Any, Callable, Dict, List, Optional, Sequence

FINANCIAL = ("mirr", "npv", "pmt", "ppmt", "pv", "rate")
"""NumPy 1.20 removed these. MXNet lists them among its fallbacks and never calls them itself."""
WRITES_ATTRIBUTES = (
    "mxnet._ctypes.ndarray",
    "mxnet._ctypes.symbol",
    "mxnet.symbol.symbol",
    "mxnet.io.io",
)
"""The modules of MXNet that write attributes by ``str(value)``. They use the name ``str`` for nothing else."""
DEFINES_OPERATORS = ("mxnet.ndarray.register", "mxnet.symbol.register")
"""The modules of MXNet that define a function for each operator, by ``exec(text, None, local)``."""


Names = Dict[str, Any]


def install() -> None:
    """Load MXNet's modules this way from now on, except those that are imported already. A second call does nothing."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        # Behind other finders, such as wrapt's, which runs the hooks that wait for MXNet.
        sys.meta_path.insert(sys.meta_path.index(PathFinder), Finder())


class Finder(MetaPathFinder):
    """Finds the modules of ``packages`` as Python does, and lets :class:`Loader` load them."""

    def __init__(self, *packages: str) -> None:
        self.packages = packages or ("mxnet",)

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]] = None, target: Any = None
    ) -> Optional[ModuleSpec]:
        """The module's specification; None for a module of another package."""
        if fullname.partition(".")[0] not in self.packages:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = Loader(fullname, spec.loader.path)
        return spec


class Loader(SourceFileLoader):
    """Loads a module of MXNet with an ``__import__`` of its own."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's code."""
        names: Names = vars(module)
        names["__builtins__"] = {**vars(builtins), "__import__": _import}
        if module.__name__ in WRITES_ATTRIBUTES:
            numpy = importlib.import_module("numpy")
            if _version(numpy.__version__) >= [2]:
                names["str"] = attribute_text
        if module.__name__ in DEFINES_OPERATORS:
            names["exec"] = functools.partial(compile_later, names)
        super().exec_module(module)


def attribute_text(value: Any = "") -> str:
    """``str(value)`` as with NumPy 1: plain numbers in tuples and lists.

    >>> import numpy
    >>> attribute_text((numpy.int64(2), [numpy.float32(0.1)]))
    '(2, [0.1])'
    """
    return str(_plain(value)) if type(value) in (tuple, list) else str(value)


def compile_later(names: Names, text: str, _: Any, local: Names) -> None:
    """Do ``exec(text, names, local)``, where ``text`` defines one function, but compile the function at its first call.
    It remains the same object; until then its signature is ``(*args, **kwargs)``.

    >>> local = {}
    >>> compile_later({}, "def double(x, by=2): return by * x", None, local)
    >>> local["double"](3), local["double"].__defaults__
    (6, (2,))
    """
    name = re.match(r"\s*def (\w+)\(", text)[1]  # type: ignore[index]
    function = FunctionType(_call.__code__, names, name)

    def first(*args: Any, **kwargs: Any) -> Any:
        defined: Names = {}
        exec(text, names, defined)
        # The code last: another thread may call the function meanwhile.
        function.__defaults__ = defined[name].__defaults__
        function.__code__ = defined[name].__code__
        return function(*args, **kwargs)

    function.__kwdefaults__ = {"_first": first}
    local[name] = function


def _call(*args: Any, _first: Any, **kwargs: Any) -> Any:
    return _first(*args, **kwargs)


@functools.lru_cache(maxsize=None)
def numpy_for_mxnet() -> ModuleType:
    """A module with all of NumPy, and the other names that MXNet 1.9.1 needs, with their old meaning."""
    import numpy

    module = ModuleType("numpy")
    names = vars(module)
    names.update(vars(numpy))
    # Up to NumPy 1.23 `bool` is Python's, from 2.0 on it is NumPy's. So mx.np.bool stays Python's.
    names.update(bool=bool, int=int)
    for name, value in _removed(numpy).items():
        names.setdefault(name, value)
    return module


def _removed(numpy: Any) -> Names:
    def in1d(ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False) -> Any:
        return numpy.isin(numpy.ravel(ar1), ar2, assume_unique=assume_unique, invert=invert)

    def msort(a: Any) -> Any:
        return numpy.sort(a, axis=0)

    return {
        "Inf": numpy.inf,
        "PINF": numpy.inf,
        "NINF": -numpy.inf,
        "NaN": numpy.nan,
        "NAN": numpy.nan,
        "PZERO": 0.0,
        "NZERO": -0.0,
        "alltrue": numpy.all,
        "sometrue": numpy.any,
        "product": numpy.prod,
        "round_": numpy.round,
        "in1d": in1d,
        "msort": msort,
        "trapz": getattr(numpy, "trapezoid", None),
        "compat": _stand_in("compat", basestring=str),
        **{name: _gone(name) for name in FINANCIAL},
    }


def _gone(name: str) -> Callable[..., Any]:
    def gone(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"{name} is not in NumPy since 1.20, and MXNet only passes it on: use numpy_financial.{name}."
        )

    gone.__name__ = name
    return gone


def _import(
    name: str,
    globals: Any = None,
    locals: Any = None,
    fromlist: Sequence[str] = (),
    level: int = 0,
) -> Any:
    if name == "distutils.version":
        return _stand_in(name, StrictVersion=_version, LooseVersion=_version)
    if name == "sklearn.base":
        raise ImportError("MXNet's modules get no scikit-learn, see mxdp.compat")
    if name == "requests":
        return _Later(name)
    if name.split(".")[0] == "scipy" and importlib.util.find_spec("scipy"):
        if fromlist and name != "scipy":
            return _Later(name)
        return _stand_in("scipy", stats=_Later("scipy.stats"), sparse=_Later("scipy.sparse"))
    module = builtins.__import__(name, globals, locals, fromlist, level)
    return numpy_for_mxnet() if module is sys.modules.get("numpy") else module


def _stand_in(name: str, **contents: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(contents)
    return module


class _Later(ModuleType):
    """A module that is imported when something of it is first used."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


def _version(text: str) -> List[int]:
    return [int(number) for number in re.findall(r"\d+", text)[:3]]


def _plain(value: Any) -> Any:
    import numpy

    if type(value) in (tuple, list):
        return type(value)(map(_plain, value))
    if isinstance(value, numpy.floating):
        return float(str(value))  # 0.1 of float32, whose item() is 0.10000000149011612
    return value.item() if isinstance(value, numpy.generic) else value
