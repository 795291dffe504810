#include "engine/forward/normed_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "engine/row_wire.h"
#include "kernels/act_wire.h"

namespace cleave {
namespace {

constexpr uint32_t kMostTerms = 2;

int32_t SignedOf(std::byte byte) {
  const auto bits = std::to_integer<int32_t>(byte);
  return bits <= INT8_MAX ? bits : bits - (1 << 8);
}

}  // namespace

NormedRows::NormedRows(const RankContext& context, uint32_t max_rows)
    : context_(context),
      share_(context, Axis::kTp),
      blocks_(ColumnPlan(context.hidden_size()).blocks.size()),
      sizes_(context.layout->split.tp) {
  if (!share_.Shares(max_rows)) return;
  const uint64_t row_bytes =
      1 + std::max(RowWireBytes(RowWire::kFloat, context.hidden_size()),
                   kMostTerms * RowWireBytes(RowWire::kInt8, context.hidden_size()));
  parts_ = LazyArray<std::byte>(row_bytes * max_rows);
  if (parts_.data() != nullptr) return;
  status_ = ResourceExhausted(
      fmt::format("{} bytes for the rows that tp ranks exchange could not be had; a smaller "
                  "--max-num-batched-tokens needs less",
                  row_bytes * max_rows));
}

void NormedRows::Gather(const Rows& of, uint32_t rows, RowWire wire, uint32_t terms,
                        uint32_t thread) {
  const Going going{rows, wire, terms, RowWireBytes(wire, context_.hidden_size())};
  Pack(of, going, thread);
  context_.pool->Barrier();
  if (thread == 0 && status_.ok()) status_ = Exchange(going);
  context_.pool->Barrier();
  Unpack(of, going, thread);
  context_.pool->Barrier();
}

void NormedRows::Pack(const Rows& of, const Going& going, uint32_t thread) {
  const Range own = OwnOf(going.rows);
  std::byte* part = PartOf(own, going);
  std::byte* shifts = part + own.size() * going.row_bytes();
  const ThreadPool::Share share = context_.pool->ShareOf(own.size(), thread);
  for (uint32_t i = share.begin; i < share.end; ++i) {
    const uint32_t row = own.begin + i;
    std::byte* to = part + i * going.row_bytes();
    shifts[i] = static_cast<std::byte>(static_cast<int8_t>(of.shift[row]));
    if (going.wire == RowWire::kFloat) {
      std::memcpy(to, of.hidden + size_t{row} * context_.hidden_size(), going.term_bytes);
      continue;
    }
    const ActKind kind = KindOf(going.wire);
    const ActBuffer& acts = *(*of.prepared)[static_cast<size_t>(kind)];
    for (uint32_t term = 0; term < going.terms; ++term, to += going.term_bytes) {
      StoreActRow(kind, acts, blocks_, going.terms * row + term, to);
    }
  }
}

Status NormedRows::Exchange(const Going& going) {
  const std::span<const Range> parts = share_.PartsOf(going.rows);
  for (size_t member = 0; member < parts.size(); ++member) {
    sizes_[member] = parts[member].size() * (going.row_bytes() + 1);
  }
  const uint32_t me = context_.mine().coord.tp;
  counts_[static_cast<size_t>(going.wire)] += uint64_t{going.terms} * parts[me].size();
  return context_.comm.tp->AllGather({PartOf(parts[me], going), sizes_[me]}, sizes_, parts_.data());
}

void NormedRows::Unpack(const Rows& of, const Going& going, uint32_t thread) {
  for (uint32_t member = 0; member < sizes_.size(); ++member) {
    const Range theirs = TpRowsOf(context_.layout->split, member, going.rows);
    const std::byte* part = PartOf(theirs, going);
    const std::byte* shifts = part + theirs.size() * going.row_bytes();
    const bool mine = member == context_.mine().coord.tp;
    const ThreadPool::Share share = context_.pool->ShareOf(mine ? 0 : theirs.size(), thread);
    for (uint32_t i = share.begin; i < share.end; ++i) {
      const uint32_t row = theirs.begin + i;
      const std::byte* from = part + i * going.row_bytes();
      of.shift[row] = SignedOf(shifts[i]);
      if (going.wire == RowWire::kFloat) {
        std::memcpy(of.hidden + size_t{row} * context_.hidden_size(), from, going.term_bytes);
        continue;
      }
      const ActKind kind = KindOf(going.wire);
      ActBuffer* acts = &*(*of.prepared)[static_cast<size_t>(kind)];
      for (uint32_t term = 0; term < going.terms; ++term, from += going.term_bytes) {
        LoadActRow(kind, from, blocks_, going.terms * row + term, acts);
      }
    }
  }
}

}  // namespace cleave
