#!/usr/bin/env bash
# The unmodified openai client against a built server.
# usage: tests/openai/run.sh CLEAVE MODEL [unittest arguments]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=$("$here/../../tools/venv.sh" openai "$here/requirements.txt")
exec "$python" "$here/client_test.py" "$@"
