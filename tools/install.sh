#!/bin/sh
# Make .venv hold mxdp with these extras; does and says nothing if it already does, so that every target can call it.
#
#   tools/install.sh cpu|cu112|"" [test [dev]]      "": what .venv has, else cpu
#
# PYTHON=... chooses the Python, else choose-python.sh does.
# .venv/installed records what .venv was made for. It goes first and comes back last, so that what was interrupted is
# begun again.
set -eu
CDPATH= cd -- "$(dirname -- "$0")/.."

say() { echo "mxdp: $*" >&2; }

place=$(pwd -P)
record=$(cat .venv/installed 2>/dev/null) || record=
backend=${1-}
if [ -z "$backend" ]; then backend=${record##* } backend=${backend%%,*} backend=${backend:-cpu}; fi
case $backend in
    cpu) wheel=mxnet other=mxnet-cu112 ;;
    cu112) wheel=mxnet-cu112 other=mxnet ;;
    *) say "BACKEND is '$backend': choose cpu or cu112."; exit 2 ;;
esac
extras=$backend${2:+,$2}${3:+,$3}
wanted="$place $(cat setup.cfg pyproject.toml | cksum) $extras"
python=.venv/bin/python

version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null </dev/null || true; }

# Why .venv can't stay as it is; empty if it can.
fault() {
    series=$(version $python)
    case $series in
        '') echo "its Python does not run"; return ;;
        3.8 | 3.9 | 3.10 | 3.11) ;;
        *) echo "its Python is $series"; return ;;
    esac
    if [ -n "${PYTHON-}" ] && [ "$(version "$PYTHON")" != "$series" ]; then
        echo "its Python is $series, and PYTHON=$PYTHON is another"
    elif [ -n "$record" ] && [ "${record#"$place "}" = "$record" ]; then
        echo "it was made in another folder"
    elif [ -z "$record" ] && ! $python -m pip --version >/dev/null 2>&1; then
        echo "it has no pip"
    fi
}

# pip's own messages are shown, except two lines for each package about file:// indexes of the user's configuration
# that don't have it, and Python's warnings (of setuptools: that what is editable can be edited). The pipe would lose
# pip's exit status: a file keeps it.
pip() {
    rm -f .venv/pip-done
    {
        PYTHONWARNINGS=ignore $python -m pip "$@" --quiet --disable-pip-version-check 2>&1 </dev/null &&
            : >.venv/pip-done
    } |
        { grep -v "^WARNING: Location 'file:.* is ignored" >&2 || true; }
    [ -e .venv/pip-done ] || { say "pip $1 failed, see above; 'make' begins again where it stopped."; exit 1; }
    rm -f .venv/pip-done
}

fault=$(fault)
if [ -z "$fault" ]; then
    case $record in "$wanted" | "$wanted",*) exit 0 ;; esac
else
    chosen=$(tools/choose-python.sh)
    if [ -e .venv ]; then say "remaking .venv, for $fault"; fi
    say "making .venv with $chosen"
    rm -f .venv/installed
    "$chosen" -m venv --clear .venv || { say "$chosen could not make .venv: see above."; exit 1; }
fi

rm -f .venv/installed
if $python -m pip show --quiet $other >/dev/null 2>&1; then
    # Both wheels own the files of one package, mxnet: taking out either breaks the other, so both go.
    say "taking $other out, for $wheel"
    pip uninstall --yes $wheel $other
fi
say "installing mxdp[$extras] and its libraries into .venv, once: some minutes, and some hundred MB from the network"
# Python 3.8's own pip (23.0) searches for versions that fit d2l's for more than ten minutes, 25.0 for one; 20.0 can't
# do an editable install from a pyproject.toml at all.
pip install "pip>=25"
pip install --editable ".[$extras]"
echo "$wanted" >.venv/installed.new
mv .venv/installed.new .venv/installed
say "installed"
