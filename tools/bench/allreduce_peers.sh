#!/usr/bin/env bash
# Our all-reduce over shared memory beside Open MPI's: 2,304 bytes, two processes on two cores, in
# turns in one run. Exit code 1 when our median is above Open MPI's or our p99 above three times our
# median. Installs Open MPI's packages if they are not there; builds under build/bench and outside
# the repository.
# usage: tools/bench/allreduce_peers.sh [TURNS] [ROUNDS]     environment: CORES=0,1
set -euo pipefail
cd "$(dirname "$0")/../.."

turns=${1:-7} rounds=${2:-20000} cores=${CORES:-0,1}
columns=576 bytes=2304

if ! command -v mpicc >/dev/null || ! command -v mpirun >/dev/null; then
  as_root=()
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  "${as_root[@]}" apt-get install -y --no-install-recommends libopenmpi-dev openmpi-bin >&2
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mpicc -O2 -o "$scratch/mpi_allreduce" tools/bench/mpi_allreduce.c
if [ -z "${COMM_BENCH:-}" ]; then
  cmake --preset dev -B build/bench -DCLEAVE_BUILD_BENCH=ON -DCLEAVE_BUILD_TESTS=OFF >/dev/null
  cmake --build build/bench --target comm_bench >/dev/null
  COMM_BENCH=build/bench/src/comm/comm_bench
fi

# --bind-to with the same list of cores; oversubscription would make Open MPI yield at every look.
mpi=(mpirun --allow-run-as-root -np 2 --bind-to cpu-list:ordered --cpu-list "$cores"
     --mca btl self,vader "$scratch/mpi_allreduce" "$bytes" "$rounds")
for ((turn = 1; turn <= turns; ++turn)); do
  "$COMM_BENCH" --cores "$cores" --rounds "$rounds" --one-shot "$((bytes * 2))" "1x$columns" |
    sed 's/^/ours /' | tee -a "$scratch/lines"
  "${mpi[@]}" 2>"$scratch/mpi_errors" | sed 's/^/mpi  /' | tee -a "$scratch/lines" ||
    { cat "$scratch/mpi_errors" >&2; exit 2; }
done

python3 - "$scratch/lines" <<'PY'
import statistics
import sys

median, tail = {"ours": [], "mpi": []}, {"ours": [], "mpi": []}
for line in open(sys.argv[1]):
    words = line.split()
    median[words[0]].append(float(words[words.index("median_us") + 1]))
    tail[words[0]].append(float(words[words.index("p99_us") + 1]))
ours, mpi = statistics.median(median["ours"]), statistics.median(median["mpi"])
p99, mpi_p99 = statistics.median(tail["ours"]), statistics.median(tail["mpi"])
print(f"medians of {len(median['ours'])} turns: ours {ours:.2f} us (p99 {p99:.2f}), "
      f"Open MPI {mpi:.2f} us (p99 {mpi_p99:.2f})")
checks = {f"median at most Open MPI's: {ours:.2f} <= {mpi:.2f}": ours <= mpi,
          f"p99 at most 3 x the own median: {p99:.2f} <= {3 * ours:.2f}": p99 <= 3 * ours}
for text, good in checks.items():
    print("ok    " if good else "FAILS ", text)
sys.exit(0 if all(checks.values()) else 1)
PY
