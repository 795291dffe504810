#!/bin/sh
# usage: kernel_spills_check.sh libcleave_kernels.a
# The product kernels of AVX-512 keep their chains in registers: an accumulator that goes through
# the stack costs up to 40 % of the rate, and compilers start doing it without a word. So do the
# loops that measure the peak, of AVX2 too; there a compiler could also merge equal chains, and the
# peak would be of fewer operations than it says.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
products="matmul_avx512.cc.o matmul_avx512bf16.cc.o matmul_avx512amx.cc.o"
peaks="peak_avx2.cc.o peak_avx512.cc.o peak_avx512bf16.cc.o peak_avx512amx.cc.o"
ar x "$1" $products $peaks
objdump -d --no-show-raw-insn -C $products $peaks | awk '
  /file format/ { file = $1 }
  /^[0-9a-f]+ <.*>:$/ {
    name = file " " $0
    kernels += /WalkChunk|AmxTile/
    peak = file ~ /peak_/ && /Run/
    if (peak) loops[name] = 0
  }
  (name ~ /WalkChunk|AmxTile/ || peak) && /[yz]mm/ && /\(%r[sb]p/ { spills[name]++ }
  peak && /vfmadd|vdpbf16ps|vpdpbusd|vpmaddubsw/ { loops[name]++ }
  END {
    for (n in spills) { print spills[n] " register spills in " n; bad = 1 }
    for (n in loops) {
      found++
      # Of a round: 192 multiply-adds; 8 dot products and a multiply-add of 12 rows, or of 6; of two
      # tiles, and of one at the end, a multiply-add of 16 rows.
      wanted = n ~ /RunF32|RunDotBf16/ ? 192 : n ~ /amx/ ? 48 : n ~ /avx512/ ? 108 : 54
      if (loops[n] != wanted) {
        print loops[n] " multiply-adds in " n
        bad = 1
      }
    }
    print kernels + 0 " kernels, " found + 0 " peaks"
    exit bad || kernels < 140 || found != 6
  }'
