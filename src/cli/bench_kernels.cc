#include "cli/bench_kernels.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/host.h"
#include "base/printable.h"
#include "cli/args.h"
#include "cli/verbs.h"
#include "kernels/random_weights.h"

namespace cleave {
namespace {

constexpr uint32_t kMostRows = 4096;
constexpr uint32_t kMostSide = 1U << 20U;

constexpr char kFooter[] =
    R"(A matrix of --shape outputs x K holds seeded random weights; enough copies of it for --bytes
lie in memory and are walked in turn, as a model's layers are. For each type and number of rows of
activations: the median time of a product; GB/s of packed weights beside what a probe reads of as
many bytes with the same threads; Gop/s beside what the same instructions compute on registers
alone; and whether the results have the bits of the scalar kernels: where one has not, the status is
1. Of large products the first and the last outputs are compared. --others measures, instead of
products, attention and what else lies between them, at SmolLM2-135M's sizes.

  cleave bench kernels --types Q4_1,Q8_0,BF16 --rows 1,32
  cleave bench kernels --shape 576x1536 --sum row --threads 2 --json
  cleave bench kernels --others)";

std::vector<std::string_view> SplitAt(char separator, std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// A whole number of [1, most].
std::optional<uint32_t> ParseSize(std::string_view text, uint32_t most) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  if (value == 0 || value > most) return {};
  return value;
}

Result<std::vector<uint32_t>> ParseRows(const std::string& text) {
  std::vector<uint32_t> rows;
  for (const std::string_view part : SplitAt(',', text)) {
    const auto value = ParseSize(part, kMostRows);
    if (!value) {
      return InvalidArgument(
          fmt::format("--rows {}: expected numbers from 1 to {}, as in 1,32", text, kMostRows));
    }
    rows.push_back(*value);
  }
  return rows;
}

Status ParseShape(const std::string& text, ProductOptions* options) {
  const std::vector<std::string_view> sides = SplitAt('x', text);
  if (sides.size() == 2) {
    const auto outputs = ParseSize(sides[0], kMostSide);
    const auto k = ParseSize(sides[1], kMostSide);
    if (outputs && k) {
      options->outputs = *outputs;
      options->k = *k;
      return OkStatus();
    }
  }
  return InvalidArgument(fmt::format(
      "--shape {}: expected outputs x K, each from 1 to {}, as in 1536x576", text, kMostSide));
}

Result<DType> ParseType(std::string_view text) {
  std::string known;
  for (const DType dtype : kAllDTypes) {
    if (IsSameWord(text, NameOf(dtype))) return dtype;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", NameOf(dtype));
  }
  return InvalidArgument(
      fmt::format("--types: '{}' is no type of weights; use some of {}", text, known));
}

// Those of --types, or all that can have rows of K elements.
Result<std::vector<DType>> ParseTypes(const std::string& text, uint32_t k) {
  std::vector<DType> types;
  if (text.empty()) {
    for (const DType dtype : kAllDTypes) {
      if (FitsBlocks(dtype, k)) types.push_back(dtype);
    }
    return types;
  }
  for (const std::string_view part : SplitAt(',', text)) {
    ASSIGN_OR_RETURN(const DType dtype, ParseType(part));
    types.push_back(dtype);
  }
  return types;
}

Result<Isa> ParseIsa(const std::string& text) {
  if (text == "auto") return ChooseIsa();
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    if (text != IsaName(isa)) continue;
    if (CpuSupports(isa)) return isa;
    return InvalidArgument(
        fmt::format("--isa {}: this processor does not have it; leave it out to use the best one "
                    "it has",
                    text));
  }
  return InvalidArgument(fmt::format("--isa {}: use auto, scalar, avx2, avx512 or amx", text));
}

void Show(const std::string& what) {
  static const bool show = ::isatty(STDERR_FILENO) == 1;
  if (show) fmt::print(stderr, "\r\033[K{}", what);
}

Status PrintProducts(const KernelFlags& flags) {
  ASSIGN_OR_RETURN(const std::vector<ProductOptions> products, flags.Products());
  std::vector<ProductSpeed> speeds;
  std::string difference;
  for (const ProductOptions& options : products) {
    const auto on_rows = [&](uint32_t rows) {
      Show(fmt::format("{}, {} rows", NameOf(options.dtype), rows));
    };
    ASSIGN_OR_RETURN(ProductSpeed speed, MeasureProducts(options, on_rows));
    for (const ProductFigures& run : speed.runs) {
      if (difference.empty()) difference = run.difference;
    }
    speeds.push_back(std::move(speed));
  }
  Show("");
  const ProductOptions& first = products.front();
  fmt::print("{}", flags.json ? ProductJson(first, speeds) + "\n" : ProductText(first, speeds));
  if (difference.empty()) return OkStatus();
  return Internal("not the scalar kernel's bits: " + difference);
}

