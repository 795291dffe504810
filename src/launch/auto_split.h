#pragma once
// The parts of a cut that this machine decides: layers of stages by what a layer and the head take
// to run, shares of tp ranks by the speed of their cores. Measured once, by the front, before ranks
// are ordered; the result is a split with every number in it.
//
// Main thread. Fails with what reading and loading the model fails with.

#include <string>

#include "base/status.h"
#include "engine/open_model.h"
#include "split/split.h"

namespace cleave {

// What was left to be measured.
struct AutoParts {
  bool tp_shares = false;
  bool pp_layers = false;
};

// settings.split with the parts filled in that were left open and that the cut has; says in the log
// what it found. A cut that can not be stays as it is: PlanModel says why.
Result<Split> ResolveSplit(const std::string& model_path, const ModelSettings& settings,
                           const AutoParts& parts);

}  // namespace cleave
