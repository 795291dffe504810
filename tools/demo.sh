#!/usr/bin/env bash
# Serves the demo model and asks it a question through the HTTP API.
# usage: tools/demo.sh BINARY MODEL
set -euo pipefail
binary=$1
model=$2
log=$(mktemp)
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -f "$log"' EXIT

question="What is the capital of France, and what is it known for?"
echo "demo: $binary serve $model --port 0"
"$binary" serve "$model" --port 0 >"$log" 2>&1 &
server=$!
for _ in $(seq 300); do
  url=$(sed -n 's/.*ready on \(http:[^ ]*\).*/\1/p' "$log")
  [ -n "$url" ] && break
  kill -0 "$server" 2>/dev/null || { cat "$log" >&2; exit 1; }
  sleep 0.1
done
[ -n "$url" ] || { echo "demo: not ready after 30 s" >&2; cat "$log" >&2; exit 1; }
sed 's/^/  /' "$log"
echo "demo: asking $url/v1/chat/completions: $question"
echo
"$binary" chat "$url" --message "$question" --temperature 0 --max-tokens 96
echo
echo "demo: stopping the server with SIGTERM"
kill -TERM "$server"
wait "$server"
echo "demo: done, exit code 0. Serve it yourself: $binary serve $model"
