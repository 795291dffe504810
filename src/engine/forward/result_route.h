#pragma once
// ResultRoute: from the residual rows of a last stage to the sink of the leader (rank 0).
//
//   last stage, cp 0   the head (head.h) makes what is wanted of its team's rows, on tp 0
//   ep send            from there to the first team's tp 0, where it is another team's
//   pp send            from the first team's to the leader, where that is of another stage
//
// Rows go in pieces of rows_at_once, in the order in which they are wanted; a piece's highest
// logits travel together, then each row that is wanted whole.
// Owner: a rank's runner. Thread: the runner's caller. No allocation after construction.
// Fails with what the groups or the sink say.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/executor.h"
#include "engine/forward/head.h"
#include "engine/forward/rank_context.h"
#include "engine/team_rows.h"

namespace cleave {

class ResultRoute {
 public:
  // `context` outlives it.
  ResultRoute(const RankContext& context, uint32_t rows_at_once);

  // x: the residual rows of the rank's team, on a last stage; `teams`: whose rows are which, of
  // that batch. Elsewhere only `wanted` counts. The sink is called on the leader alone.
  Status Run(const float* x, const TeamRows& teams, std::span<const WantedRow> wanted,
             const RowSink& sink);

 private:
  // Who makes results that come by here. Over no group: this rank.
  struct Source {
    Group* over = nullptr;
    uint32_t member = 0;
  };
  // A row of the piece under way.
  struct Item {
    uint32_t index = 0;   // of `wanted`
    uint32_t source = 0;  // in sources_
    RowUse use = RowUse::kLogits;
    uint32_t own = 0;       // made here: in own_
    MaxLogit highest = {};  // where that is wanted
  };

  void FindSources();
  void List(const TeamRows& teams, std::span<const WantedRow> wanted, uint32_t first,
            uint32_t count);
  Status CollectHighest();
  // A row that is wanted whole.
  Status GetWhole(const Item& item, float** logits);
  Status Give(const RowSink& sink);
  Status Pass();

  const RankContext& context_;
  const uint32_t rows_at_once_;
  std::unique_ptr<Head> head_;   // on last stages, cp 0
  std::vector<Source> sources_;  // none where results do not come by
  Group* onward_ = nullptr;      // to its member 0; null: to the sink

  std::vector<Item> items_;         // of the piece, as they are wanted
  std::vector<WantedRow> own_;      // of them, as the head counts the team's rows
  std::vector<MaxLogit> together_;  // [rows_at_once] of one message
  std::vector<float> whole_;        // [V] of another rank
};

}  // namespace cleave
