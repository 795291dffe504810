#include <fmt/core.h>

#include <cstdio>
#include <string>
#include <vector>

#include "cli/verbs.h"

namespace cleave {
namespace {

constexpr char kHelp[] =
    R"(cleave serves a language model on your own machine behind an OpenAI-compatible endpoint.
The same request gives the same answer, to the bit, whatever it shares a batch with.

usage: cleave VERB [options]

  plan MODEL --on DEVICES what every cut takes of the memory of your devices
  serve MODEL             serve a model over HTTP (vLLM's flags, endpoints and metrics)
  chat [URL|MODEL]        talk to a server, or to a model, in the terminal
  bench perplexity MODEL FILE
                          perplexity of a text
  bench engine MODEL      prefill and decode speed of any layout, without HTTP
  bench kernels           speed of the matrix products beside this machine's limits

MODEL is a .gguf file, a Hugging Face folder, or a Hub name such as org/model.
A first step:

  make models             # brings a small model into models/
  cleave serve models/SmolLM2-135M-Instruct.Q4_1.gguf
  cleave chat             # in another terminal

cleave VERB --help tells more; cleave --version tells the version.
)";

int Run(const std::vector<std::string>& args) {
  if (args.empty() || args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    fmt::print("{}", kHelp);
    return args.empty() ? 2 : 0;
  }
  if (args[0] == "--version" || args[0] == "-V") {
    fmt::print("cleave {}\n", CLEAVE_VERSION);
    return 0;
  }
  const std::vector<std::string> rest(args.begin() + 1, args.end());
  if (args[0] == "plan") return RunPlan(rest);
  if (args[0] == "serve") return RunServe(rest);
  if (args[0] == "chat") return RunChat(rest);
  if (args[0] == "bench") return RunBench(rest);
  if (args[0] == "worker") return RunWorkerVerb();  // what serve starts for each rank
  fmt::print(
      stderr,
      "cleave: unknown verb '{}'; the verbs are plan, serve, chat and bench (cleave --help)\n",
      args[0]);
  return 2;
}

}  // namespace
}  // namespace cleave

int main(int argc, char** argv) {
  return cleave::Run(std::vector<std::string>(argv + 1, argv + argc));
}
