#!/usr/bin/env bash
# A Python environment with pinned packages, made once and again when its pins change.
# usage: tools/venv.sh NAME REQUIREMENTS   prints the environment's python: .venv/NAME/bin/python
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ $# = 2 ] || { echo "usage: tools/venv.sh NAME REQUIREMENTS" >&2; exit 2; }
venv=$root/.venv/$1
pins=$(sha256sum <"$2")
mkdir -p "$root/.venv"
exec 8>"$root/.venv/$1.lock"
flock 8  # two test runs may ask for it at once
if [ ! -x "$venv/bin/python" ] || [ "$(cat "$venv/pins" 2>/dev/null)" != "$pins" ]; then
  echo "venv.sh: installing $2 into $venv" >&2
  rm -rf "$venv"
  python3 -m venv "$venv" ||
    { echo "venv.sh: needs python3 with venv (apt-get install python3-venv)" >&2; exit 1; }
  if grep -q == "$2"; then
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary=:all: \
      --require-hashes -r "$2" >&2
  fi
  echo "$pins" >"$venv/pins"
fi
echo "$venv/bin/python"
