#!/bin/sh
# Print the path of the Python to make .venv with: PYTHON if it is set, else the newest of 3.8 to 3.13 on the PATH, or
# with the word `oldest` the oldest. Where there is only a newer one, that is taken, and a sentence says it is untested.
# With none that will do: one sentence that says what was found and what is needed, and exit status 1.
#
# Each candidate is asked, never believed by its name: python3 may be any release, a pyenv shim may not run,
# and Debian's python3 has no venv without the package python3-venv. Only the shell is used: tests can fake the PATH.
set -u

need="mxdp needs Python 3.8 or newer with its venv module"
order=${1-newest}
apple='" arm64" * (sys.platform == "darwin" and platform.machine() == "arm64")'
probe="import platform, sys; print('%d.%d.%d' % sys.version_info[:3] + $apple); sys.stdout.flush()"
probe="$probe; import ensurepip, venv"

# describe FILE: set version (empty: does not run), rank (the higher the better, 0: unsuitable) and words, which tell a
# person about it.
describe() {
    rank=0
    if version=$("$1" -c "$probe" 2>/dev/null </dev/null); then has_venv=yes; else has_venv=no; fi
    case $version in
        *" arm64") words="$version: MXNet has no build for Apple silicon; see docs/install.md"; return ;;
        3.[89].* | 3.[1-9][0-9].*) series=${version%.*} ;;
        [0-9]*.[0-9]*) words=$version; return ;;
        *) version=; words="does not run"; return ;;
    esac
    words="$version without venv: on Debian or Ubuntu, apt install python$series-venv"
    [ $has_venv = yes ] || return
    rank=${series#3.}
    if [ "$rank" -gt 13 ]; then rank=1; elif [ "$order" = oldest ]; then rank=$((21 - rank)); fi
}

# choose FILE RANK: print it.
choose() {
    [ "$2" -gt 1 ] || echo "mxdp: $1 is newer than Python 3.13, the newest that mxdp was tested with." >&2
    echo "$1"
    exit 0
}

if [ -n "${PYTHON-}" ]; then
    chosen=$(command -v -- "$PYTHON") || { echo "$need: PYTHON=$PYTHON is not there." >&2; exit 1; }
    describe "$chosen"
    [ "$rank" -gt 0 ] || { echo "$need: found PYTHON=$PYTHON ($words)." >&2; exit 1; }
    choose "$chosen" "$rank"
fi

chosen= best=0 listed= visited=: environment=$(CDPATH= cd "${VENV:-.venv}/bin" 2>/dev/null && pwd -P)
set -f; IFS=:
set -- $PATH
set +f; unset IFS
for folder; do
    real=$(CDPATH= cd -- "${folder:-.}" 2>/dev/null && pwd -P) || continue
    case $visited in *":$real:"*) continue ;; esac    # /bin is often /usr/bin
    visited=$visited$real:
    [ "$real" != "$environment" ] || continue         # our own .venv, activated: it may be about to go
    versions=' '
    for file in "$real"/python3.[0-9] "$real"/python3.[0-9][0-9] "$real"/python3 "$real"/python; do
        [ -f "$file" ] && [ -x "$file" ] || continue
        describe "$file"
        if [ "$rank" -gt "$best" ]; then chosen=$file best=$rank; fi
        [ "$best" -lt 13 ] || break 2
        case $versions in *" $version "*) continue ;; esac    # python3.13, python3 and python are mostly one
        [ -z "$version" ] || versions="$versions$version "
        listed="$listed${listed:+, }$file ($words)"
    done
done
[ "$best" -gt 0 ] || {
    echo "$need: found ${listed:-none}; install one, or name it with PYTHON=/path/to/python." >&2
    exit 1
}
choose "$chosen" "$best"
