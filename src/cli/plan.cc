#include <fmt/core.h>

#include <filesystem>
#include <utility>

#include "base/mapped_file.h"
#include "base/printable.h"
#include "cli/option_table.h"
#include "cli/verbs.h"
#include "model/format/gguf.h"
#include "model/format/text_file.h"
#include "plan/catalogue.h"
#include "plan/gguf_facts.h"
#include "plan/hf_facts.h"
#include "plan/memory_report.h"

namespace cleave {
namespace {

constexpr const char* kFooter = R"(
  cleave plan Llama-3.1-70B --on '4x"RTX 5090"' --quantization awq
  cleave plan models/some-folder --on 8xH100 --nodes 2 --prompt 8192 --json

Memory alone is told as yet. What is known of devices and models is in src/plan/data/*.yaml; a file
of the same form adds to it (--catalogue).)";

struct PlanFlags {
  std::string model;
  std::string on;
  int64_t nodes = 1;
  std::string catalogue;
  int64_t prompt = 4096;
  int64_t output = 512;
  int64_t concurrency = 1;
  std::string quantization = "auto";
  std::string kv_cache_dtype = "auto";
  std::string engine = "vllm";
  double utilization = 0.92;
  int64_t max_num_seqs = 0;
  int64_t max_num_batched_tokens = 0;
  bool json = false;

  void AddTo(OptionTable* table);
  [[nodiscard]] RequestShape Request() const {
    return {.prompt_tokens = static_cast<uint64_t>(prompt),
            .output_tokens = static_cast<uint64_t>(output),
            .concurrency = static_cast<uint64_t>(concurrency)};
  }
};

void PlanFlags::AddTo(OptionTable* table) {
  table->Positional(
      "MODEL", "A name of the catalogue, a config.json, a folder with one, or a .gguf", &model);
  const std::string what = "Hardware";
  table->Text(what, "--on", "Devices of a node: 4x\"RTX 5090\", 8xH100, 4x96GB", &on);
  table->Count(what, "--nodes", "Nodes with so many devices each", 1, ClusterFacts::kMaxDevices,
               &nodes);
  table->Text(what, "--catalogue", "A YAML file with more devices and models", &catalogue);
  const std::string load = "Load";
  table->Count(load, "--prompt", "Tokens of a prompt", 1, 1 << 30, &prompt);
  table->Count(load, "--output", "Tokens of an answer", 1, 1 << 30, &output);
  table->Count(load, "--concurrency", "Requests at once", 1, 1 << 30, &concurrency);
  const std::string engine_section = "Engine";
  table->Text(engine_section, "--quantization",
              "Format of the weights: bf16, fp8, awq, …; auto: as they are stored", &quantization);
  table->Text(engine_section, "--kv-cache-dtype", "Type of keys and values: bf16, fp8; auto: bf16",
              &kv_cache_dtype);
  table->OneOf(engine_section, "--engine", "Whose rules of cutting and loading hold",
               {"vllm", "cleave"}, &engine);
  table->Number(engine_section, "--gpu-memory-utilization", "Share of a device's memory to use",
                0.01, 1, &utilization);
  table->Count(engine_section, "--max-num-seqs", "Sequences at once; 0: vLLM's default", 0, 1 << 24,
               &max_num_seqs);
  table->Count(engine_section, "--max-num-batched-tokens",
               "Tokens of one step; 0: vLLM's default for the device", 0, 1 << 24,
               &max_num_batched_tokens);
  table->Switch("Output", "--json", "One JSON object on standard output", &json);
  table->Footer(kFooter);
}

struct PlannedModel {
  ModelFacts facts;
  WeightFormat weights;
  std::optional<uint64_t> weight_bytes;
};

Result<std::string> ReadWhole(const std::string& path) {
  ASSIGN_OR_RETURN(auto text, ReadTextFile(path, Catalogue::kMaxBytes));
  if (text) return *std::move(text);
  return NotFound(fmt::format("{}: no such file", path));
}

Result<PlannedModel> OpenGgufFacts(const std::string& path) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  auto contents = ParseGguf(file.bytes());
  if (!contents.ok()) return contents.status().Annotate(path);
  ASSIGN_OR_RETURN(GgufFacts facts, ReadGgufFacts(*contents, path));
  return PlannedModel{std::move(facts.model), facts.weights, facts.weight_bytes};
}

// Bytes of a folder's safetensors files; nothing when there are none.
std::optional<uint64_t> StoredBytes(const std::filesystem::path& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == ".safetensors") bytes += it->file_size(error);
  }
  if (error || bytes == 0) return std::nullopt;
  return bytes;
}

Result<PlannedModel> OpenHfFacts(const std::filesystem::path& path) {
  std::error_code error;
  const bool folder = std::filesystem::is_directory(path, error);
  const std::string config = folder ? (path / "config.json").string() : path.string();
  ASSIGN_OR_RETURN(const std::string text, ReadWhole(config));
  const auto name = folder ? path.filename() : path.parent_path().filename();
  ASSIGN_OR_RETURN(HfFacts facts, ReadHfFacts(text, name.empty() ? path.string() : name.string()));
  PlannedModel model{std::move(facts.model), facts.weights, std::nullopt};
  if (folder) model.weight_bytes = StoredBytes(path);
  return model;
}

Result<PlannedModel> FindPlannedModel(const Catalogue& catalogue, const std::string& name) {
  if (name.empty()) {
    return InvalidArgument(
        "no model given: a name of the catalogue, a config.json, a folder with one, or a .gguf");
  }
  if (name.ends_with(".gguf")) return OpenGgufFacts(name);
  std::error_code error;
  if (name.ends_with(".json") || std::filesystem::is_directory(name, error)) {
    return OpenHfFacts(name);
  }
  ASSIGN_OR_RETURN(const ModelFacts* facts, catalogue.FindModel(name));
  ASSIGN_OR_RETURN(WeightFormat weights, FindWeightFormat(facts->stored_format));
  return PlannedModel{*facts, std::move(weights), std::nullopt};
}

Result<MemorySettings> SettingsOf(const PlanFlags& flags, const PlannedModel& model) {
  MemorySettings settings;
  settings.weights = model.weights;
  settings.weight_bytes = model.weight_bytes;
  if (flags.quantization != "auto") {
    ASSIGN_OR_RETURN(settings.weights, FindWeightFormat(flags.quantization));
    settings.weight_bytes.reset();
  }
  ASSIGN_OR_RETURN(settings.kv_element_bytes, KvElementBytes(flags.kv_cache_dtype));
  settings.dialect = flags.engine == "cleave" ? Dialect::kCleave : Dialect::kVllm;
  settings.utilization = flags.utilization;
  settings.max_num_seqs = static_cast<uint32_t>(flags.max_num_seqs);
  settings.max_batched_tokens = static_cast<uint32_t>(flags.max_num_batched_tokens);
  return settings;
}

Status Plan(const PlanFlags& flags) {
  ASSIGN_OR_RETURN(Catalogue catalogue, BuiltInCatalogue());
  if (!flags.catalogue.empty()) {
    ASSIGN_OR_RETURN(const std::string yaml, ReadWhole(flags.catalogue));
    RETURN_IF_ERROR(catalogue.Add(yaml, flags.catalogue));
  }
  ASSIGN_OR_RETURN(const PlannedModel model, FindPlannedModel(catalogue, flags.model));
  if (flags.on.empty()) {
    return InvalidArgument("no devices given: name them with --on, as in --on '4x\"RTX 5090\"'");
  }
  ASSIGN_OR_RETURN(const ClusterFacts cluster, ParseCluster(catalogue, flags.on, flags.nodes));
  MemoryReport report;
  report.model = &model.facts;
  report.cluster = &cluster;
  ASSIGN_OR_RETURN(report.settings, SettingsOf(flags, model));
  report.request = flags.Request();
  RETURN_IF_ERROR(CheckSettings(report.settings, report.request));
  // Says so where no split could be priced.
  if (cluster.device.memory_bytes() == 0) {
    return AccountOf(model.facts, cluster.device, {}, report.settings, report.request).status();
  }
  if (report.settings.dialect == Dialect::kCleave) {
    RETURN_IF_ERROR(EngineShape(model.facts).status());
  }
  report.accounts = RankByMemory(model.facts, cluster, report.settings, report.request);
  fmt::print("{}\n", flags.json ? ReportJson(report) : ReportText(report));
  return OkStatus();
}

int Report(const Status& status) {
  if (status.ok()) return 0;
  fmt::print(stderr, "cleave plan: {}\n", Printable(status.message()));
  return status.code() == StatusCode::kInvalidArgument ? 2 : 1;
}

}  // namespace

int RunPlan(const std::vector<std::string>& args) {
  PlanFlags flags;
  OptionTable table("plan", "What every cut of a model over devices would take of their memory.");
  flags.AddTo(&table);
  const auto parsed = table.Parse(args);
  if (!parsed.ok()) return Report(parsed.status());
  if (*parsed == OptionTable::Parsed::kHelpShown) return 0;
  return Report(table.NamePlace(Plan(flags)));
}

}  // namespace cleave
