// Reductions of a ShmGroup.
//
// A slot, or a member's part of one, holds a chunk of rows: one byte a row that says its width,
// padded to a line, then the rows, each padded to a line, narrow or wide.
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

// Of rows [rows.begin, rows.end).
uint64_t WideRows(const IntegerRows& mine, Range rows) {
  return static_cast<uint64_t>(std::count_if(mine.wide + rows.begin, mine.wide + rows.end,
                                             [](uint8_t wide) { return wide != 0; }));
}

// Whether the parts are all rows, one after another; the size of the longest.
bool AreInOrder(std::span<const Range> parts, uint32_t rows, uint32_t* longest) {
  uint32_t next = 0;
  for (const Range& part : parts) {
    if (part.begin != next || part.end < next) return false;
    next = part.end;
    *longest = std::max(*longest, part.size());
  }
  return next == rows;
}

// What `rows` rows of `columns` sums take, of which so many are wide.
uint64_t PackedBytes(uint64_t rows, uint64_t columns, uint64_t wide_rows) {
  return rows + columns * (kNarrow * rows + (kWide - kNarrow) * wide_rows);
}

}  // namespace

Status ShmGroup::CheckShifts(const IntegerRows& mine) const {
  for (uint32_t row = 0; row < mine.rows; ++row) {
    if (mine.shift[row] >= -kMaxShift && mine.shift[row] <= kMaxShift) continue;
    return InvalidArgument(
        fmt::format("a reduction's row {} has shift {}, at most ±{} are possible", row,
                    mine.shift[row], kMaxShift));
  }
  return OkStatus();
}

Status ShmGroup::AllReduce(const IntegerRows& mine, float* out, size_t out_stride) {
  if (mine.rows == 0 || mine.columns == 0) return dead_;
  RETURN_IF_ERROR(CheckShifts(mine));
  if (IsOneShot(mine.rows, mine.columns, traffic_)) return OneShot(mine, out, out_stride);
  return TwoShot(mine, out, out_stride);
}

// Room for every row wide, whatever mine are: all members must cut alike.
ShmGroup::Chunk ShmGroup::ChunkAt(uint64_t room, uint32_t rows, uint32_t columns, uint32_t row,
                                  uint32_t column) {
  const uint64_t fit = (room - (kLine - 1)) / (PitchOf(columns, kWide) + 1);
  if (fit > 0) {
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(fit, rows - row));
    return {{row, row + count}, {0, columns}};
  }
  const auto most = static_cast<uint32_t>((room - kLine) / kWide);
  return {{row, row + 1}, {column, column + std::min(most, columns - column)}};
}

template <typename Fn>
Status ShmGroup::ForEachChunk(uint64_t room, uint32_t rows, uint32_t columns, Fn&& fn) {
  uint32_t row = 0;
  uint32_t column = 0;
  for (uint32_t index = 0; row < rows; ++index) {
    const Chunk chunk = ChunkAt(room, rows, columns, row, column);
    RETURN_IF_ERROR(fn(chunk, index));
    column = chunk.columns.end;
    if (column < columns) continue;
    column = 0;
    row = chunk.rows.end;
  }
  return OkStatus();
}

Status ShmGroup::OneShot(const IntegerRows& mine, float* out, size_t out_stride) {
  const uint64_t shape = uint64_t{mine.rows} << 32U | mine.columns;
  OpTimes times;
  RETURN_IF_ERROR(Begin(CommOp::kAllReduce, calls_++, &times));
  const auto run = [&](const Chunk& chunk, uint32_t index) {
    const bool any_wide = Pack(mine, chunk, {}, MySlot());
    RETURN_IF_ERROR(Exchange(shape, index, any_wide));
    Sum(mine, chunk, chunk.columns, AllTheirs(), out, out_stride);
    return OkStatus();
  };
  const Status status = ForEachChunk(room_, mine.rows, mine.columns, run);
  return Finish(status, CommOp::kAllReduce, times,
                PackedBytes(mine.rows, mine.columns, WideRows(mine, {0, mine.rows})));
}

Status ShmGroup::TwoShot(const IntegerRows& mine, float* out, size_t out_stride) {
  const uint64_t shape = uint64_t{mine.rows} << 32U | mine.columns;
  const uint64_t call = calls_++;
  const auto own_of = [&](uint32_t member) { return EvenShare(mine.columns, size_, member); };
  const auto run = [&](const Chunk& chunk, uint32_t index) {
    OpTimes times;
    const Range part = Intersect(own_of(me_), chunk.columns);
    RETURN_IF_ERROR(Begin(CommOp::kReduceScatter, call, &times));
    const bool any_wide = Pack(mine, chunk, part, MySlot());
    RETURN_IF_ERROR(Exchange(shape, index, any_wide));
    Sum(mine, chunk, part, AllTheirs(), out, out_stride);
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
  };
  Status status = ForEachChunk(room_, mine.rows, mine.columns, run);
  if (!status.ok()) {
    if (dead_.ok()) dead_ = status;
    return status;
  }
  const uint64_t own = own_of(me_).size();
  const uint64_t wide_rows = WideRows(mine, {0, mine.rows});
  stats_.of(CommOp::kReduceScatter).AddCall(PackedBytes(mine.rows, mine.columns - own, wide_rows));
  stats_.of(CommOp::kAllGather).AddCall(own * mine.rows * sizeof(float));
  return OkStatus();
}

uint64_t ShmGroup::PartRoom() const { return room_ / std::max(size_ - 1, 1U) / kLine * kLine; }

