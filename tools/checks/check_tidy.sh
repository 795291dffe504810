#!/usr/bin/env bash
# clang-tidy (Debian 12's, version 14) with .clang-tidy has nothing to say. A file is looked at
# again only when it, something it includes, its flags or .clang-tidy changed.
# usage: check_tidy.sh [BUILD_DIR [FILE...]]      default: build/dev, all sources of src/
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${1:-build/dev}
[ $# = 0 ] || shift
commands=$build/compile_commands.json
[ -f "$commands" ] || { echo "tidy: failed; no $commands, configure it"; exit 1; }
if [ $# = 0 ]; then
  mapfile -t files < <(python3 tools/checks/compiled_sources.py "$commands")
  set -- "${files[@]}"
fi
stamps=build/checks/tidy
mkdir -p "$stamps"
export build commands stamps

# tidy_one FILE: its preprocessed text is what clang-tidy would see.
tidy_one() {
  local key stamp
  key=$({ cat .clang-tidy; python3 tools/checks/compiled_sources.py "$commands" "$1"; } |
    sha256sum | cut -c1-32)
  stamp=$stamps/$key
  [ -e "$stamp" ] && return
  clang-tidy --quiet -p "$build" "$1" 2>/dev/null || { echo "$1: clang-tidy"; return 1; }
  touch "$stamp"
}
export -f tidy_one
if ! printf '%s\n' "$@" | xargs -P 2 -I{} bash -c 'tidy_one {}'; then
  echo "tidy: failed"
  exit 1
fi
echo "tidy: OK, $# files"
