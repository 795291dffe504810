#include "model/format/stored_checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

namespace cleave {
namespace {

Status CheckShape(const WeightSpec& spec, const TensorView& view) {
  if (view.shape == spec.shape) return OkStatus();
  return DataLoss(fmt::format("tensor {} has shape [{}]; the config implies [{}]", spec.name,
                              fmt::join(view.shape, ", "), fmt::join(spec.shape, ", ")));
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
  for (WeightSpec& spec : WeightSpecsOf(model_.config, model_.naming)) {
    ASSIGN_OR_RETURN(std::optional<TensorView> view, table.find(spec.name));
    if (!view.has_value()) {
      return DataLoss(fmt::format("tensor {} is missing; a {} model of this config needs it",
                                  spec.name, model_.config.architecture));
    }
    RETURN_IF_ERROR(CheckShape(spec, *view));
    // Whole rows: a view of one dimension is one row.
    weight_bytes_ += view->rows() * RowBytes(view->dtype, view->cols()).value_or(0);
    weights_.emplace(KeyOf(spec.id), *std::move(view));
    used.insert(std::move(spec.name));
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

void StoredCheckpoint::ChooseMainDType() {
  std::array<uint32_t, static_cast<size_t>(DType::kQ6K) + 1> counts{};
  for (const auto& [key, view] : weights_) {
    if (view.shape.size() == 2) ++counts[static_cast<size_t>(view.dtype)];
  }
  main_dtype_ = static_cast<DType>(std::max_element(counts.begin(), counts.end()) - counts.begin());
}

StoredCheckpoint::Key StoredCheckpoint::KeyOf(WeightId id) {
  const bool outer = id.role == WeightRole::kEmbedding || id.role == WeightRole::kFinalNorm ||
                     id.role == WeightRole::kHead;
  return {id.role, outer ? 0 : id.layer};
}

bool StoredCheckpoint::Has(WeightId id) const { return weights_.contains(KeyOf(id)); }

Result<TensorView> StoredCheckpoint::Weight(WeightId id) const {
  const auto it = weights_.find(KeyOf(id));
  if (it != weights_.end()) return it->second;
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

void StoredCheckpoint::DropResidentPages() const {
  for (const MappedFile& file : model_.files) file.DropResidentPages();
}

}  // namespace cleave
