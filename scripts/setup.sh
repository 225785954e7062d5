#!/bin/sh
# Finds a Python that can make the project's virtual environment, and hands over to setup.py. Started by the Makefile.
# PYTHON names one to use instead.
set -eu

new_enough='import sys; raise SystemExit(sys.version_info < (3, 11))'
complete='import ensurepip, venv'
found=
for candidate in ${PYTHON:-python3.13 python3.12 python3.11 python3}; do
    # Started, not only looked up: a version manager puts names on PATH that do not run.
    "$candidate" -I -c "$new_enough" >/dev/null 2>&1 || continue
    found=$candidate
    "$candidate" -I -c "$complete" >/dev/null 2>&1 || continue
    exec "$candidate" -I "$(dirname "$0")/setup.py" "$@"
done

if [ -n "$found" ]; then
    echo "set-up: $found cannot make virtual environments (no venv or ensurepip); on Debian or Ubuntu: apt install python3-venv" >&2
elif [ -n "${PYTHON:-}" ]; then
    echo "set-up: PYTHON=$PYTHON is not a Python 3.11 or newer; name one, or leave PYTHON out" >&2
else
    echo "set-up: no Python 3.11 or newer on PATH; install one, or name it: make PYTHON=/path/to/python3 ..." >&2
fi
exit 2
