#pragma once
// The flags that cut a model: vLLM's spellings with vLLM's meanings, and one sized flag of ours for
// each axis. Axes in the order dp, pp, tp, ep, cp.

#include <string>

#include "base/status.h"
#include "cli/option_table.h"
#include "launch/auto_split.h"
#include "model/config.h"
#include "split/split.h"

namespace cleave {

struct SplitFlags {
  int64_t dp = 1;
  int64_t pp = 1;
  int64_t tp = 1;
  int64_t ep = 1;
  int64_t cp = 1;
  int64_t dcp = 1;
  bool enable_expert_parallel = false;
  std::string tp_shares;           // "3,1"; "auto": by the speed of cores; empty: even
  std::string pp_layers = "auto";  // "10,20"; "auto": by what a layer and the head take
  int64_t redundant_experts = 0;
  bool enable_eplb = false;
  std::string eplb_config;  // vLLM's: {"num_redundant_experts": 2}
  std::string expert_load;  // a file (cli/expert_load.h)
  std::string executor_backend = "mp";

  void AddTo(OptionTable* table);
  // Sizes as they were given; whether they fit a model is MakeLayout's to say. Loads of experts are
  // not read. Fails with kInvalidArgument for a list or a configuration that is none.
  [[nodiscard]] Result<Split> ToSplit() const;
  // What ToSplit left to be measured (launch/auto_split.h).
  [[nodiscard]] AutoParts to_measure() const {
    return {.tp_shares = tp_shares == "auto", .pp_layers = pp_layers == "auto"};
  }

 private:
  [[nodiscard]] Result<uint32_t> RedundantExperts() const;
};

// Without experts there is nothing that teams have in common: says so, and makes them replicas.
void FitToModel(const ModelConfig& config, Split* split);

}  // namespace cleave
