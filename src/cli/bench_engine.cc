#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/host.h"
#include "base/printable.h"
#include "bench/bandwidth_probe.h"
#include "bench/compute_probe.h"
#include "bench/engine_speed.h"
#include "bench/model_work.h"
#include "bench/speed_report.h"
#include "cli/bench_flags.h"
#include "cli/engine_host.h"
#include "cli/expert_load.h"
#include "cli/log_setup.h"
#include "cli/verbs.h"
#include "kv/partitions.h"

namespace cleave {
namespace {

constexpr uint32_t kProbePasses = 3;  // after each pair of runs, on each number of cores
constexpr uint32_t kWarmUpTokens = 16;

// Requests of all runs begin with the same prompts: request i answers alike whatever the layout,
// the run and the size of the batch.
class Answers {
 public:
  // Keeps what is new; the first difference stands.
  void Compare(const Speed& speed, const std::string& where) {
    for (size_t i = 0; i < speed.tokens.size() && difference_.empty(); ++i) {
      if (i == tokens_.size()) {
        tokens_.push_back(speed.tokens[i]);
        from_.push_back(where);
      }
      const auto [own, first] = std::mismatch(speed.tokens[i].begin(), speed.tokens[i].end(),
                                              tokens_[i].begin(), tokens_[i].end());
      if (own == speed.tokens[i].end() && first == tokens_[i].end()) continue;
      difference_ = fmt::format("request {} differs from token {} on: {} and {}", i,
                                own - speed.tokens[i].begin(), where, from_[i]);
    }
  }
  [[nodiscard]] const std::string& difference() const { return difference_; }

 private:
  std::vector<std::vector<int32_t>> tokens_;
  std::vector<std::string> from_;
  std::string difference_;
};

// One layout, up and idle but while it is measured. Not moved: its engine knows the meter.
struct Side {
  SpeedMeter meter;
  std::unique_ptr<EngineHost> host;
  LayoutFigures figures;
  uint32_t lead_tokens = 0;
};

class EngineBench {
 public:
  explicit EngineBench(BenchFlags flags)
      : flags_(std::move(flags)), show_(::isatty(STDERR_FILENO) == 1) {}

  // Plans both layouts, then loads them.
  Status Open();
  Status Measure();
  [[nodiscard]] SpeedReport Report() const;

 private:
  Result<std::unique_ptr<Side>> Plan(const LayoutChoice& choice, const std::string& path,
                                     const ModelConfig& config) const;
  Status CheckRoom(const EngineHost& host) const;
  Status Start(Side* side);
  Status WarmUp(Side* side) const;
  Status MakeProbes();
  Status MeasureBatch(uint32_t batch);
  [[nodiscard]] SpeedOptions OptionsOf(const Side& side, uint32_t batch) const;
  void Show(const std::string& what) const {
    if (show_) fmt::print(stderr, "\r\033[K{}", what);
  }

