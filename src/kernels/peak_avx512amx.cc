// The peak of int8 products by AMX. Sixteen rows of sixteen outputs, as the products' tile.
//
// A tile's dots reach the vector registers through memory alone: they are stored in a ring of
// blocks, each of which is added when the one before it is stored anew, so that no load waits for a
// store, nor for one that is a multiple of 4 KB away. Hide: see peak_avx512.cc.

#include <immintrin.h>

#include "kernels/amx_tiles.h"
#include "kernels/peak_table.h"

namespace cleave {
namespace {

constexpr int kRows = 16;
constexpr int kBlocks = 8;  // of the ring, stored once a round; 8 KB
constexpr int kDots = kRows * 16;

template <typename V>
[[gnu::always_inline]] inline void Hide(V* v) {
  asm volatile("" : "+v"(*v));
}

// Tiles 0 and 1: dots; 2: sixteen rows of activations, 3: a block of codes; all of them ones.
[[gnu::noinline]] void FillTiles() {
  TileConfig config;
  config.row_bytes[0] = config.row_bytes[1] = config.row_bytes[3] = 64;
  config.row_bytes[2] = 32;
  config.rows[0] = config.rows[1] = config.rows[2] = kRows;
  config.rows[3] = 8;
  alignas(64) int8_t ones[kRows * 64];
  for (int8_t& one : ones) one = 1;
  asm volatile("" : : "r"(ones) : "memory");
  LoadTileConfig(config);
  _tile_loadd(2, ones, 64);
  _tile_loadd(3, ones, 64);
  TileFence();
}

// The least that a block of dots takes: conversion, the product of the two scales, fma.
[[gnu::always_inline]] inline void AddDots(const int32_t* dots, __m512 scale, __m512* act_scale,
                                           __m512* chain) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    Hide(act_scale);
    const __m512 product = _mm512_mul_ps(scale, *act_scale);
    const __m512 dot = _mm512_cvtepi32_ps(_mm512_load_si512(dots + 16 * r));
    chain[r] = _mm512_fmadd_ps(dot, product, chain[r]);
  }
}

void RunInt8(uint64_t rounds, float* accumulators) {
  alignas(64) int32_t scratch[kBlocks * kDots];
  int32_t* ring = scratch;
  asm volatile("" : "+r"(ring));
  for (int i = 0; i < kBlocks * kDots; ++i) ring[i] = 0;
  __m512 chain[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) chain[r] = _mm512_setzero_ps();
  __m512 scale = _mm512_set1_ps(1.0F);
  __m512 act_scale = scale;
  Hide(&scale);
  FillTiles();
  for (uint64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 1
    for (int block = 0; block < kBlocks; block += 2) {
      int32_t* to = ring + block * kDots;
      _tile_zero(0);
      _tile_dpbssd(0, 2, 3);
      _tile_stored(0, to, 64);
      AddDots(to + kDots, scale, &act_scale, chain);
      TileFence();
      _tile_zero(1);
      _tile_dpbssd(1, 2, 3);
      _tile_stored(1, to + kDots, 64);
      AddDots(ring + (block + 2) % kBlocks * kDots, scale, &act_scale, chain);
      TileFence();
    }
  }
  // All but the first, whose dots the last one's store let be added.
#pragma GCC unroll 1
  for (int block = 1; block < kBlocks; ++block) {
    AddDots(ring + block * kDots, scale, &act_scale, chain);
  }
  _tile_release();
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) _mm512_storeu_ps(accumulators + kPeakLanes * r, chain[r]);
}

}  // namespace

const PeakLoop kPeakInt8Amx = {RunInt8, kRows, 2 * 16 * 32 * kBlocks};

}  // namespace cleave
