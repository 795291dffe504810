#pragma once
// The flags of cleave bench engine. Main thread; fails with kInvalidArgument naming the flag.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/model_flags.h"
#include "cli/option_table.h"
#include "cli/split_flags.h"

namespace cleave {

// What two measured layouts may differ in.
struct LayoutChoice {
  Split split = {};
  AutoParts to_measure = {};     // of the split
  uint32_t threads = 0;          // of a rank; 0 = the usable cores, shared out
  std::string expert_load = {};  // a file; its loads are not in the split yet
};

struct BenchFlags {
  ModelFlags model;
  SplitFlags split;
  int64_t prompt_tokens = 512;
  int64_t output_tokens = 128;
  int64_t repeats = 3;
  std::string batch = "1,32";
  std::string against;
  bool json = false;

  void AddTo(OptionTable* table);
  [[nodiscard]] Result<std::vector<uint32_t>> Batches() const;
  // That of the flags; then that of --against, if it is given, which starts without a cut and with
  // the same --threads.
  [[nodiscard]] Result<std::vector<LayoutChoice>> Layouts() const;
};

}  // namespace cleave