  const BenchFlags flags_;
  const bool show_;
  std::vector<uint32_t> batches_;
  uint32_t largest_ = 1;
  uint32_t vocab_size_ = 0;
  std::string model_;
  std::vector<std::unique_ptr<Side>> sides_;
  ModelWork work_;
  // By the same numbers of cores; no peaks of the scalar kernels.
  std::vector<std::unique_ptr<BandwidthProbe>> probes_;
  std::vector<std::unique_ptr<ComputeProbe>> peaks_;
  Answers answers_;
};

Status EngineBench::Open() {
  ASSIGN_OR_RETURN(batches_, flags_.Batches());
  largest_ = *std::max_element(batches_.begin(), batches_.end());
  ASSIGN_OR_RETURN(const std::vector<LayoutChoice> layouts, flags_.Layouts());
  ASSIGN_OR_RETURN(const std::string path, flags_.model.Path());
  {
    ASSIGN_OR_RETURN(const auto checkpoint, OpenCheckpoint(path));
    vocab_size_ = checkpoint->config().vocab_size;
    model_ = path;
    for (const LayoutChoice& layout : layouts) {
      auto side = Plan(layout, path, checkpoint->config());
      if (!side.ok()) return sides_.empty() ? side.status() : side.status().Annotate("--against");
      sides_.push_back(*std::move(side));
    }
    const RankOptions& loaded = sides_.front()->host->plan().executor;
    ASSIGN_OR_RETURN(work_, WorkOf(*checkpoint, loaded.float_type, loaded.kv_shape));
  }
  for (const auto& side : sides_) RETURN_IF_ERROR(Start(side.get()));
  RETURN_IF_ERROR(MakeProbes());
  for (const auto& side : sides_) RETURN_IF_ERROR(WarmUp(side.get()));
  return OkStatus();
}

Result<std::unique_ptr<Side>> EngineBench::Plan(const LayoutChoice& choice, const std::string& path,
                                                const ModelConfig& config) const {
  const int64_t positions = flags_.prompt_tokens + flags_.output_tokens + 1;
  if (positions > config.max_position) {
    return InvalidArgument(
        fmt::format("--prompt-tokens {} and --output-tokens {} need {} positions, the model was "
                    "made for {}; lower them",
                    flags_.prompt_tokens, flags_.output_tokens, positions, config.max_position));
  }
  auto side = std::make_unique<Side>();
  const auto step_tokens = static_cast<uint32_t>(flags_.model.max_num_batched_tokens);
  side->lead_tokens =
      std::min<uint32_t>(LeadTokens(largest_, static_cast<uint32_t>(flags_.prompt_tokens),
                                    step_tokens, choice.split.pp),
                         config.max_position - static_cast<uint32_t>(positions));
  EngineHost::Order order;
  order.model_path = path;
  order.settings = flags_.model.Settings();
  order.settings.split = choice.split;
  RETURN_IF_ERROR(
      OpenExpertLoad(choice.expert_load, path, ExpertLoadFile::Use::kRead, &order.settings.split)
          .status());
  order.to_measure = choice.to_measure;
  order.settings.threads = choice.threads;
  order.settings.max_num_seqs = largest_;
  // Two layouts are there at once.
  if (!flags_.against.empty()) order.settings.memory_utilization /= 2;
  order.settings.max_model_len = static_cast<uint32_t>(positions) + side->lead_tokens;
  order.log_level = "warning";
  ASSIGN_OR_RETURN(side->host, EngineHost::Open(std::move(order)));
  RETURN_IF_ERROR(CheckRoom(*side->host));
  return side;
}

// A batch that does not fit would be measured while it is preempted.
Status EngineBench::CheckRoom(const EngineHost& host) const {
  const ModelPlan& plan = host.plan();
  const uint32_t block_tokens = plan.executor.kv_shape.block_tokens;
  const auto partitions =
      KvPartitions::OfBlocks(plan.sizing.kv_partitions, kRunPositions, block_tokens);
  const auto blocks = CeilDiv(plan.sizing.max_model_len, block_tokens);
  const uint32_t requests = CeilDiv(largest_, plan.layout.split.dp * plan.layout.split.teams);
  const uint64_t needed = uint64_t{requests} * partitions.Fullest(blocks);
  if (needed <= plan.sizing.num_blocks) return OkStatus();
  return InvalidArgument(
      fmt::format("--batch {} needs {} KV blocks of each rank, {} are there; lower it, or "
                  "--prompt-tokens, or give more with --kv-cache-memory-bytes",
                  largest_, needed, plan.sizing.num_blocks));
}

Status EngineBench::Start(Side* side) {
  const LoadProgress progress = [&](double share) {
    Show(fmt::format("loading {}: {:.0f} %", side->host->settings().split.ToString(), share * 100));
  };
  RETURN_IF_ERROR(side->host->LoadWeights(progress));
  EngineConfig config = EngineConfigOf(side->host->plan());
  config.enable_prefix_caching = false;
  config.max_num_queued_reqs = largest_;
  config.max_num_queued_tokens = uint64_t{largest_} * config.max_model_len;
  RETURN_IF_ERROR(side->host->Start(
      config,
      [meter = &side->meter](std::vector<SequenceOutput>&& outputs) {
        meter->OnOutputs(std::move(outputs));
      },
      nullptr, progress));
  LayoutFigures& figures = side->figures;
  figures.split = side->host->settings().split;
  figures.threads = side->host->threads();
  figures.cores = std::min(figures.all_threads(), UsableCoreCount());
  figures.tp_ceiling = side->host->plan().layout.TpCeiling();
  return OkStatus();
}

SpeedOptions EngineBench::OptionsOf(const Side& side, uint32_t batch) const {
  return {.batch = batch,
          .prompt_tokens = static_cast<uint32_t>(flags_.prompt_tokens),
          .output_tokens = static_cast<uint32_t>(flags_.output_tokens),
          .lead_tokens = batch == 1 ? 0 : side.lead_tokens,
          .vocab_size = vocab_size_};
}

// Memory and code that the first steps touch.
Status EngineBench::WarmUp(Side* side) const {
  Show("warming up");
  SpeedOptions options = OptionsOf(*side, 1);
  options.output_tokens = std::min(options.output_tokens, kWarmUpTokens);
  const auto speed = side->meter.Measure(side->host->client(), options);
  return speed.ok() ? OkStatus() : speed.status();
}

Status EngineBench::MakeProbes() {
  // On the processors of the layout that has the most.
  std::vector<int> cpus;
  std::vector<uint32_t> counts = {1};
  for (const auto& side : sides_) {
    counts.push_back(side->figures.cores);
    std::vector<int> pinned;
    for (const auto& rank : side->host->rank_cpus()) {
      pinned.insert(pinned.end(), rank.begin(), rank.end());
    }
    if (pinned.size() > cpus.size()) cpus = std::move(pinned);
  }
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  if (cpus.size() < counts.back()) cpus = UsableCores();
  const Isa isa = sides_.front()->host->plan().executor.isa;
  for (const uint32_t count : counts) {
    const auto last = cpus.begin() + std::min<std::ptrdiff_t>(count, std::ssize(cpus));
    const std::vector<int> own(cpus.begin(), last);
    ASSIGN_OR_RETURN(auto probe,
                     BandwidthProbe::Create(static_cast<uint64_t>(work_.weight_bytes()), own));
    probes_.push_back(std::move(probe));
    if (!HasPeak(isa)) continue;
    ASSIGN_OR_RETURN(auto peak, ComputeProbe::Create(isa, work_.peak, own));
    peaks_.push_back(std::move(peak));
  }
  return OkStatus();
}

Status EngineBench::MeasureBatch(uint32_t batch) {
  for (const auto& side : sides_) side->figures.runs.push_back({.batch = batch});
  for (int64_t repeat = 1; repeat <= flags_.repeats; ++repeat) {
    for (const auto& side : sides_) {
      const std::string name = side->figures.Name();
      Show(fmt::format("batch {}, run {} of {}: {}", batch, repeat, flags_.repeats, name));
      auto speed = side->meter.Measure(side->host->client(), OptionsOf(*side, batch));
      if (!speed.ok()) return speed.status().Annotate(fmt::format("{}, batch {}", name, batch));
      answers_.Compare(*speed, fmt::format("{}, batch {}, run {}", name, batch, repeat));
      side->figures.runs.back().prefill.push_back(speed->prefill);
      side->figures.runs.back().decode.push_back(speed->decode);
    }
    for (uint32_t pass = 0; pass < kProbePasses; ++pass) {
      for (const auto& probe : probes_) probe->Measure(1);
      for (const auto& peak : peaks_) peak->Measure(1);
    }
  }
  return OkStatus();
}

Status EngineBench::Measure() {
  for (const uint32_t batch : batches_) RETURN_IF_ERROR(MeasureBatch(batch));
  for (const auto& side : sides_) {
    side->figures.bill = side->host->client()->bill();
    side->figures.generated_tokens = side->host->client()->stats().generation_tokens;
  }
  Show("");
  return OkStatus();
}

SpeedReport EngineBench::Report() const {
  SpeedReport report;
  report.model = model_;
  report.isa = IsaName(sides_.front()->host->plan().executor.isa);
  report.prompt_tokens = static_cast<uint32_t>(flags_.prompt_tokens);
  report.output_tokens = static_cast<uint32_t>(flags_.output_tokens);
  report.measured = sides_.front()->figures;
  if (sides_.size() > 1) report.against = sides_.back()->figures;
  report.probe_bytes = probes_.front()->bytes();
  for (const auto& probe : probes_) {
    report.probes.push_back({.cores = probe->cores(),
                             .median_bytes_per_s = probe->median_bytes_per_s(),
                             .best_bytes_per_s = probe->best_bytes_per_s()});
  }
  report.work = work_;
  for (const auto& peak : peaks_) {
    report.peaks.push_back({.cores = peak->cores(),
                            .median_ops_per_s = peak->median_ops_per_s(),
                            .best_ops_per_s = peak->best_ops_per_s()});
  }
  report.difference = answers_.difference();
  return report;
}

// The value of --against looks like a flag.
std::vector<std::string> JoinAgainst(const std::vector<std::string>& args) {
  std::vector<std::string> joined;
  for (const std::string& arg : args) {
    if (!joined.empty() && joined.back() == "--against") {
      joined.back() += "=" + arg;
    } else {
      joined.push_back(arg);
    }
  }
  return joined;
}

int Fail(const Status& status) {
  fmt::print(stderr, "cleave bench engine: {}\n", Printable(status.message()));
  return status.code() == StatusCode::kInvalidArgument ? 2 : 1;
}

}  // namespace

int RunBenchEngine(const std::vector<std::string>& args) {
  BenchFlags flags;
  OptionTable table("bench engine", "Prefill and decode speed of a layout, without HTTP.");
  flags.AddTo(&table);
  const auto parsed = table.Parse(JoinAgainst(args));
  if (!parsed.ok()) return Fail(parsed.status());
  if (*parsed == OptionTable::Parsed::kHelpShown) return 0;
  SetUpLogging("warning", "text");
  ::signal(SIGPIPE, SIG_IGN);
  EngineBench bench(flags);
  Status status = bench.Open();
  if (status.ok()) status = bench.Measure();
  if (!status.ok()) return Fail(status);
  const SpeedReport report = bench.Report();
  fmt::print("{}", flags.json ? SpeedJson(report) + "\n" : SpeedText(report));
  if (report.difference.empty()) return 0;
  return Fail(Internal("not the same tokens: " + report.difference));
}

}  // namespace cleave
