// Reductions of a ShmGroup.
//
// A slot holds a chunk of rows: one byte a row that says its width, padded to a line, then the
// rows, each padded to a line, narrow or wide.
#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"
#include "comm/shm_group.h"

namespace cleave {
namespace {

constexpr uint64_t kLine = 64;
constexpr uint64_t kNarrow = sizeof(int32_t);
constexpr uint64_t kWide = sizeof(int64_t);

uint64_t WidthOf(bool wide) { return wide ? kWide : kNarrow; }
uint64_t PitchOf(uint32_t columns, uint64_t width) {
  return RoundUp<uint64_t>(columns * width, kLine);
}

Range Intersect(Range a, Range b) {
  const uint32_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

uint64_t WideRows(const IntegerRows& mine) {
  return static_cast<uint64_t>(
      std::count_if(mine.wide, mine.wide + mine.rows, [](uint8_t wide) { return wide != 0; }));
}

}  // namespace

Status ShmGroup::AllReduce(const IntegerRows& mine, float* out, size_t out_stride) {
  if (mine.rows == 0 || mine.columns == 0) return dead_;
  for (uint32_t row = 0; row < mine.rows; ++row) {
    if (mine.shift[row] >= -kMaxShift && mine.shift[row] <= kMaxShift) continue;
    return InvalidArgument(fmt::format("all_reduce: row {} has shift {}, at most ±{} are possible",
                                       row, mine.shift[row], kMaxShift));
  }
  if (IsOneShot(mine.rows, mine.columns, traffic_)) return OneShot(mine, out, out_stride);
  return TwoShot(mine, out, out_stride);
}

ShmGroup::Chunk ShmGroup::ChunkAt(const IntegerRows& mine, uint32_t row, uint32_t column) const {
  // Room for every row wide, whatever mine are: all members must cut alike.
  const uint64_t rows = (room_ - (kLine - 1)) / (PitchOf(mine.columns, kWide) + 1);
  if (rows > 0) {
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(rows, mine.rows - row));
    return {row, row + count, {0, mine.columns}};
  }
  const auto columns = static_cast<uint32_t>((room_ - kLine) / kWide);
  const uint32_t count = std::min(columns, mine.columns - column);
  return {row, row + 1, {column, column + count}};
}

template <typename Fn>
Status ShmGroup::ForEachChunk(const IntegerRows& mine, Fn&& fn) {
  uint32_t row = 0;
  uint32_t column = 0;
  for (uint32_t index = 0; row < mine.rows; ++index) {
    const Chunk chunk = ChunkAt(mine, row, column);
    RETURN_IF_ERROR(fn(chunk, index));
    column = chunk.columns.end;
    if (column < mine.columns) continue;
    column = 0;
    row = chunk.row_end;
  }
  return OkStatus();
}

Status ShmGroup::OneShot(const IntegerRows& mine, float* out, size_t out_stride) {
  const uint64_t shape = uint64_t{mine.rows} << 32U | mine.columns;
  OpTimes times;
  RETURN_IF_ERROR(Begin(CommOp::kAllReduce, calls_++, &times));
  const Status status = ForEachChunk(mine, [&](const Chunk& chunk, uint32_t index) {
    const bool any_wide = Pack(mine, chunk, {});
    RETURN_IF_ERROR(Exchange(shape, index, any_wide));
    Sum(mine, chunk, chunk.columns, out, out_stride);
    return OkStatus();
  });
  const uint64_t bytes =
      mine.rows + mine.columns * (kNarrow * mine.rows + (kWide - kNarrow) * WideRows(mine));
  return Finish(status, CommOp::kAllReduce, times, bytes);
}

Status ShmGroup::TwoShot(const IntegerRows& mine, float* out, size_t out_stride) {
  const uint64_t shape = uint64_t{mine.rows} << 32U | mine.columns;
  const uint64_t call = calls_++;
  const auto own_of = [&](uint32_t member) { return EvenShare(mine.columns, size_, member); };
  Status status = ForEachChunk(mine, [&](const Chunk& chunk, uint32_t index) {
    OpTimes times;
    const Range part = Intersect(own_of(me_), chunk.columns);
    RETURN_IF_ERROR(Begin(CommOp::kReduceScatter, call, &times));
    const bool any_wide = Pack(mine, chunk, part);
    RETURN_IF_ERROR(Exchange(shape, index, any_wide));
    Sum(mine, chunk, part, out, out_stride);
    BookTime(CommOp::kReduceScatter, times);
    RETURN_IF_ERROR(Begin(CommOp::kAllGather, call, &times));
    PutSums(chunk, part, out, out_stride);
    RETURN_IF_ERROR(Exchange(shape, index, false));
    for (uint32_t member = 0; member < size_; ++member) {
      if (member == me_) continue;
      TakeSums(chunk, member, Intersect(own_of(member), chunk.columns), out, out_stride);
    }
    BookTime(CommOp::kAllGather, times);
    return OkStatus();
  });
  if (!status.ok()) {
    if (dead_.ok()) dead_ = status;
    return status;
  }
  const uint64_t own = own_of(me_).size();
  const uint64_t sums = kNarrow * mine.rows + (kWide - kNarrow) * WideRows(mine);
  stats_.of(CommOp::kReduceScatter).AddCall(mine.rows + (mine.columns - own) * sums);
  stats_.of(CommOp::kAllGather).AddCall(own * mine.rows * sizeof(float));
  return OkStatus();
}

bool ShmGroup::Pack(const IntegerRows& mine, const Chunk& chunk, Range skip) {
  const uint32_t begin = chunk.columns.begin;
  const uint32_t end = chunk.columns.end;
  const StoreKind store = StoreFor(uint64_t{chunk.rows()} * chunk.columns.size() * kNarrow);
  if (skip.size() == 0) skip = {end, end};
  std::byte* flags = MySlot();
  std::byte* at = flags + RoundUp<uint64_t>(chunk.rows(), kLine);
  bool any_wide = false;
  for (uint32_t row = chunk.row_begin; row < chunk.row_end; ++row) {
    const bool wide = mine.wide[row] != 0;
    any_wide |= wide;
    *flags++ = std::byte{wide};
    const int64_t* totals = mine.totals + row * mine.stride;
    for (const Range part : {Range{begin, skip.begin}, Range{skip.end, end}}) {
      std::byte* to = at + (part.begin - begin) * WidthOf(wide);
      if (wide) {
        CopyTo(to, reinterpret_cast<const std::byte*>(totals + part.begin), part.size() * kWide,
               store);
      } else {
        codec_->narrow(totals + part.begin, part.size(), reinterpret_cast<int32_t*>(to), store);
      }
    }
    at += PitchOf(chunk.columns.size(), WidthOf(wide));
  }
  if (store == StoreKind::kStreaming) StreamFence();
  return any_wide;
}

void ShmGroup::Sum(const IntegerRows& mine, const Chunk& chunk, Range part, float* out,
                   size_t out_stride) {
  if (part.size() == 0) return;
  std::array<const std::byte*, kMaxGroupSize> flags{};  // null: all of the member's are narrow
  std::array<const std::byte*, kMaxGroupSize> at{};
  for (uint32_t member = 0; member < size_; ++member) {
    if (member == me_) continue;
    if (HeaderOf(member).any_wide != 0) flags[member] = Theirs(member);
    at[member] = Theirs(member) + RoundUp<uint64_t>(chunk.rows(), kLine);
  }
  const uint32_t before = part.begin - chunk.columns.begin;
  std::array<PeerRow, kMaxGroupSize> peers;
  for (uint32_t i = 0; i < chunk.rows(); ++i) {
    uint32_t count = 0;
    for (uint32_t member = 0; member < size_; ++member) {
      if (member == me_) continue;
      const bool wide = flags[member] != nullptr && flags[member][i] != std::byte{0};
      peers[count++] = {.data = at[member] + before * WidthOf(wide), .wide = wide};
      at[member] += PitchOf(chunk.columns.size(), WidthOf(wide));
    }
    const uint32_t row = chunk.row_begin + i;
    SumRow(*codec_, mine.totals + row * mine.stride + part.begin, mine.wide[row] != 0, peers.data(),
           count, part.size(), mine.shift[row], out + row * out_stride + part.begin);
  }
}

void ShmGroup::PutSums(const Chunk& chunk, Range part, const float* out, size_t out_stride) {
  const uint64_t bytes = part.size() * sizeof(float);
  const StoreKind store = StoreFor(bytes * chunk.rows());
  std::byte* at = MySlot();
  for (uint32_t row = chunk.row_begin; row < chunk.row_end; ++row) {
    CopyTo(at, reinterpret_cast<const std::byte*>(out + row * out_stride + part.begin), bytes,
           store);
    at += PitchOf(part.size(), sizeof(float));
  }
  if (store == StoreKind::kStreaming) StreamFence();
}

void ShmGroup::TakeSums(const Chunk& chunk, uint32_t member, Range part, float* out,
                        size_t out_stride) {
  if (part.size() == 0) return;
  const std::byte* at = Theirs(member);
  for (uint32_t row = chunk.row_begin; row < chunk.row_end; ++row) {
    CopyTo(reinterpret_cast<std::byte*>(out + row * out_stride + part.begin), at,
           part.size() * sizeof(float), StoreKind::kOrdinary);
    at += PitchOf(part.size(), sizeof(float));
  }
}

}  // namespace cleave
