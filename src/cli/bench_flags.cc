#include "cli/bench_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>

namespace cleave {
namespace {

constexpr uint32_t kMostRequests = 4096;

constexpr char kFooter[] =
    R"(Prefill: the prompts' tokens over the time from the first submission until the last request
has its first token. Decode: from there on, the tokens of all requests over the time until the last
one has made --output-tokens more; all of them decode then. Prefix caching is off, requests are
greedy, a warm-up comes first; --max-num-seqs is the largest batch, --max-model-len what a run
needs. Every run must give the same tokens, in both layouts: else the status is 1. A file of
--expert-load is read, not written.

Beside each figure stands what the layout's cores can do at most, measured between the runs: for
decoding, the packed weights and the KV that a step reads, over what a probe reads of as many bytes;
for prefill and for a batch, two operations for every weight of a token's matrices and those of its
attention, over what the kernels' instructions compute on registers alone.

  cleave bench engine MODEL -tp 2 --threads 1 --against "-tp 1" --batch 1,32
  cleave bench engine MODEL -tp 2 --threads 1 --against "-tp 1 --threads 2" --json)";

Result<LayoutChoice> ParseAgainst(const std::string& text, int64_t threads) {
  SplitFlags split;
  OptionTable table("bench engine --against", "A second layout.");
  split.AddTo(&table);
  table.Count("Measure", "--threads", "Threads of a rank", 0, 1024, &threads);
  std::istringstream words(text);
  std::vector<std::string> args;
  for (std::string word; words >> word;) args.push_back(word);
  ASSIGN_OR_RETURN(const OptionTable::Parsed parsed, table.Parse(args));
  if (parsed == OptionTable::Parsed::kHelpShown) return InvalidArgument("that is no layout");
  LayoutChoice choice{.to_measure = split.to_measure(),
                      .threads = static_cast<uint32_t>(threads),
                      .expert_load = split.expert_load};
  ASSIGN_OR_RETURN(choice.split, split.ToSplit());
  return choice;
}

}  // namespace

void BenchFlags::AddTo(OptionTable* table) {
  model.AddTo(table);
  split.AddTo(table);
  const std::string measure = "Measure";
  table->Count(measure, "--prompt-tokens", "Tokens of each prompt", 1, 1 << 20, &prompt_tokens);
  table->Count(measure, "--output-tokens", "Tokens of each request after its first", 1, 1 << 20,
               &output_tokens);
  table->Text(measure, "--batch", "Requests at once: a list", &batch,
              OptionTable::Values::kWithCommas);
  table->Count(measure, "--repeats", "Runs of which medians are shown", 1, 1000, &repeats);
  table->Text(measure, "--against",
              "A second layout: flags of the cut and --threads; measured in turn with the first",
              &against);
  table->Switch(measure, "--json", "One JSON object on standard output", &json);
  table->Footer(kFooter);
}

Result<std::vector<uint32_t>> BenchFlags::Batches() const {
  std::vector<uint32_t> batches;
  for (size_t at = 0; at <= batch.size();) {
    const size_t comma = std::min(batch.find(',', at), batch.size());
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(batch.data() + at, batch.data() + comma, value);
    const bool whole = error == std::errc() && end == batch.data() + comma;
    if (!whole || value == 0 || value > kMostRequests) {
      return InvalidArgument(
          fmt::format("--batch {}: expected sizes from 1 to {}, as in 1,32", batch, kMostRequests));
    }
    batches.push_back(value);
    at = comma + 1;
  }
  const uint32_t largest = *std::max_element(batches.begin(), batches.end());
  if (largest > 1 && model.max_num_batched_tokens < 2 * int64_t{largest}) {
    return InvalidArgument(fmt::format(
        "--batch {}: its requests that decode leave too little of a step of {} tokens to prefill "
        "the others; give --max-num-batched-tokens {} or more",
        largest, model.max_num_batched_tokens, 2 * largest));
  }
  return batches;
}

Result<std::vector<LayoutChoice>> BenchFlags::Layouts() const {
  LayoutChoice first{.to_measure = split.to_measure(),
                     .threads = static_cast<uint32_t>(model.threads),
                     .expert_load = split.expert_load};
  ASSIGN_OR_RETURN(first.split, split.ToSplit());
  std::vector<LayoutChoice> layouts = {first};
  if (!against.empty()) {
    auto second = ParseAgainst(against, model.threads);
    if (!second.ok()) return second.status().Annotate(fmt::format("--against '{}'", against));
    layouts.push_back(*std::move(second));
  }
  return layouts;
}

}  // namespace cleave
