#!/bin/sh
# Does all the set-up, then runs every test that needs no GPU. Extra arguments go to pytest:
#   sh tests/run.sh                       everything
#   sh tests/run.sh tests/unit -k abi     the native tests, and what pytest selects
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
cd "$root"
. tests/venv.sh

# The browser tests skip themselves without Chromium.
install_chromium() {
    command -v chromium >/dev/null 2>&1 && return
    why=
    if ! command -v apt-get >/dev/null 2>&1; then
        why="this machine has no apt-get"
    elif [ "$(id -u)" != 0 ]; then
        why="apt-get needs root"
    else
        printf '== Chromium, from apt-get\n'
        log=$venv/apt-get.log
        { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends chromium; } \
            </dev/null >"$log" 2>&1 || why="apt-get failed, see $log: $(tail -n 1 "$log")"
    fi
    [ -z "$why" ] || printf 'NOTE: the browser tests will be skipped, chromium is missing: %s\n' "$why"
}

# ThreadSanitizer needs its shadow addresses free, which a kernel with much address randomisation does not give.
without_randomisation() {
    if setarch "$(uname -m)" -R true 2>/dev/null; then
        setarch "$(uname -m)" -R "$@"
    else
        "$@"
    fi
}

# native_tests SANITIZER
native_tests() {
    build=build/native-$1
    step "native tests, $1 sanitizer: configure" "$venv/bin/cmake" -S csrc -B "$build" -G Ninja \
        -DCMAKE_MAKE_PROGRAM="$venv/bin/ninja" -DMUSETRACE_TESTS=ON -DMUSETRACE_SANITIZE="$1"
    step "native tests, $1 sanitizer: build" "$venv/bin/cmake" --build "$build"
    step "native tests, $1 sanitizer: run" without_randomisation "$venv/bin/ctest" --test-dir "$build" \
        --output-on-failure --no-tests=error --timeout 300
}

make_venv record,dashboard,dev
install_chromium
native_tests thread
native_tests address
# Two workers: the tests of the device are threads themselves, the others are bound to one core.
step "pytest" "$venv/bin/python" -m pytest -m "not gpu" -n 2 "$@"
