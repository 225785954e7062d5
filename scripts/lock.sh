#!/bin/sh
# Writes requirements/run.txt and dev.txt from pyproject.toml: every package and file hash for each system, and no address.
# Versions already locked stay unless --upgrade is given. Started by `make lock`.
set -eu
cd "$(dirname "$0")/.."

compile() {
    .venv/bin/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-header --no-config --system-certs "$@"
}

compile --group build --output-file requirements/run.txt "$@"
compile --group dev --constraint requirements/run.txt --output-file requirements/dev.txt "$@"
