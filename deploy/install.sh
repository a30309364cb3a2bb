#!/bin/sh
# Make a virtual environment with inbound in it, every package in the version of requirements/dev.lock.
#
# usage: install.sh FOLDER EXTRAS, at the top of the repository; EXTRAS as in fast,tracing, or empty: none.
#
# From a package index each file has to have one of the lock's hashes. From wheelhouse/, if there are wheels in it, nothing is
# fetched, and what is there is trusted: whoever builds has put it there. An inbound_kafka-*.whl among them is taken as it is.
set -eu
folder=$1 extras=$2 lock=requirements/dev.lock
extras=${extras:+[$extras]}  # pip takes no empty brackets
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$folder"
pip() { "$folder/bin/python" -m pip --disable-pip-version-check --no-cache-dir --quiet "$@"; }
locked() { "$folder/bin/python" deploy/locked.py "$@"; }
build_wheel() { pip wheel --no-deps --no-build-isolation --wheel-dir "$work" . && ls "$work"/inbound_kafka-*.whl; }

locked versions "$lock" > "$work/versions.txt"
if ls wheelhouse/*.whl > /dev/null 2>&1; then
    wheel=$(ls wheelhouse/inbound_kafka-*.whl 2> /dev/null || true)
    if [ -z "$wheel" ]; then
        locked versions requirements/build.lock > "$work/tools.txt"
        pip install --no-index --find-links wheelhouse -r "$work/tools.txt"
        wheel=$(build_wheel)
    fi
    pip install --no-index --find-links wheelhouse --constraint "$work/versions.txt" "$wheel$extras"
else
    # The build tools first: PySpark is published as source only, and its build would fetch tools that no lock pins.
    pip install --require-hashes -r requirements/build.lock
    wheel=$(build_wheel)
    pip install --dry-run --ignore-installed --no-build-isolation --report "$work/report.json" \
        --constraint "$work/versions.txt" "$wheel$extras"
    locked pins "$lock" "$work/report.json" > "$work/pins.txt"
    pip install --require-hashes --no-deps --no-build-isolation -r "$work/pins.txt"
    pip install --no-index --no-deps "$wheel"
fi
"$folder/bin/python" -m pip check
"$folder/bin/inbound" --version
