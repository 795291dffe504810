#include "split/expert_placement.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>
#include <utility>

#include "base/rng.h"  // Uint128
#include "split/layout.h"

namespace cleave {
namespace {

// Loads fit so many bits: sums of kMaxExperts of them in turns, times a weight, stay in 128.
constexpr int kLoadBits = 32;

std::vector<uint64_t> ScaledLoads(const PlacementInput& input) {
  std::vector<uint64_t> loads = input.loads;
  loads.resize(input.experts, 0);
  const uint64_t most = *std::max_element(loads.begin(), loads.end());
  if (most == 0) return std::vector<uint64_t>(input.experts, 1);
  const int shift = std::max(0, static_cast<int>(std::bit_width(most)) - kLoadBits);
  for (uint64_t& load : loads) load >>= shift;
  return loads;
}

std::vector<uint32_t> SizesOf(const std::vector<Range>& ranges) {
  std::vector<uint32_t> sizes(ranges.size());
  std::transform(ranges.begin(), ranges.end(), sizes.begin(),
                 [](const Range& range) { return range.size(); });
  return sizes;
}

// A placement on its way, with what its ranks have to do.
class Placing {
 public:
  Placing(const PlacementInput& input, std::vector<uint64_t> loads)
      : weights_(input.weights),
        loads_(std::move(loads)),
        held_(weights_.size()),
        holds_(loads_.size(), std::vector<uint8_t>(weights_.size(), 0)),
        holders_(loads_.size(), 0),
        counts_(loads_.size(), std::vector<uint32_t>(weights_.size(), 0)),
        work_(weights_.size(), 0) {}

  void PlaceInOrder(const std::vector<Range>& ranges);
  void PlaceByLoad(const std::vector<Range>& ranges);
  // slots: [ep] in all.
  void AddCopies(uint32_t count, const std::vector<uint32_t>& slots);
  // Every expert's turns evenly over its holders, then balanced; where that leaves the hottest rank
  // no hotter, it stays so: loads change.
  void PreferEvenTurns();

  [[nodiscard]] bool IsCoolerThan(const Placing& other) const {
    const uint32_t mine = Hottest();
    const uint32_t its = other.Hottest();
    return static_cast<Uint128>(work_[mine]) * weights_[its] <
           static_cast<Uint128>(other.work_[its]) * weights_[mine];
  }
  [[nodiscard]] ExpertPlacement Finish() const;

 private:
  struct Move {
    uint32_t expert = 0;
    uint32_t to = 0;
  };

  // Whether rank a with `more` work more has less to do than rank b, for their weights.
  [[nodiscard]] bool Less(uint32_t a, uint64_t more, uint32_t b) const {
    return static_cast<Uint128>(work_[a] + more) * weights_[b] <
           static_cast<Uint128>(work_[b]) * weights_[a];
  }
  [[nodiscard]] uint32_t Hottest() const;
  // Of the ranks with fewer experts than `slots` says; of equals the first.
  [[nodiscard]] std::optional<uint32_t> ColdestWithRoom(const std::vector<uint32_t>& slots) const;
  [[nodiscard]] uint32_t ExpertToCopy(uint32_t rank) const;
  [[nodiscard]] bool Holds(uint32_t rank, uint32_t expert) const {
    return holds_[expert][rank] != 0;
  }
  void Hold(uint32_t rank, uint32_t expert, uint32_t turns);
  void Balance();
  [[nodiscard]] std::optional<Move> BestMove(uint32_t from) const;

