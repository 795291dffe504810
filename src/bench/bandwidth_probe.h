#pragma once
// Bandwidth probe: how fast some cores together read a buffer as large as a model's weights. Its
// bytes are shared out evenly and stay where they are, as a rank's weights do: a decoding step
// reads them all once, so no layout of these cores decodes faster than the probe reads. Each thread
// touches its share first, in huge pages where they can be had, and reads it by the fastest way
// known (kernels/read_stream.h).
//
//   ASSIGN_OR_RETURN(auto probe, BandwidthProbe::Create(weight_bytes, {0, 1}));
//   probe->Measure(3);
//   probe->median_bytes_per_s();
//
// Owner and thread: one. Each Measure starts its threads, pinned, and ends them: between calls the
// probe takes memory only. Fails with kInvalidArgument without cores and kResourceExhausted without
// memory.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"

namespace cleave {

// The middle one, or the mean of the two in the middle; 0 of none.
double Median(std::vector<double> values);

class BandwidthProbe {
 public:
  // Beyond any cache a larger buffer is read no slower.
  static constexpr uint64_t kMostBytes = uint64_t{1} << 30U;
  static constexpr uint64_t kLeastBytes = uint64_t{1} << 16U;
  // A pass reads a buffer that is smaller again, until it has read so much: it lies in a cache, and
  // waking the threads would take as long as reading it once.
  static constexpr uint64_t kPassBytes = uint64_t{1} << 24U;

  // `bytes` are brought into [kLeastBytes, kMostBytes]; a processor that is not allowed leaves its
  // thread unpinned.
  static Result<std::unique_ptr<BandwidthProbe>> Create(uint64_t bytes, std::vector<int> cpus);

  // Passes over everything; each is one figure.
  void Measure(uint32_t passes);

  [[nodiscard]] uint64_t bytes() const { return word_count_ * sizeof(uint64_t); }
  [[nodiscard]] uint32_t cores() const { return static_cast<uint32_t>(cpus_.size()); }
  // Of all passes so far, bytes per second.
  [[nodiscard]] const std::vector<double>& figures() const { return figures_; }
  [[nodiscard]] double median_bytes_per_s() const { return Median(figures_); }
  [[nodiscard]] double best_bytes_per_s() const;
  // The sum of all words, modulo 2^64, as every pass found it.
  [[nodiscard]] uint64_t sum() const { return sum_; }

 private:
  struct Unmap {
    size_t bytes = 0;
    void operator()(std::byte* p) const;
  };
  using Memory = std::unique_ptr<std::byte, Unmap>;

  BandwidthProbe(Memory memory, size_t words, std::vector<int> cpus);

  const std::vector<int> cpus_;
  const Memory memory_;
  const size_t word_count_;
  uint64_t* const words_;  // [word_count_], at a border of huge pages
  bool touched_ = false;
  uint64_t sum_ = 0;
  std::vector<double> figures_;
};

}  // namespace cleave
