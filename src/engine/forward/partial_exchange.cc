#include "engine/forward/partial_exchange.h"

#include <algorithm>
#include <numeric>

#include "base/checked.h"

namespace cleave {
namespace {

constexpr uint64_t kNotSent = UINT64_MAX;

// Of one record with every bin wide.
size_t MostBytes(uint32_t head_dim) { return PartialCounts(head_dim) * sizeof(Int128); }

}  // namespace

Partials::Partials(uint32_t rows, uint32_t heads_of, uint32_t head_dim)
    : heads(heads_of),
      record(PartialCounts(head_dim)),
      codes(static_cast<size_t>(rows) * heads),
      counts(static_cast<size_t>(rows) * heads * record),
      wide(static_cast<size_t>(rows) * heads * record) {}

bool Partials::ok() const {
  return codes.data() != nullptr && counts.data() != nullptr && wide.data() != nullptr;
}

PartialRows Partials::At(uint32_t row, uint32_t head) const {
  const size_t first = IndexOf(row, head);
  return {.codes = &codes[first],
          .counts = &counts[first * record],
          .wide = &wide[first * record],
          .token_stride = heads};
}

PartialExchange::PartialExchange(const RankContext& context, Group* group, uint32_t heads,
                                 size_t max_received)
    : context_(context),
      group_(group),
      heads_(heads),
      head_dim_(context.config->head_dim),
      me_(group->rank()),
      members_(group->size()),
      code_sizes_(members_),
      send_sizes_(members_),
      receive_sizes_(members_) {
  const size_t records = static_cast<size_t>(context.max_batch_tokens) * heads;
  codes_ = LazyArray<PartialCode>(members_ * records);
  highest_ = LazyArray<int32_t>(records);
  send_at_ = LazyArray<uint64_t>(records);
  receive_at_ = LazyArray<uint64_t>(members_ * records);
  send_ = LazyArray<std::byte>(records * MostBytes(head_dim_));
  receive_ = LazyArray<std::byte>(max_received * MostBytes(head_dim_));
  if (codes_.data() == nullptr || highest_.data() == nullptr || send_at_.data() == nullptr ||
      receive_at_.data() == nullptr || send_.data() == nullptr || receive_.data() == nullptr) {
    status_ = ResourceExhausted(
        "no address space for the partial attentions of a batch; lower --max-num-batched-tokens");
  }
}

template <typename Fn>
void PartialExchange::ForRecords(const Part& part, Fn&& fn) const {
  for (uint32_t row = part.rows.begin; row < part.rows.end; ++row) {
    for (uint32_t head = part.heads.begin; head < part.heads.end; ++head) fn(row * heads_ + head);
  }
}

void PartialExchange::Run(const Partials& mine, uint32_t rows, std::span<const Part> parts,
                          uint32_t thread) {
  if (thread == 0 && status_.ok()) {
    to_all_ = parts.size() == 1;
    status_ = Announce(mine, rows);
    if (status_.ok()) {
      PlaceSends(parts);
      PlaceReceipts(parts[to_all_ ? 0 : me_]);
    }
  }
  context_.pool->Barrier();
  if (status_.ok()) Pack(mine, thread);
  context_.pool->Barrier();
  if (thread == 0 && status_.ok()) status_ = Send();
  context_.pool->Barrier();
}

Status PartialExchange::Announce(const Partials& mine, uint32_t rows) {
  records_ = rows * heads_;
  const std::span<const PartialCode> codes(mine.codes.data(), records_);
  std::fill(code_sizes_.begin(), code_sizes_.end(), codes.size_bytes());
  RETURN_IF_ERROR(group_->AllGather(std::as_bytes(codes), code_sizes_,
                                    reinterpret_cast<std::byte*>(codes_.data())));
  for (size_t i = 0; i < records_; ++i) {
    highest_[i] = HighestBin(&codes_[i], records_, members_);
  }
  return OkStatus();
}

void PartialExchange::PlaceSends(std::span<const Part> parts) {
  CpCounts::Bins* bins = to_all_ ? &counts_.gathered : &counts_.exchanged;
  uint64_t end = 0;
  for (uint32_t member = 0; member < parts.size(); ++member) {
    const uint64_t begin = end;
    const bool stays = !to_all_ && member == me_;
    ForRecords(parts[member], [&](size_t record) {
      send_at_[record] = stays ? kNotSent : end;
      if (stays) return;
      const PartialCode code = CodeOf(me_, record);
      end += PartialBytes(code, highest_[record], head_dim_);
      (code.wide() ? bins->wide : bins->narrow) += code.CountingBins(highest_[record]);
    });
    send_sizes_[member] = end - begin;
  }
  if (to_all_) send_sizes_[0] = end;
}

void PartialExchange::PlaceReceipts(const Part& part) {
  uint64_t end = 0;
  for (uint32_t member = 0; member < members_; ++member) {
    const uint64_t begin = end;
    if (to_all_ || member != me_) {
      ForRecords(part, [&](size_t record) {
        receive_at_[member * size_t{records_} + record] = end;
        end += PartialBytes(CodeOf(member, record), highest_[record], head_dim_);
      });
    }
    receive_sizes_[member] = end - begin;
  }
}

void PartialExchange::Pack(const Partials& mine, uint32_t thread) {
  const ThreadPool::Share share = context_.pool->ShareOf(records_, thread);
  for (size_t record = share.begin; record < share.end; ++record) {
    if (send_at_[record] == kNotSent) continue;
    StorePartial(CodeOf(me_, record), highest_[record], head_dim_,
                 &mine.counts[record * mine.record], &mine.wide[record * mine.record],
                 &send_[send_at_[record]]);
  }
}

Status PartialExchange::Send() {
  if (!to_all_) {
    return group_->AllToAll(send_.data(), send_sizes_, receive_.data(), receive_sizes_);
  }
  // Nobody has anything to send where every sum is lost to a value that is not finite.
  if (std::all_of(receive_sizes_.begin(), receive_sizes_.end(), [](uint64_t n) { return n == 0; }))
    return OkStatus();
  ++counts_.gathers;
  return group_->AllGather(std::span(send_.data(), send_sizes_[0]), receive_sizes_,
                           receive_.data());
}

void PartialExchange::AddUp(const Partials& mine, uint32_t row, uint32_t head,
                            PartialSum* sum) const {
  const size_t record = mine.IndexOf(row, head);
  sum->Start(highest_[record]);
  sum->AddRecord(mine.codes[record], &mine.counts[record * mine.record],
                 &mine.wide[record * mine.record]);
  for (uint32_t member = 0; member < members_; ++member) {
    if (member == me_) continue;
    const PartialCode code = CodeOf(member, record);
    if (code.empty()) continue;
    sum->Add(code, &receive_[receive_at_[member * size_t{records_} + record]]);
  }
}

}  // namespace cleave
