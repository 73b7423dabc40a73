# Makes .venv in the clone, with the package in it. Sourced by tests/run.sh and samples/quickstart.sh, which set
# $root to the clone.
#
#   make_venv record,dashboard      the extras of pyproject.toml that are wanted, at the versions of constraints.txt

venv=$root/.venv
venv_mark=$venv/made-by-musetrace

die() {
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}

# step TITLE COMMAND...: says what is being done; the first command that fails ends the script with its exit code.
step() {
    step_title=$1
    shift
    printf '== %s\n' "$step_title"
    "$@" || {
        step_rc=$?
        printf 'FAILED (exit code %s): %s\n' "$step_rc" "$step_title" >&2
        exit "$step_rc"
    }
}

venv_pip() {
    # --no-compile: modules are compiled when they are first imported, and most never are.
    PATH="$venv/bin:$PATH" "$venv/bin/python" -m pip --disable-pip-version-check --no-input install --quiet --quiet \
        --no-compile --constraint "$root/tests/constraints.txt" "$@"
}

check_machine() {
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
        die "python3 is missing or older than 3.11: install Python 3.11 or newer"
    python3 -c 'import ensurepip, venv' 2>/dev/null ||
        die "python3 cannot make virtual environments: install python3-venv"
    command -v "${CXX:-c++}" >/dev/null 2>&1 || die "no C++ compiler: install g++"
    printf '#include <Python.h>\n' |
        "${CXX:-c++}" -E -x c++ -I "$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')" - \
            >/dev/null 2>&1 || die "the headers of Python are missing: install python3-dev"
}

# A venv is tied to its interpreter and its folder; one that somebody else made is left alone.
make_empty_venv() {
    venv_identity=$(python3 -VV && printf '%s' "$venv")
    [ -f "$venv_mark" ] && [ "$(cat "$venv_mark")" = "$venv_identity" ] && [ -x "$venv/bin/python" ] && return
    if [ -e "$venv" ] && [ ! -f "$venv_mark" ]; then
        die "$venv was not made by this script: move it away"
    fi
    rm -rf "$venv"
    mkdir "$venv"
    printf '%s' "$venv_identity" >"$venv_mark"
    step "new virtual environment" python3 -m venv "$venv"
}

# make_venv EXTRA[,EXTRA...]
make_venv() {
    check_machine
    make_empty_venv
    # What an extra installs is decided by these two files; its mark holds their checksum once it is in place.
    versions=$(cat "$root/tests/constraints.txt" "$root/pyproject.toml" | cksum)
    missing=
    for extra in $(printf '%s' "$1" | tr , ' '); do
        [ -f "$venv_mark-$extra" ] && [ "$(cat "$venv_mark-$extra")" = "$versions" ] || missing=yes
    done
    if [ -n "$missing" ]; then
        step "build tools" venv_pip scikit-build-core pybind11 cmake ninja
        step "musetrace[$1]" venv_pip --no-build-isolation --editable "$root[$1]"
        for extra in $(printf '%s' "$1" | tr , ' '); do
            printf '%s' "$versions" >"$venv_mark-$extra"
        done
    else
        # Compiles what changed in csrc. New Python files need nothing: the editable install finds them.
        step "musetrace" venv_pip --no-build-isolation --no-deps --editable "$root"
    fi
}
