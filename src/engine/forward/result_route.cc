#include "engine/forward/result_route.h"

#include <algorithm>

namespace cleave {

ResultRoute::ResultRoute(const RankContext& context, uint32_t rows_at_once)
    : context_(context), rows_at_once_(rows_at_once) {
  const RankLayout& mine = context.mine();
  // All cp ranks have the same rows: one of them is enough.
  if (mine.has_head()) head_ = std::make_unique<Head>(context, rows_at_once);
  FindSources();
  items_.reserve(rows_at_once);
  own_.reserve(rows_at_once);
  together_.resize(rows_at_once);
  const bool others = std::any_of(sources_.begin(), sources_.end(),
                                  [](const Source& source) { return source.over != nullptr; });
  if (others) whole_.resize(context.config->vocab_size);
}

void ResultRoute::FindSources() {
  const RankCoord& at = context_.mine().coord;
  const Split& split = context_.layout->split;
  const RankComm& comm = context_.comm;
  if (PlaceInTeam(split, at) != 0) return;
  if (!context_.mine().last_stage) {
    if (context_.rank == 0) sources_ = {{.over = comm.pp, .member = split.pp - 1}};
    return;
  }
  sources_ = {Source()};
  if (at.team != 0) {
    onward_ = comm.ep;
    return;
  }
  for (uint32_t team = 1; team < split.teams; ++team) {
    sources_.push_back({.over = comm.ep, .member = team * split.ranks_per_team()});
  }
  if (context_.rank != 0) onward_ = comm.pp;
}

Status ResultRoute::Run(const float* x, const TeamRows& teams, std::span<const WantedRow> wanted,
                        const RowSink& sink) {
  if (head_ == nullptr && sources_.empty()) return OkStatus();
  for (uint32_t first = 0; first < wanted.size(); first += rows_at_once_) {
    const auto count = std::min<size_t>(rows_at_once_, wanted.size() - first);
    List(teams, wanted, first, static_cast<uint32_t>(count));
    if (!own_.empty()) RETURN_IF_ERROR(head_->Run(x, own_));
    context_.comm.Beat();
    if (sources_.empty()) continue;
    RETURN_IF_ERROR(CollectHighest());
    RETURN_IF_ERROR(onward_ == nullptr ? Give(sink) : Pass());
  }
  return OkStatus();
}

// The rows that come by here, and whose they are.
void ResultRoute::List(const TeamRows& teams, std::span<const WantedRow> wanted, uint32_t first,
                       uint32_t count) {
  const uint32_t my_team = context_.mine().coord.team;
  items_.clear();
  own_.clear();
  for (uint32_t i = first; i < first + count; ++i) {
    Item item{.index = i, .use = wanted[i].use};
    if (head_ != nullptr) {
      const uint32_t team = teams.TeamOf(wanted[i].row);
      if (team == my_team) {
        item.own = static_cast<uint32_t>(own_.size());
        own_.push_back({wanted[i].row - teams.of(team).begin, wanted[i].use});
      } else if (my_team == 0 && team < sources_.size()) {
        item.source = team;
      } else {
        continue;
      }
    }
    items_.push_back(item);
  }
}

Status ResultRoute::CollectHighest() {
  for (uint32_t source = 0; source < sources_.size(); ++source) {
    const auto is_here = [source](const Item& item) {
      return item.source == source && item.use == RowUse::kHighest;
    };
    const Source& from = sources_[source];
    if (from.over == nullptr) {
      for (Item& item : items_) {
        if (is_here(item)) item.highest = head_->result(item.own).highest;
      }
      continue;
    }
    const auto count = std::count_if(items_.begin(), items_.end(), is_here);
    if (count == 0) continue;
    const std::span<MaxLogit> together(together_.data(), static_cast<size_t>(count));
    RETURN_IF_ERROR(from.over->Receive(from.member, std::as_writable_bytes(together)));
    size_t next = 0;
    for (Item& item : items_) {
      if (is_here(item)) item.highest = together[next++];
    }
  }
  return OkStatus();
}

Status ResultRoute::GetWhole(const Item& item, float** logits) {
  const Source& from = sources_[item.source];
  if (from.over == nullptr) {
    *logits = head_->result(item.own).logits;
    return OkStatus();
  }
  *logits = whole_.data();
  return from.over->Receive(from.member, std::as_writable_bytes(std::span(whole_)));
}

Status ResultRoute::Give(const RowSink& sink) {
  for (const Item& item : items_) {
    RowResult result;
    if (item.use == RowUse::kHighest) {
      result.highest = item.highest;
    } else {
      RETURN_IF_ERROR(GetWhole(item, &result.logits));
    }
    RETURN_IF_ERROR(sink(item.index, result));
  }
  return OkStatus();
}

Status ResultRoute::Pass() {
  size_t count = 0;
  for (const Item& item : items_) {
    if (item.use == RowUse::kHighest) together_[count++] = item.highest;
  }
  if (count > 0) {
    RETURN_IF_ERROR(onward_->Send(0, std::as_bytes(std::span(together_).first(count))));
  }
  for (const Item& item : items_) {
    if (item.use == RowUse::kHighest) continue;
    float* logits = nullptr;
    RETURN_IF_ERROR(GetWhole(item, &logits));
    const std::span<const float> row(logits, context_.config->vocab_size);
    RETURN_IF_ERROR(onward_->Send(0, std::as_bytes(row)));
  }
  return OkStatus();
}

}  // namespace cleave
