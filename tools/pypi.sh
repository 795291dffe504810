# Sourced by the scripts that bring files from PyPI: words on stderr, and pip where there is none.
# Wants `root`, the folder of the checkout.

me=$(basename "$0" .sh)
say() { echo "$me: $*" >&2; }
die() { say "$*"; exit 1; }

pip() {
  if python3 -m pip --version >/dev/null 2>&1; then
    python3 -m pip "$@"
  else
    "$("$root/tools/venv.sh" fetch /dev/null)" -m pip "$@"
  fi
}
