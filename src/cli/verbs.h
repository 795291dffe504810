#pragma once
// The verbs of the command line. Each takes what follows its name and returns the exit code: 0
// done, 1 failed, 2 not understood. Main thread; they print.

#include <string>
#include <vector>

namespace cleave {

int RunPlan(const std::vector<std::string>& args);
int RunServe(const std::vector<std::string>& args);
int RunChat(const std::vector<std::string>& args);
int RunBench(const std::vector<std::string>& args);
int RunBenchEngine(const std::vector<std::string>& args);
int RunBenchKernels(const std::vector<std::string>& args);
// A rank's process: serve starts it, with its orders on a socket.
int RunWorkerVerb();

}  // namespace cleave
