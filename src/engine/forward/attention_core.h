#pragma once
// AttentionCore: softmax(q·kᵀ)·v of a batch's rows over the KV cache, wherever the cut puts the
// keys and values.
//
// Owner: the attention half. Plan runs on the caller's thread; Run inside ThreadPool::Run on every
// thread with equal arguments, and ends with all of them having met. No allocation after
// construction. An error of a group is kept in status(): the rows then mean nothing.

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "engine/forward/rank_context.h"
#include "engine/forward/step_rows.h"
#include "engine/kv_cache.h"
#include "kernels/attention.h"
#include "split/traffic.h"

namespace cleave {

// Of H query and G KV heads on this rank.
struct AttentionRows {
  std::vector<float> q;    // [T, H·d]
  std::vector<float> k;    // [T, G·d]
  std::vector<float> v;    // [T, G·d]
  std::vector<float> out;  // [T, H·d]
};

class AttentionCore {
 public:
  // `queries`: the query heads (of the model) that it attends for.
  AttentionCore(const RankContext& context, KvCache* kv, Range queries);
  virtual ~AttentionCore() = default;
  AttentionCore(const AttentionCore&) = delete;
  AttentionCore& operator=(const AttentionCore&) = delete;

  void Plan(const StepRows& step);
  // q, k and v of the step's own rows are there, each finished by the thread whose share of them it
  // is (ThreadPool::ShareOf). Leaves `out` of the own rows. `layer` counts from the rank's first.
  virtual void Run(uint32_t layer, const StepRows& step, AttentionRows* rows, uint32_t thread) = 0;

  [[nodiscard]] virtual Status status() const { return OkStatus(); }
  // What the rank handed to others of partial attentions, since the start.
  [[nodiscard]] virtual CpCounts cp_counts() const { return {}; }

 protected:
  // A stretch of one sequence's queries and one KV head.
  struct Item {
    uint32_t sequence;
    uint32_t kv_head;  // of the rank's
    uint32_t token;    // first, in the batch
    uint32_t tokens;
    uint32_t position;  // of the first
  };

  // The key and value of a row into the cache, rounded to its type.
  void StoreRow(uint32_t layer, const StepRows& step, const AttentionRows& rows, uint32_t row);
  // The next item that no thread has taken; null when there is none.
  const Item* Take(uint32_t layer, uint32_t thread);
  // The item's job but for its output. q: [T, queries · d].
  [[nodiscard]] AttentionJob JobOf(uint32_t layer, const StepRows& step, const Item& item,
                                   const float* q) const;
  // Of `queries`, those that read the item's KV head.
  [[nodiscard]] Range QueriesOf(const Item& item) const { return queries_of_[item.kv_head]; }

  const RankContext& context_;
  KvCache* const kv_;
  const uint32_t queries_;  // how many it attends for
  const uint32_t kv_heads_;
  std::vector<AttentionScratch> scratch_;  // [threads]

 private:
  std::vector<Range> queries_of_;  // [kv_heads]
  std::vector<Item> items_;
  std::vector<std::atomic<uint32_t>> next_item_;  // [layers]
};

// By the cut: all positions on this rank, or shared over cp and dcp.
std::unique_ptr<AttentionCore> MakeAttentionCore(const RankContext& context, KvCache* kv);

}  // namespace cleave
