#pragma once
// EpRoutes: which rows of a step go to which ranks of a stage, where each holds whole experts (or
// its columns of them).
//
// Rows are owned in even shares: member m of the stage's R ranks owns EvenShare(rows, R, m). An
// owner sends a row once to each member that holds any of its experts, itself included; so rows
// arrive in ascending order, from one owner after the other. Every member knows all rows' experts,
// hence everybody's sizes.
// Pure but for its own memory, which is bounded at construction; one thread.

#include <cstdint>
#include <span>
#include <vector>

#include "split/layout.h"

namespace cleave {

class EpRoutes {
 public:
  EpRoutes(const Layout& layout, uint32_t rank, uint32_t top_k, uint32_t max_rows);

  // chosen: [rows][top_k] experts of every row of the step.
  void Plan(const uint32_t* chosen, uint32_t rows);
  // As if there were no rows.
  void Clear() { Plan(nullptr, 0); }

  [[nodiscard]] uint32_t members() const { return members_; }
  [[nodiscard]] uint32_t me() const { return me_; }
  [[nodiscard]] Range OwnedBy(uint32_t member, uint32_t rows) const {
    return EvenShare(rows, members_, member);
  }
  // Owned by one member; members that get one row.
  [[nodiscard]] uint32_t max_owned() const { return max_owned_; }
  [[nodiscard]] uint32_t max_spread() const { return max_spread_; }

  // Of the last Plan. Rows of this member's that go to `member`, ascending.
  [[nodiscard]] std::span<const uint32_t> SentTo(uint32_t member) const {
    return sent_[member / column_ranks_];
  }
  // Rows that come here, ascending, and how many of them `member` owns.
  [[nodiscard]] std::span<const uint32_t> arrivals() const { return arrivals_; }
  [[nodiscard]] uint32_t ArrivingFrom(uint32_t member) const { return arriving_[member]; }

 private:
  const uint32_t members_;
  const uint32_t column_ranks_;
  const uint32_t me_;
  const uint32_t top_k_;
  const uint32_t max_owned_;
  const uint32_t max_spread_;
  std::vector<uint32_t> place_of_;           // [E] ep rank that holds the expert
  std::vector<std::vector<uint32_t>> sent_;  // [ep] own rows
  std::vector<uint32_t> arrivals_;           // [rows]
  std::vector<uint32_t> arriving_;           // [members]
};

}  // namespace cleave
