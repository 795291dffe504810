#pragma once
// Expert placement: which ep ranks hold which experts, and whose copy takes which rows.
//
// Every ep rank has slots: as many as its part of the experts in order (ShareOut), and redundant
// copies go to the ranks with the fewest; so memory does not depend on loads. Without loads experts
// lie in order. With loads they are dealt out from the hottest down, each to the coldest rank that
// has a slot, where that is more even. Then each copy goes to the coldest rank with a slot left, of
// the expert that leaves the hottest rank coolest.
// A row's turn (of kExpertTurns) says whose copy it takes: holders have turns in such numbers that
// the hottest rank is as cool as single turns make it. So the hottest rank's load, of the loads
// that were given, is never above that of the experts in order without copies.
// Integers only: every rank of every machine comes to the same. Pure; any thread.

#include <cstdint>
#include <vector>

namespace cleave {

inline constexpr uint32_t kExpertTurns = 64;

struct ExpertPlacement {
  std::vector<std::vector<uint32_t>> held;  // [ep] experts, ascending
  // [E][kExpertTurns] ep rank that computes the expert for rows of the turn; turns of one holder
  // lie apart.
  std::vector<uint16_t> turns;

  [[nodiscard]] uint32_t holder(uint32_t expert, uint32_t turn) const {
    return turns[expert * kExpertTurns + turn % kExpertTurns];
  }
  // Turns of the expert that `rank` takes.
  [[nodiscard]] uint32_t turns_of(uint32_t expert, uint32_t rank) const;
  bool operator==(const ExpertPlacement&) const = default;
};

struct PlacementInput {
  uint32_t experts = 0;
  std::vector<uint64_t> weights;  // [ep] of the ranks: their parts of experts and loads; at least 1
  uint32_t redundant = 0;         // at most MostRedundant
  std::vector<uint64_t> loads = {};  // [E], or empty: alike
};

// Every ep rank would then hold every expert.
uint64_t MostRedundant(uint32_t experts, uint64_t ep);

ExpertPlacement PlaceExperts(const PlacementInput& input);

}  // namespace cleave
