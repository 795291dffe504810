#!/bin/sh
# usage: kernel_spills_check.sh libcleave_kernels.a
# The product kernels of AVX-512 keep their chains in registers: an accumulator that goes through
# the stack costs up to 40 % of the rate, and compilers start doing it without a word.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
objects='matmul_avx512.cc.o matmul_avx512bf16.cc.o matmul_avx512amx.cc.o'
ar x "$1" $objects
objdump -d --no-show-raw-insn -C $objects | awk '
  /^[0-9a-f]+ <.*>:$/ { name = $0; kernels += /WalkChunk|AmxTile/ }
  name ~ /WalkChunk|AmxTile/ && /zmm/ && /\(%r[sb]p/ { spills[name]++ }
  END {
    for (n in spills) { print spills[n] " register spills in " n; bad = 1 }
    print kernels + 0 " kernels"
    exit bad || kernels < 140
  }'
