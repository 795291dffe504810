#pragma once
// Included before every C++ source of llama.cpp where the processor has AMX. GCC before 11.5, 12.4
// and 13.3 takes _tile_loadconfig to read 8 bytes of its 64, so it drops the stores of the others:
// the tile registers are set up from what lay on the stack, and the program ends with SIGILL or
// SIGSEGV. A macro, as the compiler's own is defined before it.

#if defined(__AMX_TILE__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>

static inline void cleave_tile_loadconfig(const void* config) {
  __asm__ volatile("ldtilecfg %0" ::"m"(*static_cast<const char(*)[64]>(config)));
}
#define _tile_loadconfig cleave_tile_loadconfig
#endif
