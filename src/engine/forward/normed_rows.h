#pragma once
// NormedRows: normed rows of a large step, from the tp ranks that prepared a share of them each
// (TpRowsOf) to all. They travel as the matrices take them, which is exact and fewest bytes.
//
// Owner: a RowStages. Gather is called inside ThreadPool::Run by every thread with equal arguments,
// and ends with all of them having met. No allocation after construction. An error of the group is
// kept in status(): the rows then mean nothing. kResourceExhausted at construction: no room.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "engine/forward/lazy_array.h"
#include "engine/forward/rank_context.h"
#include "engine/forward/row_share.h"
#include "kernels/matmul.h"
#include "split/traffic.h"

namespace cleave {

class NormedRows {
 public:
  using Prepared = std::array<std::optional<ActBuffer>, 3>;
  // Rows of a stage.
  struct Rows {
    float* hidden = nullptr;       // [rows, D], which go as kFloat
    Prepared* prepared = nullptr;  // by ActKind; the others
    int32_t* shift = nullptr;      // [rows]
  };

  NormedRows(const RankContext& context, uint32_t max_rows);

  // The rows that this rank prepares: all, or its share.
  [[nodiscard]] Range OwnOf(uint32_t rows) const { return share_.OwnOf(rows); }
  // terms: prepared rows of a row.
  void Gather(const Rows& of, uint32_t rows, RowWire wire, uint32_t terms, uint32_t thread);

  [[nodiscard]] const Status& status() const { return status_; }
  // Own rows that were handed over, since the start.
  [[nodiscard]] const WireCounts& counts() const { return counts_; }

 private:
  // How rows of the exchange under way go.
  struct Going {
    uint32_t rows;
    RowWire wire;
    uint32_t terms;
    size_t term_bytes;
    [[nodiscard]] size_t row_bytes() const { return terms * term_bytes; }
  };

  [[nodiscard]] std::byte* PartOf(Range rows, const Going& going) {
    return parts_.data() + rows.begin * (going.row_bytes() + 1);
  }
  void Pack(const Rows& of, const Going& going, uint32_t thread);
  void Unpack(const Rows& of, const Going& going, uint32_t thread);
  Status Exchange(const Going& going);

  const RankContext& context_;
  RowShare share_;
  const size_t blocks_;  // of a prepared row of D
  Status status_;
  WireCounts counts_{};
  std::vector<uint64_t> sizes_;  // [tp]
  LazyArray<std::byte> parts_;   // of each rank: its rows, then their shifts, a byte each
};

}  // namespace cleave
