#!/usr/bin/env bash
# clang-tidy (Debian 12's, version 14) with .clang-tidy has nothing to say. A file is looked at
# again only when it, something it includes, its flags or .clang-tidy changed.
# usage: check_tidy.sh [BUILD_DIR [FILE...]]      default: build/dev, all it compiles of the project
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${1:-build/dev}
[ $# = 0 ] || shift
[ -f "$build/compile_commands.json" ] ||
  { echo "tidy: failed; no $build/compile_commands.json, configure it"; exit 1; }
# Other build folders name other paths: each keeps its own commands and stamps.
tidy=$build/tidy
mapfile -t files < <(python3 tools/checks/compiled_sources.py "$build" "$tidy")
[ $# != 0 ] || set -- "${files[@]}"
mkdir -p "$tidy/stamps"
export build tidy

# tidy_one FILE: its preprocessed text is what clang-tidy would see.
tidy_one() {
  local stamp
  stamp=$tidy/stamps/$({ cat .clang-tidy
    python3 tools/checks/compiled_sources.py "$build" "$tidy" "$1"; } | sha256sum | cut -c1-32)
  [ -e "$stamp" ] && return
  clang-tidy --quiet -p "$tidy" "$1" 2>/dev/null || { echo "$1: clang-tidy"; return 1; }
  touch "$stamp"
}
export -f tidy_one
if ! printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} bash -c 'tidy_one {}'; then
  echo "tidy: failed"
  exit 1
fi
echo "tidy: OK, $# files"