Status PrintOthers(const KernelFlags& flags) {
  ASSIGN_OR_RETURN(const OpOptions options, flags.Others());
  ASSIGN_OR_RETURN(const std::vector<OpSpeed> speeds, MeasureOps(options, Show));
  Show("");
  fmt::print("{}", flags.json ? OpJson(options, speeds) + "\n" : OpText(options, speeds));
  for (const OpSpeed& speed : speeds) {
    if (!speed.same) return Internal("not the scalar kernel's bits: " + speed.name);
  }
  return OkStatus();
}

int Report(const Status& status) {
  if (status.ok()) return 0;
  fmt::print(stderr, "cleave bench kernels: {}\n", Printable(status.message()));
  return status.code() == StatusCode::kInvalidArgument ? 2 : 1;
}

}  // namespace

void KernelFlags::AddTo(OptionTable* table) {
  const std::string what = "What";
  table->Text(what, "--types", "Types of weights: a list; left out: all that --shape allows",
              &types, OptionTable::Values::kWithCommas);
  table->Text(what, "--shape", "Of the matrix: outputs x K", &shape);
  table->Text(what, "--rows", "Rows of activations, each measured by itself: a list", &rows,
              OptionTable::Values::kWithCommas);
  table->OneOf(what, "--sum", "Sums as fp32 (column-parallel) or as integers (row-parallel)",
               {"column", "row"}, &sum);
  table->Switch(what, "--others", "The kernels between the products instead; the flags above aside",
                &others);
  const std::string how = "How";
  table->OneOf(how, "--isa", "Instruction set; auto: as the engine chooses it",
               {"auto", "scalar", "avx2", "avx512", "amx"}, &isa);
  table->Count(how, "--threads", "Threads, a core each", 1, 1024, &threads);
  table->Switch(how, "--cached", "One copy of the matrix, which a cache may hold", &cached);
  table->Count(how, "--bytes", "Of all copies of the matrix together", 1, int64_t{1} << 30U,
               &bytes);
  table->Count(how, "--repeats", "Runs of which medians are shown", 1, 1000, &repeats);
  table->Switch(how, "--json", "One JSON object on standard output", &json);
  table->Footer(kFooter);
}

Result<std::vector<int>> KernelFlags::Cpus() const {
  std::vector<int> cpus = UsableCores();
  if (cpus.size() < static_cast<size_t>(threads)) {
    return InvalidArgument(
        fmt::format("--threads {}: {} cores may be used; give no more", threads, cpus.size()));
  }
  cpus.resize(static_cast<size_t>(threads));
  return cpus;
}

Result<OpOptions> KernelFlags::Others() const {
  OpOptions options;
  ASSIGN_OR_RETURN(options.isa, ParseIsa(isa));
  ASSIGN_OR_RETURN(options.cpus, Cpus());
  options.stream_bytes = cached ? 0 : static_cast<uint64_t>(bytes);
  options.repeats = static_cast<uint32_t>(repeats);
  return options;
}

Result<std::vector<ProductOptions>> KernelFlags::Products() const {
  ProductOptions options;
  RETURN_IF_ERROR(ParseShape(shape, &options));
  ASSIGN_OR_RETURN(options.rows, ParseRows(rows));
  ASSIGN_OR_RETURN(options.isa, ParseIsa(isa));
  ASSIGN_OR_RETURN(const std::vector<DType> dtypes, ParseTypes(types, options.k));
  options.sum = sum == "row" ? ProductSum::kRow : ProductSum::kColumn;
  options.stream_bytes = cached ? 0 : static_cast<uint64_t>(bytes);
  options.repeats = static_cast<uint32_t>(repeats);
  ASSIGN_OR_RETURN(options.cpus, Cpus());
  std::vector<ProductOptions> all;
  for (const DType dtype : dtypes) {
    if (!FitsBlocks(dtype, options.k)) {
      return InvalidArgument(fmt::format("--shape {}: {} has rows of whole blocks of {} elements",
                                         shape, NameOf(dtype), InfoOf(dtype).block_elements));
    }
    options.dtype = dtype;
    all.push_back(options);
  }
  return all;
}

int RunBenchKernels(const std::vector<std::string>& args) {
  KernelFlags flags;
  OptionTable table("bench kernels",
                    "Speed of the matrix products beside what this machine can do at most.");
  flags.AddTo(&table);
  const auto parsed = table.Parse(args);
  if (!parsed.ok()) return Report(parsed.status());
  if (*parsed == OptionTable::Parsed::kHelpShown) return 0;
  const Status status = flags.others ? PrintOthers(flags) : PrintProducts(flags);
  return Report(table.NamePlace(status));
}

}  // namespace cleave
