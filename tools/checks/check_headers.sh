#!/usr/bin/env bash
# Every header of src/ compiles alone, so that including one is enough to use it.
# usage: check_headers.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if ! make --no-print-directory --keep-going -j2 -f tools/checks/headers.mk \
  CXX="${CXX:-g++}" all >/dev/null; then
  echo "headers: failed"
  exit 1
fi
echo "headers: OK, $(find src -name '*.h' | wc -l) headers"
