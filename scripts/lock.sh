#!/bin/sh
# Writes requirements/run.txt, dev.txt, bench.txt and otel.txt from pyproject.toml: every package and file hash for each system, and no
# address. What benchmarks compare with and the real receiver are resolved by themselves, as their users get them.
# Versions already locked stay unless --upgrade is given. Started by `make lock`.
set -eu
cd "$(dirname "$0")/.."

compile() {
    .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-header --no-config --system-certs "$@"
}

compile pyproject.toml --group build --output-file requirements/run.txt "$@"
compile pyproject.toml --group dev --constraint requirements/run.txt --output-file requirements/dev.txt "$@"
compile --group bench --output-file requirements/bench.txt "$@"
compile --group otel --output-file requirements/otel.txt "$@"
