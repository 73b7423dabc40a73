#!/bin/sh
# Does all the set-up, records 20 decode steps of the small built-in model on the CPU device and prints the report.
#   sh samples/quickstart.sh                 into ./musetrace-quickstart, which a second run replaces
#   sh samples/quickstart.sh -o my-run       into a folder that must not exist yet
#   sh samples/quickstart.sh --view          and opens the dashboard in the end
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
. "$root/tests/venv.sh"

usage() {
    printf 'usage: %s [-o FOLDER] [--view]\n' "$0"
}

run_folder=musetrace-quickstart
force=--force # only for the folder that this script names itself
view=
while [ $# -gt 0 ]; do
    case $1 in
        -o)
            [ $# -ge 2 ] || { usage >&2; exit 2; }
            run_folder=$2
            force=
            shift
            ;;
        --view) view=yes ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
    esac
    shift
done
# Before the set-up, which takes minutes; `musetrace record` checks the rest.
if [ -z "$force" ] && { [ -e "$run_folder" ] || [ -L "$run_folder" ]; }; then
    die "$run_folder exists: give -o another folder, or remove it"
fi

# Exit code 3 is a run with losses: still a run to look at, and the report names them.
readable() {
    "$@" || [ $? = 3 ]
}

make_venv record,dashboard
musetrace=$venv/bin/musetrace
step "musetrace record" readable "$musetrace" record --device cpu --model mini -o "$run_folder" $force
step "musetrace report" readable "$musetrace" report "$run_folder"
if [ -n "$view" ]; then
    exec "$musetrace" view "$run_folder"
fi
printf '\nNext: %s view %s\n' "$musetrace" "$run_folder"
