#pragma once
// RankContext: what every part of a rank's forward pass knows. Built once by the decoder's owner;
// constant; everything it points to outlives the parts.

#include <cstdint>
#include <span>

#include "comm/expert_counts.h"
#include "comm/group.h"
#include "comm/life.h"
#include "engine/model_weights.h"
#include "kernels/isa.h"
#include "kernels/thread_pool.h"
#include "model/config.h"
#include "split/layout.h"

namespace cleave {

class BillLine;

// What a rank speaks to others through. Null: it is alone on that axis.
struct RankComm {
  Group* tp = nullptr;
  Group* pp = nullptr;
  Group* ep = nullptr;                        // all ranks of the stage
  Group* team = nullptr;                      // those of the team, where ep goes beyond them
  Group* cp = nullptr;                        // positions, and rows of large steps
  Group* dcp = nullptr;                       // positions, among tp ranks
  RankLine* line = nullptr;                   // its sign of life
  BillLine* bill = nullptr;                   // where it says what it moved
  std::span<ExpertCount> expert_tokens = {};  // [E] where it counts them; empty: nowhere

  void Beat() const {
    if (line != nullptr) line->Beat();
  }
};

struct RankContext {
  const ModelConfig* config = nullptr;
  const Layout* layout = nullptr;
  uint32_t rank = 0;  // of the layout
  const ModelWeights* weights = nullptr;
  ThreadPool* pool = nullptr;
  RankComm comm;
  Isa isa = Isa::kScalar;
  uint32_t max_batch_tokens = 0;  // of a team
  uint32_t max_positions = 0;     // of a sequence

  [[nodiscard]] const RankLayout& mine() const { return layout->ranks[rank]; }
  // Rows of all teams that a batch may have.
  [[nodiscard]] uint32_t max_step_rows() const { return layout->split.teams * max_batch_tokens; }
  [[nodiscard]] uint32_t cp_size() const { return layout->split.cp; }
  [[nodiscard]] uint32_t hidden_size() const { return config->hidden_size; }
  [[nodiscard]] float norm_eps() const { return static_cast<float>(config->norm_eps); }
};

}  // namespace cleave
