#include "cli/service.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <filesystem>
#include <future>
#include <utility>

#include "base/clock.h"
#include "base/mapped_file.h"
#include "base/printable.h"
#include "comm/bill_report.h"

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

}  // namespace

Result<std::unique_ptr<Service>> Service::Start(const ServeFlags& flags) {
  std::unique_ptr<Service> service(new Service(flags, std::make_unique<ServerMetrics>()));
  ASSIGN_OR_RETURN(service->api_, Api::Start(flags.server, service->metrics_.get()));
  return service;
}

Service::~Service() {
  if (api_) api_->Stop();  // null when the port could not be had
  expert_load_.reset();
  host_.reset();
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

Status Service::Load(const LoadProgress& progress) {
  const TimePoint start = SteadyClock::now();
  EngineHost::Order order;
  ASSIGN_OR_RETURN(order.model_path, flags_.model.Path());
  order.settings = flags_.model.Settings();
  ASSIGN_OR_RETURN(order.settings.split, flags_.split.ToSplit());
  order.to_measure = flags_.split.to_measure();
  ASSIGN_OR_RETURN(expert_load_, OpenExpertLoad(flags_.split.expert_load, order.model_path,
                                                ExpertLoadFile::Use::kKeep, &order.settings.split));
  order.log_level = flags_.log_level;
  order.log_format = flags_.log_format;
  ASSIGN_OR_RETURN(host_, EngineHost::Open(std::move(order)));
  const Checkpoint& checkpoint = host_->checkpoint();
  const ModelConfig& config = checkpoint.config();
  const RankOptions& rank = host_->plan().executor;
  spdlog::info("{}: {}, {} layers, {} heads / {} KV heads of {}, {}",
               Printable(checkpoint.name(), 200), config.architecture, config.num_layers(),
               config.num_heads, config.num_kv_heads, config.head_dim,
               NameOf(checkpoint.main_dtype()));
  spdlog::info("{}", host_->plan().sizing.Account(rank.kv_shape.block_tokens));
  RETURN_IF_ERROR(LoadTemplate(checkpoint));
  GenerationDefaults defaults = checkpoint.generation_defaults();
  const auto vocab_size = static_cast<int32_t>(config.vocab_size);

  // The vocabulary is built beside the weights; both only read the checkpoint.
  const TokenizerSource source = checkpoint.tokenizer_source();
  auto tokenizer = std::async(std::launch::async, [&source] { return Tokenizer::Create(source); });
  const LoadProgress shown = [&](double share) {
    api_->SetLoading(fmt::format("loading: {:.0f} %", share * 100));
    if (progress) progress(share);
  };
  RETURN_IF_ERROR(host_->LoadWeights(shown));
  auto built = tokenizer.get();
  if (!built.ok()) return built.status().Annotate(checkpoint.path());
  tokenizer_ = std::move(*built);
  RETURN_IF_ERROR(StartEngine(defaults, shown));
  if (expert_load_) {
    expert_load_->Follow([engine = host_->client()] { return engine->bill().TotalExpertTokens(); });
  }
  api_->SetModel({.engine = host_->client(),
                  .tokenizer = tokenizer_.get(),
                  .chat_template = template_.get(),
                  .defaults = std::move(defaults),
                  .vocab_size = vocab_size});
  spdlog::info("ready on http://{}:{} after {:.2f} s ({}, {}, KV cache {})", flags_.host, port(),
               SecondsBetween(start, SteadyClock::now()), host_->settings().split.ToString(),
               IsaName(rank.isa), NameOf(rank.kv_shape.type));
  return OkStatus();
}

Status Service::StartEngine(const GenerationDefaults& defaults, const LoadProgress& progress) {
  EngineConfig config = flags_.Engine(host_->plan());
  config.eos_token_ids = defaults.eos_token_ids;
  if (config.eos_token_ids.empty() && tokenizer_->eos_id()) {
    config.eos_token_ids = {*tokenizer_->eos_id()};
  }
  return host_->Start(
      config,
      [api = api_.get()](std::vector<SequenceOutput>&& outputs) {
        api->OnOutputs(std::move(outputs));
      },
      AttachMetrics(config), progress);
}

EngineObserver* Service::AttachMetrics(const EngineConfig& config) {
  const ModelPlan& plan = host_->plan();
  return metrics_->AttachModel({.model_name = flags_.server.served_model_names.front(),
                                .max_model_len = config.max_model_len,
                                .block_size = config.block_size,
                                .num_blocks = config.num_blocks,
                                .max_concurrency = plan.sizing.MaxConcurrency(config.block_size),
                                .cache_dtype = std::string(NameOf(plan.executor.kv_shape.type)),
                                .enable_prefix_caching = config.enable_prefix_caching,
                                .gpu_memory_utilization = flags_.model.gpu_memory_utilization,
                                .kv_cache_memory_bytes = plan.sizing.kv_bytes});
}

Status Service::death() const { return host_ ? host_->death() : OkStatus(); }

void Service::LogBill() const {
  if (!host_ || host_->in_process() || host_->client() == nullptr) return;
  const EngineClient& engine = *host_->client();
  std::string text = BillText(engine.bill(), engine.stats().generation_tokens);
  text.pop_back();  // the last line's end is the log's
  spdlog::info("the bill, all ranks together\n{}", text);
}

void Service::StartDrain() { api_->StartDrain(); }

void Service::FailAll(const Status& why) { api_->FailAll(why); }

}  // namespace cleave
