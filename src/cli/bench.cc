#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/printable.h"
#include "bench/perplexity.h"
#include "cli/model_flags.h"
#include "cli/option_table.h"
#include "cli/verbs.h"
#include "model/tokenizer/tokenizer.h"

namespace cleave {
namespace {

using nlohmann::ordered_json;

constexpr char kBenchHelp[] =
    R"(usage: cleave bench perplexity MODEL FILE [--context 512] [--json]
       cleave bench engine MODEL [-tp 2 -pp 2 -dp 2 …] [--against "-tp 1"] [--batch 1,32]
                           [--prompt-tokens 512 --output-tokens 128 --repeats 3] [--json]
       cleave bench kernels [--types Q4_1,Q8_0,BF16] [--shape 1536x576] [--rows 1,4,12,32,512]
                            [--isa avx2] [--threads 1] [--sum column|row] [--json]

--help after perplexity, engine or kernels lists every flag.
)";

int Report(std::string_view verb, const Status& status) {
  if (status.ok()) return 0;
  fmt::print(stderr, "cleave bench {}: {}\n", verb, Printable(status.message()));
  return status.code() == StatusCode::kInvalidArgument ? 2 : 1;
}

struct PerplexityFlags {
  ModelFlags model;
  std::string file;
  int64_t context = 512;
  int64_t windows = 0;
  bool json = false;
};

Status PrintPerplexity(const PerplexityFlags& flags) {
  ASSIGN_OR_RETURN(const std::string path, flags.model.Path());
  if (flags.file.empty()) return InvalidArgument("no FILE of text given");
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(flags.file));
  ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint, OpenCheckpoint(path));
  auto made = Tokenizer::Create(checkpoint->tokenizer_source());
  if (!made.ok()) return made.status().Annotate(checkpoint->path());
  const std::unique_ptr<Tokenizer> tokenizer = std::move(*made);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  const std::vector<int32_t> tokens = tokenizer->Encode(text, {});
  ModelFlags model = flags.model;
  model.max_model_len = std::max<int64_t>(flags.context, 16);
  model.kv_cache_memory_bytes.reset();
  ASSIGN_OR_RETURN(const ModelPlan plan, PlanModel(*checkpoint, model.Settings()));
  ASSIGN_OR_RETURN(const auto executor, LoadModel(std::move(checkpoint), plan, nullptr));
  const PerplexityOptions options{.context = static_cast<uint32_t>(flags.context),
                                  .max_windows = static_cast<uint32_t>(flags.windows),
                                  .block_tokens = plan.executor.kv_shape.block_tokens};
  const bool show = ::isatty(STDERR_FILENO) == 1;
  ASSIGN_OR_RETURN(const PerplexityResult result,
                   MeasurePerplexity(executor.get(), tokens, options,
                                     [show](size_t done, size_t all, double so_far) {
                                       if (!show) return;
                                       fmt::print(stderr, "\r{} of {} windows, {:.4f} ", done, all,
                                                  so_far);
                                     }));
  if (show) fmt::print(stderr, "\n");
  if (flags.json) {
    fmt::print("{}\n", ordered_json{{"perplexity", result.perplexity},
                                    {"context", flags.context},
                                    {"scored_tokens", result.scored_tokens},
                                    {"windows", result.window_perplexity}}
                           .dump());
  } else {
    fmt::print("perplexity {:.4f} over {} tokens in {} windows of {}\n", result.perplexity,
               result.scored_tokens, result.window_perplexity.size(), flags.context);
  }
  return OkStatus();
}

int RunPerplexity(const std::vector<std::string>& args) {
  PerplexityFlags flags;
  OptionTable table("bench perplexity", "Perplexity of a text: how surprised the model is.");
  flags.model.AddTo(&table);
  table.Positional("FILE", "The text, UTF-8", &flags.file);
  table.Count("Measure", "--context", "Tokens of a window; its second half is scored", 4, 1 << 20,
              &flags.context);
  table.Count("Measure", "--windows", "Windows to score; 0: all", 0, 1 << 30, &flags.windows);
  table.Switch("Measure", "--json", "One JSON object on standard output", &flags.json);
  auto parsed = table.Parse(args);
  if (!parsed.ok()) return Report("perplexity", parsed.status());
  if (*parsed == OptionTable::Parsed::kHelpShown) return 0;
  return Report("perplexity", PrintPerplexity(flags));
}

}  // namespace

int RunBench(const std::vector<std::string>& args) {
  if (!args.empty() && args[0] == "perplexity") {
    return RunPerplexity({args.begin() + 1, args.end()});
  }
  if (!args.empty() && args[0] == "engine") return RunBenchEngine({args.begin() + 1, args.end()});
  if (!args.empty() && args[0] == "kernels") return RunBenchKernels({args.begin() + 1, args.end()});
  const bool asked = !args.empty() && (args[0] == "--help" || args[0] == "-h");
  fmt::print(asked ? stdout : stderr, "{}", kBenchHelp);
  return asked ? 0 : 2;
}

}  // namespace cleave
