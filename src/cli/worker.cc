#include <fmt/core.h>
#include <unistd.h>

#include "cli/log_setup.h"
#include "cli/verbs.h"
#include "launch/rank_worker.h"

namespace cleave {

int RunWorkerVerb() {
  if (::isatty(WorkerFds().control) != 0 || ::lseek(WorkerFds().control, 0, SEEK_CUR) >= 0) {
    fmt::print(stderr,
               "cleave worker: serve starts this for each rank; run cleave serve -tp 2 …\n");
    return 2;
  }
  SetUpLogging("info", "text");
  RankWorker body;
  return RunWorker(&body);
}

}  // namespace cleave
