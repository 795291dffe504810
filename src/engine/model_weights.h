#pragma once
// ModelWeights: everything of a checkpoint that one rank multiplies by, repacked for the kernels.
//
// Owner: the rank's runner. Load runs on the caller's thread and the pool; afterwards constant,
// read by all workers. Memory: about the file's matrices once more; the file's own pages are given
// back, except the embedding, whose rows are read from the file as they are needed. Matrices that
// an earlier start kept on disk (engine/packed_store.h) are mapped instead: memory of the file, not
// of the process. Fails: kUnsupported and kDataLoss from the checkpoint, kResourceExhausted when
// memory ends; what is wrong with files kept on disk is logged, and the matrices are packed.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/packed_region.h"
#include "kernels/packed_matrix.h"
#include "kernels/thread_pool.h"
#include "model/checkpoint.h"
#include "split/layout.h"

namespace cleave {

// Row-parallel sums (docs/arithmetic.md): where the residual row sets the quantum, groups of 64 and
// int32; families that norm a block's output before adding it take an absolute quantum 2^-36.
struct SumRule {
  uint32_t group = 64;
  bool absolute = false;
};
SumRule SumRuleOf(const ModelConfig& config);

inline constexpr int32_t kRelativeBits = 20;  // quantum 2^(e-20) of the residual row's exponent e
inline constexpr int32_t kAbsoluteBits = 36;

struct ExpertWeights {
  PackedMatrix gate;  // [F, D]
  PackedMatrix up;    // [F, D]
  PackedMatrix down;  // [D, F], units are 64 columns
};

// Shapes are of the whole model; a rank has its heads, columns and vocabulary rows of them.
struct LayerWeights {
  std::vector<float> attn_norm;       // [D]
  std::vector<float> q_bias;          // [H·d] or empty
  std::vector<float> k_bias;          // [G·d] or empty
  std::vector<float> v_bias;          // [G·d] or empty
  std::vector<float> q_norm;          // [d] or empty
  std::vector<float> k_norm;          // [d] or empty
  std::vector<float> attn_post_norm;  // [D] or empty
  std::vector<float> ffn_norm;        // [D]
  std::vector<float> ffn_post_norm;   // [D] or empty
  PackedMatrix q;                     // [H·d, D]
  PackedMatrix k;                     // [G·d, D]
  PackedMatrix v;                     // [G·d, D]
  PackedMatrix o;                     // [D, H·d], units are heads
  PackedMatrix gate;                  // [F, D]
  PackedMatrix up;                    // [F, D]
  PackedMatrix down;                  // [D, F], units are 64 columns

  // In place of these three where the layer is a mixture.
  PackedMatrix router;                 // [E, D], whole on every rank
  std::vector<ExpertWeights> experts;  // those the rank holds, ascending
  // What gates and ups of all experts, held here or not, take their input as; nothing: not one
  // kind.
  std::optional<ActKind> expert_input;
};

struct ModelWeights {
  PackedRegion kept;  // what matrices point into that were not packed by this start; goes last
  std::vector<LayerWeights> layers;  // of the rank's stage
  std::vector<float> final_norm;     // [D], beside the head
  PackedMatrix head;                 // [V, D], where RankLayout::has_head
  TensorView embedding;              // [V, D], in the checkpoint's file

  [[nodiscard]] uint64_t packed_bytes() const;
};

// Called now and then while loading with the share done, 0 to 1; from the calling thread.
using LoadProgress = std::function<void(double share)>;

// The checkpoint must outlive the weights (the embedding is a view into it). `float_type`: matrices
// stored as F32, F16 or BF16 are rounded to it first (--dtype); nothing = as stored. Quantised ones
// stay as they are, but for F32, which takes their exact values. Only what `rank` holds is read.
// `packed_folder`: where packed matrices are kept from start to start; empty = nowhere.
Result<ModelWeights> LoadWeights(const Checkpoint& checkpoint, const RankLayout& rank,
                                 std::optional<DType> float_type, ThreadPool* pool,
                                 const LoadProgress& progress,
                                 const std::string& packed_folder = "");

}  // namespace cleave
