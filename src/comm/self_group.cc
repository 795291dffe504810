#include "comm/self_group.h"

#include <fmt/format.h>

#include <cstring>

#include "comm/row_codec.h"

namespace cleave {
namespace {

Status NobodyThere(uint32_t member) {
  return InvalidArgument(
      fmt::format("a group of one cannot exchange with its member {}: it is alone", member));
}

}  // namespace

Status SelfGroup::AllReduce(const IntegerRows& mine, float* out, size_t out_stride) {
  const RowCodec& codec = BestRowCodec();
  for (uint32_t row = 0; row < mine.rows; ++row) {
    SumRow(codec, mine.totals + row * mine.stride, mine.wide[row] != 0, nullptr, 0, mine.columns,
           mine.shift[row], out + row * out_stride);
  }
  return OkStatus();
}

Status SelfGroup::ReduceScatter(const IntegerRows& mine, std::span<const Range> rows_of, float* out,
                                size_t out_stride) {
  if (rows_of.size() != 1 || rows_of[0] != Range{0, mine.rows}) {
    return InvalidArgument(fmt::format("reduce_scatter of one member got {} parts of {} rows",
                                       rows_of.size(), mine.rows));
  }
  return AllReduce(mine, out, out_stride);
}

Status SelfGroup::AllGather(std::span<const std::byte> mine, std::span<const uint64_t> sizes,
                            std::byte* out) {
  if (sizes.size() != 1 || sizes[0] != mine.size()) {
    return InvalidArgument(fmt::format("all_gather of one member got {} sizes and {} bytes",
                                       sizes.size(), mine.size()));
  }
  if (!mine.empty()) std::memmove(out, mine.data(), mine.size());
  return OkStatus();
}

Status SelfGroup::AllToAll(const std::byte* send, std::span<const uint64_t> send_sizes,
                           std::byte* receive, std::span<const uint64_t> receive_sizes) {
  if (send_sizes.size() != 1 || receive_sizes.size() != 1 || send_sizes[0] != receive_sizes[0]) {
    return InvalidArgument("all_to_all of one member sends itself what it receives");
  }
  if (send_sizes[0] != 0) std::memmove(receive, send, send_sizes[0]);
  return OkStatus();
}

Status SelfGroup::Send(uint32_t to, std::span<const std::byte> /*bytes*/) {
  return NobodyThere(to);
}

Status SelfGroup::Receive(uint32_t from, std::span<std::byte> /*bytes*/) {
  return NobodyThere(from);
}

}  // namespace cleave
