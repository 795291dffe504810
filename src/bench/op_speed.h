#pragma once
// Speed of the kernels between a model's matrix products, at SmolLM2-135M's sizes: attention over a
// paged cache, norm, rotary embedding, SwiGLU, quantisation, the reductions of a row of logits.
// Each beside what the machine can do at most, its results beside the scalar kernels'.
//
// Data of each are there in many copies, walked in turn, a share a thread. Bytes are those that
// must be read and written, beside what a probe reads of as many; operations, of attention alone,
// count two for a multiply and an add, beside the fp32 peak.
//
// Owner: a verb. Any thread, one call at a time; starts threads, pinned, and ends them. Fails with
// kInvalidArgument without cores and kResourceExhausted without memory.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/isa.h"

namespace cleave {

struct OpOptions {
  Isa isa = Isa::kScalar;
  std::vector<int> cpus;      // a thread each
  uint64_t stream_bytes = 0;  // of all copies at least; 0: a copy a thread
  uint32_t repeats = 5;
};

struct OpSpeed {
  std::string name;
  uint64_t bytes = 0;  // of a call
  double operations = 0;
  double seconds = 0;            // of a call of one thread, the median
  double bytes_per_s = 0;        // of all threads together
  double probe_bytes_per_s = 0;  // the median
  double ops_per_s = 0;
  double peak_ops_per_s = 0;  // the median; 0: none, or nothing counted
  bool same = false;          // the scalar kernel's bits
};

// `on_op` is called before each is measured.
Result<std::vector<OpSpeed>> MeasureOps(const OpOptions& options,
                                        const std::function<void(const std::string&)>& on_op);

// {"isa", "threads", "same": true, "kernels": [{"kernel", "bytes", "operations", "s",
// "bytes_per_s",
//   "of_bandwidth", "ops_per_s", "of_peak", "same": true}]}; null where nothing is counted.
std::string OpJson(const OpOptions& options, const std::vector<OpSpeed>& speeds);
std::string OpText(const OpOptions& options, const std::vector<OpSpeed>& speeds);

}  // namespace cleave