uint64_t ShmGroup::PartOffset(uint32_t from, uint32_t to) const {
  return PartRoom() * (to < from ? to : to - 1);
}

// A chunk is the same rows of every member's part, counted from where the part begins, so that
// nobody waits while another's part goes by.
Status ShmGroup::ReduceScatter(const IntegerRows& mine, std::span<const Range> rows_of, float* out,
                               size_t out_stride) {
  if (mine.rows == 0 || mine.columns == 0) return dead_;
  RETURN_IF_ERROR(CheckShifts(mine));
  uint32_t longest = 0;
  if (rows_of.size() != size_ || !AreInOrder(rows_of, mine.rows, &longest)) {
    return InvalidArgument(fmt::format(
        "reduce_scatter over {} members got {} parts, which must have all {} rows in order", size_,
        rows_of.size(), mine.rows));
  }
  const auto part_of = [&](uint32_t member, const Chunk& chunk) {
    const Range rows = rows_of[member];
    return Chunk{Intersect({rows.begin + chunk.rows.begin, rows.begin + chunk.rows.end}, rows),
                 chunk.columns};
  };
  OpTimes times;
  RETURN_IF_ERROR(Begin(CommOp::kReduceScatter, calls_++, &times));
  const uint64_t shape = uint64_t{mine.rows} << 32U | mine.columns;
  const auto run = [&](const Chunk& chunk, uint32_t index) {
    bool any_wide = false;
    for (uint32_t member = 0; member < size_; ++member) {
      if (member == me_) continue;
      any_wide |= Pack(mine, part_of(member, chunk), {}, MySlot() + PartOffset(me_, member));
    }
    RETURN_IF_ERROR(Exchange(shape, index, any_wide));
    std::array<const std::byte*, kMaxGroupSize> theirs = AllTheirs();
    for (uint32_t member = 0; member < size_; ++member) {
      if (member != me_) theirs[member] += PartOffset(member, me_);
    }
    Sum(mine, part_of(me_, chunk), chunk.columns, theirs, out, out_stride);
    return OkStatus();
  };
  const Status status = ForEachChunk(PartRoom(), longest, mine.columns, run);
  const Range own = rows_of[me_];
  const uint64_t wide_rows = WideRows(mine, {0, mine.rows}) - WideRows(mine, own);
  return Finish(status, CommOp::kReduceScatter, times,
                PackedBytes(mine.rows - own.size(), mine.columns, wide_rows));
}

bool ShmGroup::Pack(const IntegerRows& mine, const Chunk& chunk, Range skip, std::byte* slot) {
  const uint32_t begin = chunk.columns.begin;
  const uint32_t end = chunk.columns.end;
  const uint32_t rows = chunk.rows.size();
  const StoreKind store = StoreFor(uint64_t{rows} * chunk.columns.size() * kNarrow);
  if (skip.size() == 0) skip = {end, end};
  std::byte* flags = slot;
  std::byte* at = flags + RoundUp<uint64_t>(rows, kLine);
  bool any_wide = false;
  for (uint32_t row = chunk.rows.begin; row < chunk.rows.end; ++row) {
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

std::array<const std::byte*, kMaxGroupSize> ShmGroup::AllTheirs() const {
  std::array<const std::byte*, kMaxGroupSize> theirs{};
  for (uint32_t member = 0; member < size_; ++member) theirs[member] = Theirs(member);
  return theirs;
}

void ShmGroup::Sum(const IntegerRows& mine, const Chunk& chunk, Range part,
                   const std::array<const std::byte*, kMaxGroupSize>& theirs, float* out,
                   size_t out_stride) {
  if (part.size() == 0) return;
  std::array<const std::byte*, kMaxGroupSize> flags{};  // null: all of the member's are narrow
  std::array<const std::byte*, kMaxGroupSize> at{};
  for (uint32_t member = 0; member < size_; ++member) {
    if (member == me_) continue;
    if (HeaderOf(member).any_wide != 0) flags[member] = theirs[member];
    at[member] = theirs[member] + RoundUp<uint64_t>(chunk.rows.size(), kLine);
  }
  const uint32_t before = part.begin - chunk.columns.begin;
  std::array<PeerRow, kMaxGroupSize> peers;
  for (uint32_t i = 0; i < chunk.rows.size(); ++i) {
    uint32_t count = 0;
    for (uint32_t member = 0; member < size_; ++member) {
      if (member == me_) continue;
      const bool wide = flags[member] != nullptr && flags[member][i] != std::byte{0};
      peers[count++] = {.data = at[member] + before * WidthOf(wide), .wide = wide};
      at[member] += PitchOf(chunk.columns.size(), WidthOf(wide));
    }
    const uint32_t row = chunk.rows.begin + i;
    SumRow(*codec_, mine.totals + row * mine.stride + part.begin, mine.wide[row] != 0, peers.data(),
           count, part.size(), mine.shift[row], out + row * out_stride + part.begin);
  }
}

void ShmGroup::PutSums(const Chunk& chunk, Range part, const float* out, size_t out_stride) {
  const uint64_t bytes = part.size() * sizeof(float);
  const StoreKind store = StoreFor(bytes * chunk.rows.size());
  std::byte* at = MySlot();
  for (uint32_t row = chunk.rows.begin; row < chunk.rows.end; ++row) {
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
  for (uint32_t row = chunk.rows.begin; row < chunk.rows.end; ++row) {
    CopyTo(reinterpret_cast<std::byte*>(out + row * out_stride + part.begin), at,
           part.size() * sizeof(float), StoreKind::kOrdinary);
    at += PitchOf(part.size(), sizeof(float));
  }
}

}  // namespace cleave
