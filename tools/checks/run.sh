#!/usr/bin/env bash
# Every check that needs no build, one line each; clang-tidy only with a configured build folder.
# usage: tools/checks/run.sh [tidy BUILD_DIR]
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHONDONTWRITEBYTECODE=1
failed=0
run() { "$@" || failed=1; }
run python3 "$here/checks_test.py" --quiet
run python3 "$here/check_layers.py"
run python3 "$here/check_sizes.py"
run python3 "$here/check_docs.py"
run "$here/check_format.sh"
run "$here/check_headers.sh"
[ "${1:-}" != tidy ] || run "$here/check_tidy.sh" "${2:?usage: run.sh [tidy BUILD_DIR]}"
exit $failed
