#pragma once
// Bandwidth probe: how fast some cores together read a buffer as large as a model's weights. Its
// bytes are shared out evenly and stay where they are, as a rank's weights do: a decoding step
// reads them all once, so no layout of these cores decodes faster than the probe reads.
//
//   ASSIGN_OR_RETURN(auto probe, BandwidthProbe::Create(weight_bytes, {0, 1}));
//   probe->Measure(3);
//   probe->median_bytes_per_s();
//
// Owner and thread: one. Each Measure starts its threads, pinned, and ends them: between calls the
// probe takes memory only. Fails with kInvalidArgument without cores.

#include <cstdint>
#include <memory>
#include <utility>
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

  // `bytes` are brought into [kLeastBytes, kMostBytes]; a processor that is not allowed leaves its
  // thread unpinned.
  static Result<std::unique_ptr<BandwidthProbe>> Create(uint64_t bytes, std::vector<int> cpus);

  // Reads everything `passes` times; each is one figure.
  void Measure(uint32_t passes);

  [[nodiscard]] uint64_t bytes() const { return words_.size() * sizeof(uint64_t); }
  [[nodiscard]] uint32_t cores() const { return static_cast<uint32_t>(cpus_.size()); }
  // Of all passes so far, bytes per second.
  [[nodiscard]] const std::vector<double>& figures() const { return figures_; }
  [[nodiscard]] double median_bytes_per_s() const { return Median(figures_); }
  [[nodiscard]] double best_bytes_per_s() const;
  // The sum of all words, modulo 2^64, as every pass found it.
  [[nodiscard]] uint64_t sum() const { return sum_; }

 private:
  // Memory that its reader touches first, so that it lies near him.
  struct Words {
    explicit Words(size_t n) : data(std::make_unique_for_overwrite<uint64_t[]>(n)), count(n) {}
    [[nodiscard]] size_t size() const { return count; }
    std::unique_ptr<uint64_t[]> data;
    size_t count;
  };

  BandwidthProbe(size_t words, std::vector<int> cpus) : cpus_(std::move(cpus)), words_(words) {}

  const std::vector<int> cpus_;
  Words words_;
  bool touched_ = false;
  uint64_t sum_ = 0;
  std::vector<double> figures_;
};

}  // namespace cleave
