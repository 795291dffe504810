#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/checked.h"
#include "base/mapped_file.h"
#include "bench/engine_speed.h"
#include "bench/perplexity.h"
#include "cli/model_flags.h"
#include "cli/option_table.h"
#include "cli/verbs.h"
#include "kv/partitions.h"
#include "model/tokenizer/tokenizer.h"

namespace cleave {
namespace {

using nlohmann::ordered_json;

constexpr char kBenchHelp[] =
    R"(usage: cleave bench perplexity MODEL FILE [--context 512] [--json]
       cleave bench engine MODEL [--prompt-tokens 512 --output-tokens 128 --batch 1,32] [--json]

cleave bench perplexity --help and cleave bench engine --help list every flag.
)";

int Report(std::string_view verb, const Status& status) {
  if (status.ok()) return 0;
  fmt::print(stderr, "cleave bench {}: {}\n", verb, status.message());
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
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                   Tokenizer::Create(checkpoint->tokenizer_source()));
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

struct SpeedFlags {
  ModelFlags model;
  int64_t prompt_tokens = 512;
  int64_t output_tokens = 128;
  int64_t repeats = 3;
  std::string batch = "1,32";
  bool json = false;
};

Result<std::vector<uint32_t>> ParseBatches(const std::string& text) {
  std::vector<uint32_t> batches;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + comma, value);
    if (error != std::errc() || end != text.data() + comma || value == 0 || value > 4096) {
      return InvalidArgument("--batch " + text + ": expected sizes from 1 to 4096, as in 1,32");
    }
    batches.push_back(value);
    at = comma + 1;
  }
  return batches;
}

// The run with the median decode time.
Result<Speed> MedianSpeed(Executor* executor, const SpeedOptions& options, int64_t repeats) {
  std::vector<Speed> runs;
  for (int64_t i = 0; i < repeats; ++i) {
    ASSIGN_OR_RETURN(const Speed speed, MeasureSpeed(executor, options));
    runs.push_back(speed);
  }
  const auto middle = static_cast<std::ptrdiff_t>(runs.size() / 2);
  const auto median = [&](auto field) {
    std::nth_element(runs.begin(), runs.begin() + middle, runs.end(),
                     [&](const Speed& a, const Speed& b) { return a.*field < b.*field; });
    return runs[static_cast<size_t>(middle)].*field;
  };
  Speed speed;
  speed.batch = options.batch;
  speed.prefill_s = median(&Speed::prefill_s);
  speed.decode_s = median(&Speed::decode_s);
  speed.prefill_tokens_per_s = median(&Speed::prefill_tokens_per_s);
  speed.decode_tokens_per_s = median(&Speed::decode_tokens_per_s);
  return speed;
}

Status PrintSpeed(const SpeedFlags& flags) {
  ASSIGN_OR_RETURN(const std::vector<uint32_t> batches, ParseBatches(flags.batch));
  ASSIGN_OR_RETURN(const std::string path, flags.model.Path());
  ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint, OpenCheckpoint(path));
  const uint32_t largest = *std::max_element(batches.begin(), batches.end());
  ModelFlags model = flags.model;
  model.max_num_seqs = std::max<int64_t>(model.max_num_seqs, largest);
  model.max_model_len = flags.prompt_tokens + flags.output_tokens;
  ASSIGN_OR_RETURN(const ModelPlan plan, PlanModel(*checkpoint, model.Settings()));
  const uint32_t block_tokens = plan.executor.kv_shape.block_tokens;
  const auto partitions =
      KvPartitions::OfBlocks(plan.sizing.kv_partitions, kRunPositions, block_tokens);
  const auto sequence_blocks = static_cast<uint32_t>(
      CeilDiv<uint64_t>(static_cast<uint64_t>(*model.max_model_len), block_tokens));
  const uint64_t needed_blocks = uint64_t{largest} * partitions.Fullest(sequence_blocks);
  if (needed_blocks > plan.sizing.num_blocks) {
    return InvalidArgument(fmt::format("--batch {} needs {} KV blocks, {} are there; lower it",
                                       largest, needed_blocks, plan.sizing.num_blocks));
  }
  const uint32_t threads = plan.executor.threads;
  const std::string isa(IsaName(plan.executor.isa));
  ASSIGN_OR_RETURN(const auto executor, LoadModel(std::move(checkpoint), plan, nullptr));
  ordered_json runs = ordered_json::array();
  if (!flags.json) {
    fmt::print("{}, {} threads, {}; {} prompt and {} output tokens, medians of {}\n", path, threads,
               isa, flags.prompt_tokens, flags.output_tokens, flags.repeats);
    fmt::print("{:>6} {:>16} {:>16}\n", "batch", "prefill tok/s", "decode tok/s");
  }
  for (const uint32_t batch : batches) {
    const SpeedOptions options{.prompt_tokens = static_cast<uint32_t>(flags.prompt_tokens),
                               .output_tokens = static_cast<uint32_t>(flags.output_tokens),
                               .batch = batch,
                               .block_tokens = block_tokens};
    ASSIGN_OR_RETURN(const Speed speed, MedianSpeed(executor.get(), options, flags.repeats));
    runs.push_back({{"batch", batch},
                    {"prefill_tokens_per_s", speed.prefill_tokens_per_s},
                    {"decode_tokens_per_s", speed.decode_tokens_per_s}});
    if (!flags.json) {
      fmt::print("{:>6} {:>16.1f} {:>16.1f}\n", batch, speed.prefill_tokens_per_s,
                 speed.decode_tokens_per_s);
    }
  }
  if (flags.json) {
    fmt::print("{}\n", ordered_json{{"threads", threads}, {"isa", isa}, {"runs", runs}}.dump());
  }
  return OkStatus();
}

int RunEngineSpeed(const std::vector<std::string>& args) {
  SpeedFlags flags;
  OptionTable table("bench engine", "Prefill and decode speed of a model, without HTTP.");
  flags.model.AddTo(&table);
  table.Count("Measure", "--prompt-tokens", "Tokens of each prompt", 1, 1 << 20,
              &flags.prompt_tokens);
  table.Count("Measure", "--output-tokens", "Decode steps", 1, 1 << 20, &flags.output_tokens);
  table.Text("Measure", "--batch", "Sequences at once: a list", &flags.batch);
  table.Count("Measure", "--repeats", "Runs of which the median is shown", 1, 1000, &flags.repeats);
  table.Switch("Measure", "--json", "One JSON object on standard output", &flags.json);
  auto parsed = table.Parse(args);
  if (!parsed.ok()) return Report("engine", parsed.status());
  if (*parsed == OptionTable::Parsed::kHelpShown) return 0;
  return Report("engine", PrintSpeed(flags));
}

}  // namespace

int RunBench(const std::vector<std::string>& args) {
  if (!args.empty() && args[0] == "perplexity") {
    return RunPerplexity({args.begin() + 1, args.end()});
  }
  if (!args.empty() && args[0] == "engine") return RunEngineSpeed({args.begin() + 1, args.end()});
  const bool asked = !args.empty() && (args[0] == "--help" || args[0] == "-h");
  fmt::print(asked ? stdout : stderr, "{}", kBenchHelp);
  return asked ? 0 : 2;
}

}  // namespace cleave
