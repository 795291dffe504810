#pragma once
// cleave serve --dry-run: who would hold what, what a step would send, what fits; nothing is
// loaded.

#include <string>

#include "base/status.h"
#include "cli/serve_flags.h"

namespace cleave {

// Prints to standard output. Main thread. Fails as PlanModel does.
Status DryRun(const ServeFlags& flags, const std::string& path);

}  // namespace cleave
