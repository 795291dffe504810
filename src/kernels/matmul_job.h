#pragma once
// MatmulJob: one call of MatmulColumn or MatmulRow as plain pointers, and the kernels of every
// instruction set. Internal to kernels.
//
// Sources of an instruction set include only this, record.h and intrinsics: an inline function of a
// shared header, compiled there with wider instructions, could be the copy the linker keeps.

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace cleave {

// Of a matrix' slice: 196,608 columns. Tables of the kernels have room for pairs of rows as long.
inline constexpr uint32_t kMaxBlocks = 6144;

struct MatmulJob {
  // Weights: records [group][block].
  DType dtype = DType::kF32;
  const std::byte* records = nullptr;
  uint32_t blocks = 0;
  uint32_t outputs = 0;      // rows of the matrix; the last group may be part empty
  uint32_t group_begin = 0;  // groups of 16 outputs to compute
  uint32_t group_end = 0;

  // Activations [row][block]; a row's blocks are act_stride apart from the next row's.
  uint32_t rows = 0;
  uint32_t terms = 1;  // 2: rows come in pairs, which are added into one row of y or totals
  uint32_t act_stride = 0;
  const void* acts = nullptr;         // int8, bf16 or f32 [row][block][32]
  const float* scale = nullptr;       // int8: [row][block]
  const int32_t* sum = nullptr;       // int8: [row][block], Σq
  const int32_t* half_sum = nullptr;  // int8: [row][block], Σq of elements 0..15

  // Column-parallel when totals is null.
  float* y = nullptr;
  size_t y_stride = 0;

  // Row-parallel.
  int64_t* totals = nullptr;
  size_t totals_stride = 0;
  const int32_t* shift = nullptr;        // [row of totals]
  const uint8_t* wide = nullptr;         // [row / terms]
  const uint32_t* sum_groups = nullptr;  // ends of the sum groups, in blocks
  uint32_t sum_group_count = 0;
  // One expert of a mixture, else null: activation row r is multiplied by gate[r / terms] and added
  // to what stands in row token[r / terms] of totals.
  const uint32_t* token = nullptr;
  const float* gate = nullptr;
};

// One row of a plan's blocks, as PrepareActs hands it to an instruction set: `count` whole blocks
// (32 elements each, consecutive in x) whose results go to consecutive blocks.
struct QuantiseJob {
  const float* x = nullptr;
  uint32_t count = 0;
  int8_t* q = nullptr;
  float* scale = nullptr;
  int32_t* sum = nullptr;
  int32_t* half_sum = nullptr;
};

// A block with a NaN or an infinity: scale NaN, q and sums 0, so that every product it meets is NaN
// on every instruction set.
inline constexpr float kSmallestAmax = 0x1p-100F;

void MatmulScalar(const MatmulJob& job);
void MatmulAvx2(const MatmulJob& job);
void MatmulAvx512(const MatmulJob& job);      // bf16 weights by fma
void MatmulAvx512Bf16(const MatmulJob& job);  // bf16 weights only, by vdpbf16ps
// Quantised weights of at most kMaxAmxBlocks blocks only; worth it from kAmxRows rows on.
void MatmulAvx512Amx(const MatmulJob& job);
inline constexpr uint32_t kAmxRows = 16;
inline constexpr uint32_t kMaxAmxBlocks = 448;

void QuantiseScalar(const QuantiseJob& job);
void QuantiseAvx2(const QuantiseJob& job);
void QuantiseAvx512(const QuantiseJob& job);

// n floats to bf16, round to nearest even.
void RoundToBf16Scalar(const float* x, uint32_t n, uint16_t* out);
void RoundToBf16Avx2(const float* x, uint32_t n, uint16_t* out);
void RoundToBf16Avx512(const float* x, uint32_t n, uint16_t* out);

}  // namespace cleave
