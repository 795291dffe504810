#include "cli/split_flags.h"

#include <fmt/format.h>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "split/layout.h"

namespace cleave {
namespace {

constexpr int64_t kMostRanks = 4096;

// "3,1" as numbers; empty for "" and "auto".
Result<std::vector<uint32_t>> ParseList(const char* flag, const std::string& text) {
  std::vector<uint32_t> list;
  if (text.empty() || IsSameWord(text, "auto")) return list;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    uint32_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || (next != end && *next != ',')) {
      return InvalidArgument(fmt::format(
          "{} '{}': whole numbers with commas between, such as 3,1; or auto", flag, text));
    }
    list.push_back(value);
    if (next == end) return list;
    at = next + 1;
  }
}

}  // namespace

void SplitFlags::AddTo(OptionTable* table) {
  const std::string section = "The cut (dp, pp, tp, ep, cp)";
  const auto axis = [&](const char* flag, const char* help, int64_t* value,
                        std::initializer_list<const char*> aliases) {
    table->Count(section, flag, help, 1, kMostRanks, value);
    for (const char* alias : aliases) table->Alias(alias, flag);
  };
  axis("--data-parallel-size",
       "Replicas, sharing nothing (-dp, --dp); with --enable-expert-parallel teams of one replica",
       &dp, {"-dp", "--dp"});
  axis("--pipeline-parallel-size", "Stages of layers (-pp, --pp)", &pp, {"-pp", "--pp"});
  axis("--tensor-parallel-size", "Ranks that share heads, columns and vocabulary (-tp, --tp)", &tp,
       {"-tp", "--tp"});
  axis("--ep", "Ranks that share experts; regroups those of a stage", &ep, {});
  axis("--cp",
       "Ranks that share the KV of a sequence, in runs of 512 positions, and long prefills (-pcp)",
       &cp, {"--prefill-context-parallel-size", "-pcp"});
  axis("--decode-context-parallel-size", "Like --cp, over the tp ranks (-dcp)", &dcp, {"-dcp"});
  table->Switch(section, "--enable-expert-parallel",
                "Experts over all ranks of a stage; with -dp over all teams, which share requests "
                "out and step together (-ep)",
                &enable_expert_parallel);
  table->Alias("-ep", "--enable-expert-parallel");
  table->Text(section, "--tp-shares",
              "Shares of the tp ranks, such as 3,1; auto: by the speed of their cores", &tp_shares,
              OptionTable::Values::kWithCommas);
  table->Text(section, "--pp-layers",
              "Layers of each stage, such as 10,20; auto: by the time a layer and the head take",
              &pp_layers, OptionTable::Values::kWithCommas);
  table->Count(section, "--redundant-experts",
               "Copies of hot experts on other ep ranks, in each layer, beside the first", 0,
               kMaxRedundantExperts, &redundant_experts);
  table->Text(section, "--expert-load",
              "File of tokens per expert: experts are placed by it; serve keeps it up to date",
              &expert_load);
  table->Switch(section, "--enable-eplb", "Place experts by their load, at start and restart",
                &enable_eplb);
  table->Text(section, "--eplb-config",
              "With --enable-eplb: {\"num_redundant_experts\": N}, as --redundant-experts",
              &eplb_config);
  table->OneOf(section, "--distributed-executor-backend",
               "How ranks are started; mp: processes of this machine", {"mp"}, &executor_backend);
}

Result<Split> SplitFlags::ToSplit() const {
  Split split;
  split.dp = static_cast<uint32_t>(dp);
  split.pp = static_cast<uint32_t>(pp);
  split.tp = static_cast<uint32_t>(tp);
  split.ep = static_cast<uint32_t>(ep);
  split.cp = static_cast<uint32_t>(cp);
  split.dcp = static_cast<uint32_t>(dcp);
  if (enable_expert_parallel) {
    std::swap(split.dp, split.teams);
    const uint64_t ranks = uint64_t{split.teams} * split.tp * split.cp;
    if (ep == 1) split.ep = static_cast<uint32_t>(std::min<uint64_t>(ranks, UINT32_MAX));
  }
  ASSIGN_OR_RETURN(split.tp_shares, ParseList("--tp-shares", tp_shares));
  ASSIGN_OR_RETURN(split.pp_layers, ParseList("--pp-layers", pp_layers));
  ASSIGN_OR_RETURN(split.redundant_experts, RedundantExperts());
  split.experts_by_load = enable_eplb || split.redundant_experts > 0 || !expert_load.empty();
  return split;
}

Result<uint32_t> SplitFlags::RedundantExperts() const {
  if (eplb_config.empty()) return static_cast<uint32_t>(redundant_experts);
  const auto json = nlohmann::json::parse(eplb_config, nullptr, false);
  int64_t copies = 0;
  bool good = json.is_object();
  for (auto it = json.begin(); good && it != json.end(); ++it) {
    good = it.key() == "num_redundant_experts" && it->is_number_unsigned() &&
           it->get<uint64_t>() <= kMaxRedundantExperts;
    if (good) copies = it->get<int64_t>();
  }
  if (!good) {
    return InvalidArgument(fmt::format(
        "--eplb-config '{}': {{\"num_redundant_experts\": N}} with N at most {} is what "
        "is known here: experts are placed at starts only",
        eplb_config, kMaxRedundantExperts));
  }
  if (copies > 0 && !enable_eplb) {
    return InvalidArgument("--eplb-config asks for redundant experts: give --enable-eplb too");
  }
  if (redundant_experts > 0 && copies != redundant_experts) {
    return InvalidArgument(
        fmt::format("--redundant-experts {} and --eplb-config's {}: give one of them",
                    redundant_experts, copies));
  }
  return static_cast<uint32_t>(copies);
}

void FitToModel(const ModelConfig& config, Split* split) {
  if (split->teams == 1 || config.has_experts()) return;
  *split = TeamsAsReplicas(*split);
  spdlog::info("the model has no experts: --enable-expert-parallel leaves -dp {} replicas",
               split->dp);
}

}  // namespace cleave
