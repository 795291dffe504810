#include "cli/service.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <filesystem>
#include <future>
#include <utility>

#include "base/clock.h"
#include "base/mapped_file.h"
#include "cli/replica_orders.h"
#include "comm/bill_report.h"
#include "launch/rank_worker.h"

namespace cleave {
namespace {

// A --chat-template argument is the template itself when it holds Jinja, else a file.
Result<std::string> TemplateText(const std::string& argument) {
  if (argument.find("{{") != std::string::npos || argument.find("{%") != std::string::npos) {
    return argument;
  }
  auto file = MappedFile::Open(argument);
  if (!file.ok()) return file.status().Annotate("--chat-template");
  const auto bytes = file->bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::string CacheTypeName(DType dtype) {
  return dtype == DType::kF32 ? "float32" : dtype == DType::kF16 ? "float16" : "bfloat16";
}

}  // namespace

Result<std::unique_ptr<Service>> Service::Start(const ServeFlags& flags) {
  std::unique_ptr<Service> service(new Service(flags, std::make_unique<ServerMetrics>()));
  ASSIGN_OR_RETURN(service->api_, Api::Start(flags.server, service->metrics_.get()));
  return service;
}

Service::~Service() {
  if (api_) api_->Stop();  // null when the port could not be had
  expert_load_.reset();
  client_.reset();
  engine_.reset();
  replicas_.reset();
}

Status Service::LoadTemplate(const Checkpoint& checkpoint) {
  std::string text = checkpoint.chat_template();
  if (!flags_.chat_template.empty()) {
    ASSIGN_OR_RETURN(text, TemplateText(flags_.chat_template));
  }
  if (text.empty()) {
    spdlog::warn("the model has no chat template: /v1/chat/completions needs --chat-template");
    return OkStatus();
  }
  auto compiled = jinja::Template::Compile(text);
  if (!compiled.ok()) return compiled.status().Annotate("chat template");
  template_ = std::move(*compiled);
  return OkStatus();
}

struct Service::Opened {
  std::string path;
  ModelSettings settings;
  ModelPlan plan;
  GenerationDefaults defaults;
  uint32_t vocab_size = 0;
};

Status Service::Load(const LoadProgress& progress) {
  const TimePoint start = SteadyClock::now();
  Opened opened;
  ASSIGN_OR_RETURN(opened.path, flags_.model.Path());
  ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint, OpenCheckpoint(opened.path));
  const ModelConfig& config = checkpoint->config();
  spdlog::info("{}: {}, {} layers, {} heads / {} KV heads of {}, {}", checkpoint->name(),
               config.architecture, config.num_layers(), config.num_heads, config.num_kv_heads,
               config.head_dim, NameOf(checkpoint->main_dtype()));
  opened.settings = flags_.model.Settings();
  ASSIGN_OR_RETURN(opened.settings.split, flags_.split.ToSplit());
  ASSIGN_OR_RETURN(expert_load_,
                   OpenExpertLoad(flags_.split, opened.path, ExpertLoadFile::Use::kKeep,
                                  &opened.settings.split));
  ASSIGN_OR_RETURN(opened.plan, PlanModel(*checkpoint, opened.settings));
  const RankOptions& rank = opened.plan.executor;
  spdlog::info("{}", opened.plan.sizing.Account(rank.kv_shape.block_tokens));
  RETURN_IF_ERROR(LoadTemplate(*checkpoint));
  opened.defaults = checkpoint->generation_defaults();
  opened.vocab_size = config.vocab_size;

