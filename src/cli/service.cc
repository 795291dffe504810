#include "cli/service.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <filesystem>
#include <future>
#include <utility>

#include "base/clock.h"
#include "base/mapped_file.h"

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
  client_.reset();
  engine_.reset();
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
  ASSIGN_OR_RETURN(const std::string path, flags_.model.Path());
  ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint, OpenCheckpoint(path));
  const ModelConfig& config = checkpoint->config();
  spdlog::info("{}: {}, {} layers, {} heads / {} KV heads of {}, {}", checkpoint->name(),
               config.architecture, config.num_layers(), config.num_heads, config.num_kv_heads,
               config.head_dim, NameOf(checkpoint->main_dtype()));
  ASSIGN_OR_RETURN(const ModelPlan plan, PlanModel(*checkpoint, flags_.model.Settings()));
  spdlog::info("{}", plan.sizing.Account(plan.executor.kv_shape.block_tokens));
  RETURN_IF_ERROR(LoadTemplate(*checkpoint));

  // The vocabulary is built beside the weights; both only read the checkpoint.
  const TokenizerSource& source = checkpoint->tokenizer_source();
  auto tokenizer = std::async(std::launch::async, [&source] { return Tokenizer::Create(source); });
  GenerationDefaults defaults = checkpoint->generation_defaults();
  auto executor = LoadModel(std::move(checkpoint), plan, [&](double share) {
    api_->SetLoading(fmt::format("loading: {:.0f} %", share * 100));
    if (progress) progress(share);
  });
  auto built = tokenizer.get();
  RETURN_IF_ERROR(executor.status());
  if (!built.ok()) return built.status().Annotate("tokenizer");
  tokenizer_ = std::move(*built);
  RETURN_IF_ERROR(SmokeForward(executor->get()));
  RETURN_IF_ERROR(StartEngine(plan, std::move(defaults), std::move(*executor)));
  spdlog::info("ready on http://{}:{} after {:.2f} s ({} threads, {}, KV cache {})", flags_.host,
               port(), SecondsBetween(start, SteadyClock::now()), plan.executor.threads,
               IsaName(plan.executor.isa), CacheTypeName(plan.executor.kv_shape.dtype));
  return OkStatus();
}

Status Service::StartEngine(const ModelPlan& plan, GenerationDefaults defaults,
                            std::unique_ptr<InlineExecutor> executor) {
  EngineConfig config = flags_.Engine(plan);
  const uint32_t vocab_size = executor->vocab_size();
  config.eos_token_ids = defaults.eos_token_ids;
  if (config.eos_token_ids.empty() && tokenizer_->eos_id()) {
    config.eos_token_ids = {*tokenizer_->eos_id()};
  }
  const ModelFacts facts{.model_name = flags_.server.served_model_names.front(),
                         .max_model_len = config.max_model_len,
                         .block_size = config.block_size,
                         .num_blocks = config.num_blocks,
                         .cache_dtype = CacheTypeName(plan.executor.kv_shape.dtype),
                         .enable_prefix_caching = config.enable_prefix_caching,
                         .gpu_memory_utilization = flags_.model.gpu_memory_utilization,
                         .kv_cache_memory_bytes = plan.sizing.kv_bytes};
  EngineObserver* observer = metrics_->AttachModel(facts);
  engine_ = std::make_unique<Engine>(
      config, std::move(executor),
      [api = api_.get()](std::vector<SequenceOutput>&& outputs) {
        api->OnOutputs(std::move(outputs));
      },
      observer);
  client_ = MakeEngineClient(engine_.get());
  api_->SetModel({.engine = client_.get(),
                  .tokenizer = tokenizer_.get(),
                  .chat_template = template_.get(),
                  .defaults = std::move(defaults),
                  .vocab_size = static_cast<int32_t>(vocab_size)});
  return OkStatus();
}

Status Service::health() const { return engine_ ? engine_->health() : OkStatus(); }

void Service::StartDrain() { api_->StartDrain(); }

void Service::FailAll(const Status& why) { api_->FailAll(why); }

}  // namespace cleave
