#pragma once
// Reading memory as fast as one core can: what the bandwidth probe is made of. By the widest loads
// that the processor has, whatever the kernels use: the bound is the machine's.
// Pure; any thread.

#include <cstddef>
#include <cstdint>

namespace cleave {

// The sum of `count` words modulo 2^64, each read once, in order, as two streams: the first half
// and the second. The lines ahead of each are fetched: the processor's own prefetcher stops at
// every page. Fastest where words is 64-byte aligned.
uint64_t SumWords(const uint64_t* words, size_t count);

}  // namespace cleave
