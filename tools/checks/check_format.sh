#!/usr/bin/env bash
# C++ sources are as clang-format (Debian 12's, version 14) writes them with .clang-format.
# usage: check_format.sh [FILE...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [ $# = 0 ]; then
  mapfile -d '' -t files < <(find src tests tools \( -name '*.cc' -o -name '*.h' \) -print0 |
    sort -z)
  set -- "${files[@]}"
fi
if ! said=$(clang-format --dry-run -Werror "$@" 2>&1); then
  sed -n 's/:[0-9]*:[0-9]*: error: .*/: clang-format would change it/p' <<<"$said" | sort -u
  echo "format: failed; clang-format -i the files above"
  exit 1
fi
echo "format: OK, $# files"
