#!/usr/bin/env bash
# The tests, by tier. Each step says its name, its time and whether it held; all steps run.
# usage: tools/test.sh all|quick|sanitize|checks|soak|grid [JOBS]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tier=${1:?usage: tools/test.sh all|quick|sanitize|checks|soak|grid [JOBS]}
jobs=${2:-$(nproc)}
passed=0
failed=0
failures=()

step() {
  local name=$1 start=$SECONDS
  shift
  echo "==== $name"
  if "$@"; then
    passed=$((passed + 1))
    echo "==== $name: ok ($((SECONDS - start)) s)"
  else
    failed=$((failed + 1))
    failures+=("$name")
    echo "==== $name: FAILED ($((SECONDS - start)) s): $*"
  fi
}

# configure_and_build PRESET [CMAKE ARGS]
configure_and_build() {
  local preset=$1
  shift
  cmake --preset "$preset" "$@" >"build/$preset.log" 2>&1 || { cat "build/$preset.log"; return 1; }
  ninja -C "build/$preset" -j"$jobs" --quiet
}
tests() { ctest --test-dir "build/$1" -j"$jobs" --output-on-failure --no-tests=error "${@:2}"; }

# soak PRESET SECONDS [FLAG]: the quickest model and a pool of 48 blocks, for the most events.
soak() {
  local model=build/$1/tiny/llama3
  /usr/bin/python3 tools/oracle/make_tiny_checkpoints.py "build/$1/tiny" llama3
  python3 tests/load/soak.py "build/$1/cleave" "$model" --kv-bytes 600000 --seconds "$2" "${@:3}"
}

# Wide tiny models of every family and the demo model, every cut of the grid.
grid() {
  /usr/bin/python3 tools/oracle/make_tiny_checkpoints.py build/dev/tiny wide
  python3 tests/cluster/run.py build/dev/cleave --tiny build/dev/tiny --models models \
    tests/cluster/grid.case tests/cluster/grid_demo.case
}

quick_tests() { step "quick tests" tests dev -L quick; }

# sanitized PRESET FLAGS [CTEST ARGS]
sanitized() {
  local preset=$1 flags=$2
  step "build $preset ($flags)" configure_and_build "$preset" "-DCLEAVE_SANITIZE=$flags"
  step "quick tests under $flags" tests "$preset" -L quick "${@:3}"
  step "soak under $flags" soak "$preset" 15 --sanitized
}

# sanitizers [CTEST ARGS]
sanitizers() {
  sanitized asan address,undefined "$@"
  sanitized tsan thread -LE serial "$@"
}

mkdir -p build
export ASAN_OPTIONS=detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1
[ "$tier" = sanitize ] || step "build dev" configure_and_build dev
case $tier in
  quick) quick_tests ;;
  checks) step "checks" tools/checks/run.sh tidy build/dev ;;
  sanitize) sanitizers ;;
  grid) step "grid" grid ;;
  soak)
    step "soak, 5 minutes" soak dev 300
    ;;
  all)
    step "checks" tools/checks/run.sh
    quick_tests
    step "models" tools/fetch_models.sh all
    step "full tests" tests dev -L full
    # Limits of a few seconds in whole clusters are not a sanitizer's matter.
    sanitizers -E '^cluster$'
    ;;
  *) echo "unknown tier $tier" >&2; exit 2 ;;
esac
for name in "${failures[@]:-}"; do [ -z "$name" ] || echo "failed: $name"; done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
