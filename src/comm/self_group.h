#pragma once
// SelfGroup: a group of one. Nothing is exchanged and nothing metered; a reduction is the
// conversion to fp32 alone. Any thread.

#include "comm/group.h"

namespace cleave {

class SelfGroup final : public Group {
 public:
  [[nodiscard]] uint32_t rank() const override { return 0; }
  [[nodiscard]] uint32_t size() const override { return 1; }
  Status AllReduce(const IntegerRows& mine, float* out, size_t out_stride) override;
  Status ReduceScatter(const IntegerRows& mine, std::span<const Range> rows_of, float* out,
                       size_t out_stride) override;
  Status AllGather(std::span<const std::byte> mine, std::span<const uint64_t> sizes,
                   std::byte* out) override;
  Status AllToAll(const std::byte* send, std::span<const uint64_t> send_sizes, std::byte* receive,
                  std::span<const uint64_t> receive_sizes) override;
  // There is nobody to send to: kInvalidArgument.
  Status Send(uint32_t to, std::span<const std::byte> bytes) override;
  Status Receive(uint32_t from, std::span<std::byte> bytes) override;
  [[nodiscard]] const CommStats& stats() const override { return stats_; }

 private:
  CommStats stats_;
};

}  // namespace cleave
