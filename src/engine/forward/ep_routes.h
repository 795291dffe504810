#pragma once
// EpRoutes: which rows of a step go to which ranks of a stage, where each holds whole experts (or
// its columns of them).
//
// Where an expert has copies, the row's turn (its number and the layer's) says which is taken.
// Rows are owned in even shares of their team's: member m of its R ranks owns EvenShare(rows, R,
// m). An owner sends a row once to each member that computes any of its experts, itself included;
// so rows, which go by teams, arrive in ascending order, from one owner after the other. Every
// member knows all rows' experts, hence everybody's sizes.
// Pure but for its own memory, which is bounded at construction; one thread.

#include <cstdint>
#include <span>
#include <vector>

#include "split/layout.h"

namespace cleave {

class EpRoutes {
 public:
  // At most max_rows rows a team.
  EpRoutes(const Layout& layout, uint32_t rank, uint32_t top_k, uint32_t max_rows);

  // A step begins that has these rows of each team ([teams], one after the other).
  void Start(std::span<const Range> teams);
  // chosen: [rows][top_k] experts of every row of the step, in layer `layer`.
  void Plan(const uint32_t* chosen, uint32_t layer);
  // As if nothing went anywhere.
  void Clear();

  [[nodiscard]] uint32_t members() const { return members_; }
  [[nodiscard]] uint32_t me() const { return me_; }
  // Of the step, and what of them a member owns.
  [[nodiscard]] uint32_t rows() const { return rows_; }
  [[nodiscard]] Range OwnedBy(uint32_t member) const { return owned_[member]; }
  [[nodiscard]] Range own() const { return owned_[me_]; }
  // Owned by one member; members that get one row.
  [[nodiscard]] uint32_t max_owned() const { return max_owned_; }
  [[nodiscard]] uint32_t max_spread() const { return max_spread_; }

  // Of the last Plan. Rows of this member's that go to `member`, ascending.
  [[nodiscard]] std::span<const uint32_t> SentTo(uint32_t member) const {
    return sent_[member / column_ranks_];
  }
  // Rows that come here, ascending, and how many of them `member` owns.
  [[nodiscard]] std::span<const uint32_t> arrivals() const { return arrivals_; }
  // Whether the row's product with the expert is made here.
  [[nodiscard]] bool IsHere(uint32_t expert, uint32_t row) const {
    return PlaceOf(expert, row) == me_ / column_ranks_;
  }
  [[nodiscard]] uint32_t ArrivingFrom(uint32_t member) const { return arriving_[member]; }

 private:
  [[nodiscard]] uint32_t PlaceOf(uint32_t expert, uint32_t row) const {
    return placement_.holder(expert, row + layer_);
  }

  const ExpertPlacement placement_;
  const uint32_t members_;
  const uint32_t team_ranks_;
  const uint32_t column_ranks_;
  const uint32_t me_;
  const uint32_t top_k_;
  const uint32_t max_owned_;
  const uint32_t max_spread_;
  uint32_t rows_ = 0;
  uint32_t layer_ = 0;
  std::vector<Range> owned_;                 // [members]
  std::vector<std::vector<uint32_t>> sent_;  // [ep] own rows
  std::vector<uint32_t> arrivals_;           // [rows]
  std::vector<uint32_t> arriving_;           // [members]
};

}  // namespace cleave
