#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include "cli/log_setup.h"
#include "cli/verbs.h"
#include "launch/rank_worker.h"

namespace cleave {

namespace {

// A rank logs as its orders say.
class LoggingWorker final : public WorkerBody {
 public:
  Status Load(const WorkerSpec& spec, World* world,
              const std::function<void(double)>& progress) override {
    SetUpLogging(spec.log_level, spec.log_format);
    return rank_.Load(spec, world, progress);
  }
  Status Serve(EngineLinkServer* link) override { return rank_.Serve(link); }
  Status Follow() override { return rank_.Follow(); }

 private:
  RankWorker rank_;
};

}  // namespace

int RunWorkerVerb() {
  struct stat info {};
  if (::fstat(WorkerFds().control, &info) != 0 || !S_ISSOCK(info.st_mode)) {
    fmt::print(stderr,
               "cleave worker: serve starts this for each rank; run cleave serve -tp 2 …\n");
    return 2;
  }
  ::prctl(PR_SET_NAME, "cleave");  // for ps and top: it was started as /proc/self/exe
  SetUpLogging("info", "text");
  LoggingWorker body;
  return RunWorker(&body);
}

}  // namespace cleave
