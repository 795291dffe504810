#pragma once
// StoredCheckpoint: the one implementation of Checkpoint. A format's reader fills a StoredModel
// from its files; Bind finds every weight, checks its shape and keeps the views.
//
// Owner: the caller of Bind. Threads: const after Bind; any.
// Fails: kDataLoss names a missing tensor or one of another shape; kUnsupported names a tensor the
// decoder would have to compute with but can not.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"
#include "model/checkpoint.h"
#include "model/format/weight_names.h"

namespace cleave {

struct StoredModel {
  ModelConfig config;
  GenerationDefaults generation;
  TokenizerSource tokenizer;
  std::string chat_template;
  std::string name;
  std::string path;
  TensorNaming naming;
  RowOrder qk_order = RowOrder::kPlain;
  std::vector<MappedFile> files;  // what the views point into
};

// Looks tensors up in a format's table. Both borrow; they live as long as Bind runs.
struct TensorTable {
  // Nothing when there is no such tensor; an error when it can not be read.
  std::function<Result<std::optional<TensorView>>(const std::string& name)> find;
  std::vector<std::string_view> names;  // of all tensors
};

class StoredCheckpoint : public Checkpoint {
 public:
  static Result<std::unique_ptr<Checkpoint>> Bind(StoredModel model, const TensorTable& table);

  [[nodiscard]] const ModelConfig& config() const override { return model_.config; }
  [[nodiscard]] const GenerationDefaults& generation_defaults() const override {
    return model_.generation;
  }
  [[nodiscard]] const TokenizerSource& tokenizer_source() const override {
    return model_.tokenizer;
  }
  [[nodiscard]] const std::string& chat_template() const override { return model_.chat_template; }
  [[nodiscard]] const std::string& name() const override { return model_.name; }
  [[nodiscard]] const std::string& path() const override { return model_.path; }
  [[nodiscard]] uint64_t weight_bytes() const override { return weight_bytes_; }
  [[nodiscard]] DType main_dtype() const override { return main_dtype_; }
  [[nodiscard]] bool Has(WeightId id) const override;
  [[nodiscard]] Result<TensorView> Weight(WeightId id) const override;
  [[nodiscard]] RowOrder OrderOf(WeightId id) const override;
  [[nodiscard]] std::vector<FileStamp> Stamps() const override;
  void DropResidentPages() const override;

 private:
  using Key = std::tuple<WeightRole, uint32_t, uint32_t>;  // role, layer, expert
  struct Stored {
    TensorView view;
    ExpertStack stack;  // where the view holds more than the weight
  };

  explicit StoredCheckpoint(StoredModel model) : model_(std::move(model)) {}
  [[nodiscard]] Key KeyOf(WeightId id) const;
  Status BindWeights(const TensorTable& table);
  // Binds the weights of `specs`; adds their tensors to `used`.
  Status BindSpecs(std::vector<WeightSpec> specs, const TensorTable& table,
                   std::set<std::string, std::less<>>* used);
  void ChooseMainDType();

  StoredModel model_;
  std::map<Key, Stored> weights_;
  uint64_t weight_bytes_ = 0;
  DType main_dtype_ = DType::kF32;
};

}  // namespace cleave
