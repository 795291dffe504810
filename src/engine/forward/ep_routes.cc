#include "engine/forward/ep_routes.h"

#include <algorithm>

#include "base/checked.h"

namespace cleave {

EpRoutes::EpRoutes(const Layout& layout, uint32_t rank, uint32_t top_k, uint32_t max_rows)
    : placement_(layout.experts),
      members_(layout.split.ranks_per_stage()),
      team_ranks_(layout.split.ranks_per_team()),
      column_ranks_(members_ / layout.split.ep),
      me_(rank % members_),
      top_k_(top_k),
      max_owned_(CeilDiv(max_rows, team_ranks_)),
      max_spread_(std::min(top_k, layout.split.ep) * column_ranks_),
      owned_(members_),
      sent_(layout.split.ep),
      arriving_(members_) {
  for (std::vector<uint32_t>& rows : sent_) rows.reserve(max_owned_);
  arrivals_.reserve(size_t{max_rows} * layout.split.teams);
}

void EpRoutes::Start(std::span<const Range> teams) {
  rows_ = teams.back().end;
  for (uint32_t member = 0; member < members_; ++member) {
    const Range& team = teams[member / team_ranks_];
    const Range share = EvenShare(team.size(), team_ranks_, member % team_ranks_);
    owned_[member] = {team.begin + share.begin, team.begin + share.end};
  }
}

void EpRoutes::Clear() {
  for (std::vector<uint32_t>& sent : sent_) sent.clear();
  arrivals_.clear();
  std::fill(arriving_.begin(), arriving_.end(), 0);
}

void EpRoutes::Plan(const uint32_t* chosen, uint32_t layer) {
  layer_ = layer;
  Clear();
  for (uint32_t member = 0; member < members_; ++member) {
    const Range owned = owned_[member];
    const size_t before = arrivals_.size();
    for (uint32_t row = owned.begin; row < owned.end; ++row) {
      for (uint32_t i = 0; i < top_k_; ++i) {
        const uint32_t place = PlaceOf(chosen[static_cast<size_t>(row) * top_k_ + i], row);
        const auto add_once = [row](std::vector<uint32_t>* list) {
          if (list->empty() || list->back() != row) list->push_back(row);
        };
        if (place == me_ / column_ranks_) add_once(&arrivals_);
        if (member == me_) add_once(&sent_[place]);
      }
    }
    arriving_[member] = static_cast<uint32_t>(arrivals_.size() - before);
  }
}

}  // namespace cleave
