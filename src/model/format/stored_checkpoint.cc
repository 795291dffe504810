#include "model/format/stored_checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace cleave {
namespace {

Status CheckShape(const WeightSpec& spec, const TensorView& view) {
  if (view.shape == spec.shape) return OkStatus();
  return DataLoss(fmt::format("tensor {} has shape [{}]; the config implies [{}]", spec.name,
                              fmt::join(view.shape, ", "), fmt::join(spec.shape, ", ")));
}

// The weight of expert `expert` in a tensor that holds all of them.
TensorView SliceOf(const TensorView& view, const ExpertStack& stack, uint32_t expert) {
  const uint64_t row = expert * stack.stride_rows + stack.first_row;
  TensorView slice = view;
  slice.data += row * RowBytes(view.dtype, view.cols()).value_or(0);
  slice.shape = stack.shape;
  return slice;
}

}  // namespace

uint64_t SourceRow(RowOrder order, uint64_t row, uint32_t head_dim) {
  if (order == RowOrder::kPlain) return row;
  const uint64_t head_start = row - row % head_dim;
  const uint64_t i = row % head_dim;
  const uint64_t half = head_dim / 2;
  return head_start + (i < half ? 2 * i : 2 * (i - half) + 1);
}

Result<std::unique_ptr<Checkpoint>> StoredCheckpoint::Bind(StoredModel model,
                                                           const TensorTable& table) {
  RETURN_IF_ERROR(model.config.Validate());
  std::unique_ptr<StoredCheckpoint> checkpoint(new StoredCheckpoint(std::move(model)));
  RETURN_IF_ERROR(checkpoint->BindWeights(table));
  checkpoint->ChooseMainDType();
  return std::unique_ptr<Checkpoint>(std::move(checkpoint));
}

Status StoredCheckpoint::BindWeights(const TensorTable& table) {
  std::set<std::string, std::less<>> used;
  const ModelConfig& config = model_.config;
  RETURN_IF_ERROR(BindSpecs(OuterWeightSpecs(config, model_.naming), table, &used));
  // Layer by layer: what a file announces and does not hold ends this before it takes memory.
  for (uint32_t layer = 0; layer < config.num_layers(); ++layer) {
    RETURN_IF_ERROR(BindSpecs(LayerWeightSpecs(config, model_.naming, layer), table, &used));
  }
  for (const std::string_view name : table.names) {
    if (used.contains(name) || !WouldChangeResult(model_.naming, name)) continue;
    return Unsupported(fmt::format(
        "tensor {} has no place in a {} model of {} layers as it is computed here, and leaving it "
        "out would give other answers",
        name, model_.config.architecture, model_.config.num_layers()));
  }
  return OkStatus();
}

Status StoredCheckpoint::BindSpecs(std::vector<WeightSpec> specs, const TensorTable& table,
                                   std::set<std::string, std::less<>>* used) {
  for (WeightSpec& spec : specs) {
    ASSIGN_OR_RETURN(std::optional<TensorView> view, table.find(spec.name));
    if (!view.has_value()) {
      return DataLoss(fmt::format("tensor {} is missing; a {} model of this config needs it",
                                  spec.name, model_.config.architecture));
    }
    RETURN_IF_ERROR(CheckShape(spec, *view));
    // Whole rows: a view of one dimension is one row.
    const uint64_t rows =
        spec.stack.experts == 0 ? view->rows() : spec.stack.experts * spec.stack.shape[0];
    weight_bytes_ += rows * RowBytes(view->dtype, view->cols()).value_or(0);
    weights_.emplace(KeyOf(spec.id), Stored{*std::move(view), std::move(spec.stack)});
    used->insert(std::move(spec.name));
  }
  return OkStatus();
}

void StoredCheckpoint::ChooseMainDType() {
  std::array<uint64_t, static_cast<size_t>(DType::kQ6K) + 1> counts{};
  for (const auto& [key, stored] : weights_) {
    // Routers are small and stay floats where all else is quantised.
    if (stored.view.shape.size() < 2 || std::get<WeightRole>(key) == WeightRole::kRouter) continue;
    counts[static_cast<size_t>(stored.view.dtype)] += std::max(1U, stored.stack.experts);
  }
  main_dtype_ = static_cast<DType>(std::max_element(counts.begin(), counts.end()) - counts.begin());
}

StoredCheckpoint::Key StoredCheckpoint::KeyOf(WeightId id) const {
  switch (id.role) {
    case WeightRole::kEmbedding:
    case WeightRole::kFinalNorm:
    case WeightRole::kHead:
      return {id.role, 0, 0};
    case WeightRole::kExpertGate:
    case WeightRole::kExpertUp:
    case WeightRole::kExpertDown: {
      const bool each = model_.naming.experts == TensorNaming::Experts::kEach;
      const bool none = id.expert >= model_.config.num_experts;
      return {id.role, id.layer, each || none ? id.expert : 0};
    }
    default:
      return {id.role, id.layer, 0};
  }
}

bool StoredCheckpoint::Has(WeightId id) const { return weights_.contains(KeyOf(id)); }

Result<TensorView> StoredCheckpoint::Weight(WeightId id) const {
  const auto it = weights_.find(KeyOf(id));
  if (it != weights_.end()) {
    const auto& [view, stack] = it->second;
    return stack.experts == 0 ? view : SliceOf(view, stack, id.expert);
  }
  return NotFound(fmt::format("{}: the model has no tensor {}", model_.name,
                              WeightName(model_.config.family, model_.naming, id)));
}

RowOrder StoredCheckpoint::OrderOf(WeightId id) const {
  switch (id.role) {
    case WeightRole::kQ:
    case WeightRole::kK:
    case WeightRole::kQBias:
    case WeightRole::kKBias:
      return model_.qk_order;
    default:
      return RowOrder::kPlain;
  }
}

std::vector<FileStamp> StoredCheckpoint::Stamps() const {
  std::vector<FileStamp> stamps;
  for (const MappedFile& file : model_.files) stamps.push_back(file.stamp());
  return stamps;
}

void StoredCheckpoint::DropResidentPages() const {
  for (const MappedFile& file : model_.files) file.DropResidentPages();
}

}  // namespace cleave
