#!/bin/sh
# Any CI: installs the suite, tests an endpoint picker, keeps the report in conformance-report/.
#
#     examples/ci/epp-conformance.sh --profile conformance/profile.yaml --binary ./epp
#
# Arguments are those of `epp-conformance run`. The exit code is that of the run: 0 conformant, 1 not conformant, 2 wrong
# use, 3 trouble of the suite or the machine, 4 incomplete.
set -eu

# SUITE is installed by pip: this name, or the repository, best at a commit:
#     git+https://github.com/OWNER/epp-conformance
SUITE=${SUITE:-epp-conformance}
VENV=${VENV:-.epp-conformance}

if [ $# -eq 0 ]; then
    echo "error: nothing to test: give --profile FILE, or --epp HOST:PORT" >&2
    exit 2
fi
[ -x "$VENV/bin/epp-conformance" ] || {
    "${PYTHON:-python3}" -m venv "$VENV"
    "$VENV/bin/pip" install --quiet --disable-pip-version-check "$SUITE"
}
exec "$VENV/bin/epp-conformance" run "$@"