  // The vocabulary is built beside the weights; both only read the checkpoint.
  const TokenizerSource source = checkpoint->tokenizer_source();
  auto tokenizer = std::async(std::launch::async, [&source] { return Tokenizer::Create(source); });
  const LoadProgress shown = [&](double share) {
    api_->SetLoading(fmt::format("loading: {:.0f} %", share * 100));
    if (progress) progress(share);
  };
  const bool alone = opened.settings.split.world_size() == 1;
  std::unique_ptr<InlineExecutor> executor;
  if (alone) {
    ASSIGN_OR_RETURN(executor, LoadModel(std::move(checkpoint), opened.plan, shown));
    RETURN_IF_ERROR(SmokeForward(executor.get()));
  }
  auto built = tokenizer.get();
  if (!built.ok()) return built.status().Annotate("tokenizer");
  tokenizer_ = std::move(*built);
  RETURN_IF_ERROR(alone ? StartInline(opened, std::move(executor)) : StartReplicas(opened, shown));
  const EngineClient* engine = alone ? client_.get() : replicas_.get();
  if (expert_load_) {
    expert_load_->Follow([engine] { return engine->bill().TotalExpertTokens(); });
  }
  api_->SetModel({.engine = alone ? client_.get() : replicas_.get(),
                  .tokenizer = tokenizer_.get(),
                  .chat_template = template_.get(),
                  .defaults = std::move(opened.defaults),
                  .vocab_size = static_cast<int32_t>(opened.vocab_size)});
  spdlog::info("ready on http://{}:{} after {:.2f} s ({}, {}, KV cache {})", flags_.host, port(),
               SecondsBetween(start, SteadyClock::now()), opened.settings.split.ToString(),
               IsaName(rank.isa), CacheTypeName(rank.kv_shape.dtype));
  return OkStatus();
}

EngineConfig Service::EngineConfigOf(const Opened& opened) const {
  EngineConfig config = flags_.Engine(opened.plan);
  config.eos_token_ids = opened.defaults.eos_token_ids;
  if (config.eos_token_ids.empty() && tokenizer_->eos_id()) {
    config.eos_token_ids = {*tokenizer_->eos_id()};
  }
  return config;
}

EngineObserver* Service::AttachMetrics(const Opened& opened, const EngineConfig& config) {
  return metrics_->AttachModel({.model_name = flags_.server.served_model_names.front(),
                                .max_model_len = config.max_model_len,
                                .block_size = config.block_size,
                                .num_blocks = config.num_blocks,
                                .cache_dtype = CacheTypeName(opened.plan.executor.kv_shape.dtype),
                                .enable_prefix_caching = config.enable_prefix_caching,
                                .gpu_memory_utilization = flags_.model.gpu_memory_utilization,
                                .kv_cache_memory_bytes = opened.plan.sizing.kv_bytes});
}

Status Service::StartInline(const Opened& opened, std::unique_ptr<InlineExecutor> executor) {
  const EngineConfig config = EngineConfigOf(opened);
  EngineObserver* observer = AttachMetrics(opened, config);
  engine_ = std::make_unique<Engine>(
      config, std::move(executor),
      [api = api_.get()](std::vector<SequenceOutput>&& outputs) {
        api->OnOutputs(std::move(outputs));
      },
      observer);
  client_ = MakeEngineClient(engine_.get());
  return OkStatus();
}

Status Service::StartReplicas(const Opened& opened, const LoadProgress& progress) {
  const EngineConfig config = EngineConfigOf(opened);
  ASSIGN_OR_RETURN(const CpuTopology topology, ReadCpuTopology());
  const auto orders = MakeOrders({.model_path = opened.path,
                                  .settings = opened.settings,
                                  .engine = config,
                                  .log_level = flags_.log_level,
                                  .log_format = flags_.log_format},
                                 opened.plan, topology);
  ReplicaOptions options;
  options.world = WorldFor(opened.plan);
  // Peers are as patient as the supervisor, who sees stops and deaths at once.
  options.world.deadline_ms = static_cast<uint32_t>(options.watch.hang_deadline.count());
  replicas_ = std::make_unique<ReplicaSet>(
      orders, options,
      [api = api_.get()](std::vector<SequenceOutput>&& outputs) {
        api->OnOutputs(std::move(outputs));
      },
      std::vector<EngineObserver*>{AttachMetrics(opened, config)});
  // Loading takes as long as it goes on: a replica without progress for its start_deadline
  // (launch/replica_watch.h) ends the wait.
  return replicas_->Start(progress, TimePoint::max());
}

Status Service::death() const {
  if (replicas_) return replicas_->death();
  return engine_ ? engine_->health() : OkStatus();
}

void Service::LogBill() const {
  if (!replicas_) return;
  std::string text = BillText(replicas_->bill(), replicas_->stats().generation_tokens);
  text.pop_back();  // the last line's end is the log's
  spdlog::info("the bill, all ranks together\n{}", text);
}

void Service::StartDrain() { api_->StartDrain(); }

void Service::FailAll(const Status& why) { api_->FailAll(why); }

}  // namespace cleave