  std::vector<uint64_t> weights_;              // [ep]
  std::vector<uint64_t> loads_;                // [E]
  std::vector<std::vector<uint32_t>> held_;    // [ep]
  std::vector<std::vector<uint8_t>> holds_;    // [E][ep]
  std::vector<uint32_t> holders_;              // [E] how many
  std::vector<std::vector<uint32_t>> counts_;  // [E][ep] turns
  std::vector<uint64_t> work_;                 // [ep] load · turns
};

uint32_t Placing::Hottest() const {
  uint32_t hottest = 0;
  for (uint32_t rank = 1; rank < work_.size(); ++rank) {
    if (Less(hottest, 0, rank)) hottest = rank;
  }
  return hottest;
}

std::optional<uint32_t> Placing::ColdestWithRoom(const std::vector<uint32_t>& slots) const {
  std::optional<uint32_t> coldest;
  for (uint32_t rank = 0; rank < work_.size(); ++rank) {
    if (held_[rank].size() >= slots[rank]) continue;
    if (!coldest || Less(rank, 0, *coldest)) coldest = rank;
  }
  return coldest;
}

void Placing::Hold(uint32_t rank, uint32_t expert, uint32_t turns) {
  held_[rank].push_back(expert);
  holds_[expert][rank] = 1;
  ++holders_[expert];
  counts_[expert][rank] = turns;
  work_[rank] += loads_[expert] * turns;
}

void Placing::PlaceInOrder(const std::vector<Range>& ranges) {
  for (uint32_t rank = 0; rank < ranges.size(); ++rank) {
    for (uint32_t e = ranges[rank].begin; e < ranges[rank].end; ++e) Hold(rank, e, kExpertTurns);
  }
}

void Placing::PlaceByLoad(const std::vector<Range>& ranges) {
  std::vector<uint32_t> order(loads_.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return loads_[a] > loads_[b]; });
  std::vector<uint32_t> slots = SizesOf(ranges);
  for (const uint32_t expert : order) Hold(*ColdestWithRoom(slots), expert, kExpertTurns);
}

// The one whose turns on the hottest rank that holds any are the most work; of ranks that have
// nothing to give, the next.
uint32_t Placing::ExpertToCopy(uint32_t rank) const {
  std::optional<uint32_t> best;
  uint32_t best_at = 0;
  for (uint32_t from = 0; from < held_.size(); ++from) {
    for (const uint32_t expert : held_[from]) {
      if (Holds(rank, expert)) continue;
      const auto work = [&](uint32_t e, uint32_t at) { return loads_[e] * counts_[e][at]; };
      const bool hotter = best && Less(best_at, 0, from);
      const bool same = best && !hotter && !Less(from, 0, best_at);
      if (!best || hotter || (same && work(expert, from) > work(*best, best_at))) {
        best = expert;
        best_at = from;
      }
    }
  }
  return *best;
}

void Placing::AddCopies(uint32_t count, const std::vector<uint32_t>& slots) {
  for (uint32_t i = 0; i < count; ++i) {
    const std::optional<uint32_t> rank = ColdestWithRoom(slots);
    if (!rank) return;
    Hold(*rank, ExpertToCopy(*rank), 0);
    Balance();
  }
}

// A turn from the rank to the coldest other holder of its expert, such that this one stays the
// cooler of the two; of those the largest.
std::optional<Placing::Move> Placing::BestMove(uint32_t from) const {
  std::optional<Move> best;
  for (const uint32_t expert : held_[from]) {
    if (holders_[expert] == 1 || counts_[expert][from] == 0 || loads_[expert] == 0) continue;
    for (uint32_t to = 0; to < held_.size(); ++to) {
      if (to == from || !Less(to, loads_[expert], from) || !Holds(to, expert)) continue;
      const bool colder = best && Less(to, 0, best->to);
      const bool same = best && !colder && !Less(best->to, 0, to);
      if (!best || colder || (same && loads_[expert] > loads_[best->expert])) best = {expert, to};
    }
  }
  return best;
}

// Each move makes the hottest rank cooler and no other as hot: it ends, and at the latest when
// every turn could have moved to every rank.
void Placing::Balance() {
  const size_t most = loads_.size() * kExpertTurns * held_.size();
  for (size_t moves = 0; moves < most; ++moves) {
    const uint32_t from = Hottest();
    const std::optional<Move> move = BestMove(from);
    if (!move) return;
    --counts_[move->expert][from];
    ++counts_[move->expert][move->to];
    work_[from] -= loads_[move->expert];
    work_[move->to] += loads_[move->expert];
  }
}

void Placing::PreferEvenTurns() {
  Placing even = *this;
  std::fill(even.work_.begin(), even.work_.end(), uint64_t{0});
  for (uint32_t expert = 0; expert < loads_.size(); ++expert) {
    std::vector<uint32_t> holders;
    for (uint32_t rank = 0; rank < held_.size(); ++rank) {
      if (Holds(rank, expert)) holders.push_back(rank);
    }
    const auto parts = static_cast<uint32_t>(holders.size());
    for (uint32_t i = 0; i < parts; ++i) {
      const uint32_t turns = EvenShare(kExpertTurns, parts, i).size();
      even.counts_[expert][holders[i]] = turns;
      even.work_[holders[i]] += loads_[expert] * turns;
    }
  }
  even.Balance();
  if (IsCoolerThan(even)) return;
  counts_ = std::move(even.counts_);
  work_ = std::move(even.work_);
}

// Turns in order of when each holder's next is due, so that any few rows after each other meet
// all.
ExpertPlacement Placing::Finish() const {
  ExpertPlacement placement;
  placement.held = held_;
  for (std::vector<uint32_t>& experts : placement.held) std::sort(experts.begin(), experts.end());
  placement.turns.reserve(loads_.size() * kExpertTurns);
  for (const std::vector<uint32_t>& counts : counts_) {
    std::vector<int64_t> credit(counts.size(), 0);
    for (uint32_t turn = 0; turn < kExpertTurns; ++turn) {
      for (size_t rank = 0; rank < counts.size(); ++rank) credit[rank] += counts[rank];
      const auto next = std::max_element(credit.begin(), credit.end());
      *next -= kExpertTurns;
      placement.turns.push_back(static_cast<uint16_t>(next - credit.begin()));
    }
  }
  return placement;
}

// Of each rank: its experts in order, and copies where slots for their weight are fewest.
std::vector<uint32_t> SlotsOf(const PlacementInput& input, const std::vector<Range>& ranges) {
  std::vector<uint32_t> slots = SizesOf(ranges);
  for (uint32_t i = 0; i < input.redundant; ++i) {
    std::optional<uint32_t> fewest;
    for (uint32_t rank = 0; rank < slots.size(); ++rank) {
      if (slots[rank] >= input.experts) continue;
      if (!fewest || static_cast<Uint128>(slots[rank]) * input.weights[*fewest] <
                         static_cast<Uint128>(slots[*fewest]) * input.weights[rank]) {
        fewest = rank;
      }
    }
    if (!fewest) break;
    ++slots[*fewest];
  }
  return slots;
}

}  // namespace

uint32_t ExpertPlacement::turns_of(uint32_t expert, uint32_t rank) const {
  const auto begin = turns.begin() + static_cast<ptrdiff_t>(expert) * kExpertTurns;
  return static_cast<uint32_t>(std::count(begin, begin + kExpertTurns, rank));
}

uint64_t MostRedundant(uint32_t experts, uint64_t ep) { return uint64_t{experts} * (ep - 1); }

ExpertPlacement PlaceExperts(const PlacementInput& input) {
  const std::vector<Range> ranges = ShareOutWide(input.experts, input.weights);
  const std::vector<uint32_t> slots = SlotsOf(input, ranges);
  Placing in_order(input, ScaledLoads(input));
  Placing by_load = in_order;
  in_order.PlaceInOrder(ranges);
  in_order.AddCopies(input.redundant, slots);
  if (!input.loads.empty()) {
    by_load.PlaceByLoad(ranges);
    by_load.AddCopies(input.redundant, slots);
    if (by_load.IsCoolerThan(in_order)) in_order = by_load;
  }
  in_order.PreferEvenTurns();
  return in_order.Finish();
}

}  // namespace cleave
