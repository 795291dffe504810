#pragma once
// Compute probe: how many operations a second some cores together do at most of one kind
// (kernels/peak.h): what stands beside a prefill as the bandwidth probe stands beside a decoding
// step.
//
//   ASSIGN_OR_RETURN(auto probe, ComputeProbe::Create(isa, PeakKind::kBf16, {0, 1}));
//   probe->Measure(3);
//   probe->median_ops_per_s();
//
// Owner and thread: one. Each Measure starts its threads, pinned, and ends them. Fails with
// kInvalidArgument without cores, and for an instruction set that has no peak (kernels/peak.h) or
// is not there.

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kernels/peak.h"

namespace cleave {

class ComputeProbe {
 public:
  // A processor that is not allowed leaves its thread unpinned.
  static Result<std::unique_ptr<ComputeProbe>> Create(Isa isa, PeakKind kind,
                                                      std::vector<int> cpus);

  // Passes of about 20 ms; each is one figure.
  void Measure(uint32_t passes);

  [[nodiscard]] PeakKind kind() const { return kind_; }
  [[nodiscard]] uint32_t cores() const { return static_cast<uint32_t>(cpus_.size()); }
  // Of all passes so far, operations per second; a multiply and an add count two.
  [[nodiscard]] const std::vector<double>& figures() const { return figures_; }
  [[nodiscard]] double median_ops_per_s() const;
  [[nodiscard]] double best_ops_per_s() const;

 private:
  ComputeProbe(Isa isa, PeakKind kind, std::vector<int> cpus)
      : isa_(isa), kind_(kind), cpus_(std::move(cpus)) {}

  const Isa isa_;
  const PeakKind kind_;
  const std::vector<int> cpus_;
  uint64_t rounds_ = 0;  // of a thread in a pass; 0: not known yet
  std::vector<double> figures_;
};

}  // namespace cleave
