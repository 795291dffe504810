#!/bin/sh
# usage: isa_symbols_check.sh libcleave_kernels.a
# Objects of one instruction set (x_avx2.cc, x_avx512.cc, …) may define only local functions and
# their named tables: a weak function compiled there could be the copy that the linker keeps for
# callers on a smaller processor.
set -eu
found=$(nm -C "$1" | awk '
  /^[a-zA-Z0-9_.]+:$/ { member = $1; next }
  member ~ /avx/ && $2 ~ /^[WVu]$/ { print member, $0 }')
if [ -n "$found" ]; then
  echo "functions that would leak out of the sources of one instruction set:"
  echo "$found"
  exit 1
fi
members=$(nm "$1" | grep -c '^[a-z0-9_]*avx[a-z0-9_]*\.cc\.o:$')
echo "no leak in $members objects"
[ "$members" -gt 0 ]
