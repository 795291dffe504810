#pragma once
// PartialExchange: partial attentions go from the ranks that made them to those that add them up.
//
// Every member of a group has partials of the same rows and heads, over runs of its own
// (kernels/attention_partial.h). First all learn what each partial is; then the counts travel of
// those bins that still count beside the row's highest, to the member that owns the record, or to
// all. Integers: neither members nor order show in the sum.
//
// Owner: the attention core. Run is called inside ThreadPool::Run by every thread with equal
// arguments; thread 0 speaks. After Run, AddUp may be called by any thread until the next Run.
// No allocation after construction.

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/forward/lazy_array.h"
#include "engine/forward/rank_context.h"
#include "kernels/attention_partial.h"
#include "split/traffic.h"

namespace cleave {

// Records of [rows, heads].
struct Partials {
  Partials() = default;
  Partials(uint32_t rows, uint32_t heads_of, uint32_t head_dim);

  [[nodiscard]] bool ok() const;
  [[nodiscard]] size_t IndexOf(uint32_t row, uint32_t head) const {
    return static_cast<size_t>(row) * heads + head;
  }
  // For AttentionPartial, from this record on.
  [[nodiscard]] PartialRows At(uint32_t row, uint32_t head) const;

  uint32_t heads = 0;
  size_t record = 0;  // counts of one
  LazyArray<PartialCode> codes;
  LazyArray<int64_t> counts;
  LazyArray<Int128> wide;
};

class PartialExchange {
 public:
  // The records that a member adds up.
  struct Part {
    Range rows;
    Range heads;
  };

  // `max_received`: records that others may send to this rank in a step, counted once a sender.
  PartialExchange(const RankContext& context, Group* group, uint32_t heads, size_t max_received);

  // `parts`: [members] disjoint, of all records together; or one, which all members add up.
  void Run(const Partials& mine, uint32_t rows, std::span<const Part> parts, uint32_t thread);
  // All that the members know of a record of this rank's part.
  void AddUp(const Partials& mine, uint32_t row, uint32_t head, PartialSum* sum) const;

  // kResourceExhausted where there was no room at construction.
  [[nodiscard]] Status status() const { return status_; }
  [[nodiscard]] const CpCounts& counts() const { return counts_; }

 private:
  // On thread 0.
  Status Announce(const Partials& mine, uint32_t rows);
  void PlaceSends(std::span<const Part> parts);
  void PlaceReceipts(const Part& part);
  Status Send();
  void Pack(const Partials& mine, uint32_t thread);
  // Calls fn(record) for the records of a part, by row, then head.
  template <typename Fn>
  void ForRecords(const Part& part, Fn&& fn) const;
  [[nodiscard]] const PartialCode& CodeOf(uint32_t member, size_t record) const {
    return codes_[member * records_ + record];
  }

  const RankContext& context_;
  Group* const group_;
  const uint32_t heads_;
  const uint32_t head_dim_;
  const uint32_t me_;
  const uint32_t members_;

  uint32_t records_ = 0;                 // of this step
  bool to_all_ = false;                  // one part for all members
  LazyArray<PartialCode> codes_;         // [members, records]
  LazyArray<int32_t> highest_;           // [records] bin
  LazyArray<uint64_t> send_at_;          // [records] in send_, or kNotSent
  LazyArray<uint64_t> receive_at_;       // [members, records] in receive_
  std::vector<uint64_t> code_sizes_;     // [members]
  std::vector<uint64_t> send_sizes_;     // [members]
  std::vector<uint64_t> receive_sizes_;  // [members]
  LazyArray<std::byte> send_;
  LazyArray<std::byte> receive_;
  Status status_;
  CpCounts counts_;
};

}  // namespace cleave
