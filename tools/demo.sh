#!/usr/bin/env bash
# Serves the demo model and asks it a question through the HTTP API; then serves it cut over two
# ranks, each a process, asks the same, and fails unless the answer is the same to the byte.
# usage: tools/demo.sh BINARY MODEL
set -euo pipefail
binary=$1
model=$2
question="What is the capital of France, and what is it known for?"
folder=$(mktemp -d)
server=
cleanup() {
  if [ -n "$server" ]; then
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  rm -rf "$folder"
}
trap cleanup EXIT

# serve NAME FLAG...: sets url and server once it is ready; the log goes to NAME.log
serve() {
  local log=$folder/$1.log
  shift
  echo "demo: $binary serve $model --port 0${*:+ $*}"
  "$binary" serve "$model" --port 0 "$@" >"$log" 2>&1 &
  server=$!
  url=
  for _ in $(seq 300); do
    url=$(sed -n 's/.*ready on \(http:[^ ]*\).*/\1/p' "$log")
    [ -n "$url" ] && break
    kill -0 "$server" 2>/dev/null || { cat "$log" >&2; exit 1; }
    sleep 0.1
  done
  [ -n "$url" ] || { echo "demo: not ready after 30 s" >&2; cat "$log" >&2; exit 1; }
  sed 's/^/  /' "$log"
}

# ask NAME: the answer goes to the terminal and to NAME.answer
ask() {
  echo "demo: asking $url/v1/chat/completions: $question"
  echo
  "$binary" chat "$url" --message "$question" --temperature 0 --max-tokens 96 |
    tee "$folder/$1.answer"
  echo
}

stop() {
  echo "demo: stopping the server with SIGTERM"
  kill -TERM "$server"
  wait "$server"
  server=
}

serve one
ask one
stop
[ -s "$folder/one.answer" ] || { echo "demo: the answer is empty" >&2; exit 1; }

echo
serve two -tp 2
ask two
stop
sed -n '/the bill, all ranks together/,$p' "$folder/two.log" | sed 's/^/  /'
grep -q 'metered as predicted on every rank' "$folder/two.log" ||
  { echo "demo: no bill, or not as predicted" >&2; exit 1; }
cmp "$folder/one.answer" "$folder/two.answer" ||
  { echo "demo: the answers of one rank and of -tp 2 differ" >&2; exit 1; }
echo "demo: one rank and two gave the same answer, byte by byte"
echo "demo: done, exit code 0. Serve it yourself: $binary serve $model"
