#!/bin/sh
# Make .venv hold mxdp with these extras; does and says nothing if it already does, so that every target can call it.
#
#   tools/install.sh cpu|cu112|"" [test [dev]]      "": what .venv has, else cpu
#
# PYTHON=... chooses the Python, else choose-python.sh does; VENV=... is another folder than .venv.
# .venv/installed records what .venv was made for. It goes first and comes back last, so that what was interrupted is
# begun again.
set -eu
CDPATH= cd -- "$(dirname -- "$0")/.."

say() { echo "mxdp: $*" >&2; }

export VENV="${VENV:-.venv}"
place=$(pwd -P)
record=$(cat "$VENV/installed" 2>/dev/null) || record=
backend=${1-}
if [ -z "$backend" ]; then backend=${record##* } backend=${backend%%,*} backend=${backend:-cpu}; fi
case $backend in
    cpu) wheel=mxnet other=mxnet-cu112 ;;
    cu112) wheel=mxnet-cu112 other=mxnet ;;
    *) say "BACKEND is '$backend': choose cpu or cu112."; exit 2 ;;
esac
extras=$backend,experiments,book,mpi${2:+,$2}${3:+,$3}
wanted="$place $(cat setup.cfg pyproject.toml tools/install.sh | cksum) $extras"
python=$VENV/bin/python

version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null </dev/null || true; }

# Why .venv can't stay as it is; empty if it can.
fault() {
    series=$(version "$python")
    case $series in
        '') echo "its Python does not run"; return ;;
        3.[89] | 3.[1-9][0-9]) ;;
        *) echo "its Python is $series"; return ;;
    esac
    if [ -n "${PYTHON-}" ] && [ "$(version "$PYTHON")" != "$series" ]; then
        echo "its Python is $series, and PYTHON=$PYTHON is another"
    elif [ -n "$record" ] && [ "${record#"$place "}" = "$record" ]; then
        echo "it was made in another folder"
    elif [ -z "$record" ] && ! "$python" -m pip --version >/dev/null 2>&1; then
        echo "it has no pip"
    fi
}

# pip's own messages are shown, except two lines for each package about file:// indexes of the user's configuration
# that don't have it, and Python's warnings (of setuptools: that what is editable can be edited). The pipe would lose
# pip's exit status: a file keeps it.
pip() {
    rm -f "$VENV/pip-done"
    {
        PYTHONWARNINGS=ignore "$python" -m pip "$@" --quiet --disable-pip-version-check 2>&1 </dev/null &&
            : >"$VENV/pip-done"
    } |
        { grep -v "^WARNING: Location 'file:.* is ignored" >&2 || true; }
    [ -e "$VENV/pip-done" ] || { say "pip $1 failed, see above; 'make' begins again where it stopped."; exit 1; }
    rm -f "$VENV/pip-done"
}

fault=$(fault)
if [ -z "$fault" ]; then
    case $record in "$wanted" | "$wanted",*) exit 0 ;; esac
else
    chosen=$(tools/choose-python.sh)
    if [ -e "$VENV" ]; then say "remaking $VENV, for $fault"; fi
    say "making $VENV with $chosen"
    rm -f "$VENV/installed"
    "$chosen" -m venv --clear "$VENV" || { say "$chosen could not make $VENV: see above."; exit 1; }
fi

rm -f "$VENV/installed"
if "$python" -m pip show --quiet $other >/dev/null 2>&1; then
    # Both wheels own the files of one package, mxnet: taking out either breaks the other, so both go.
    say "taking $other out, for $wheel"
    pip uninstall --yes $wheel $other
fi
say "installing mxdp[$extras] and its libraries into $VENV, once: some minutes, and some hundred MB from the network"
# 20.0, which may come with Python 3.8, can't do an editable install from a pyproject.toml.
pip install "pip>=25"
pip install --no-warn-conflicts --editable ".[$extras]"
# Their requirements exclude newer Pythons and each other's; what they import is in setup.cfg.
pip install --no-deps $wheel==1.9.1 d2l==1.0.3
if [ "$(uname -m)" = aarch64 ]; then tools/aarch64.sh "$python"; fi
echo "$wanted" >"$VENV/installed.new"
mv "$VENV/installed.new" "$VENV/installed"
say "installed"
