#include "bench/model_work.h"

#include <gtest/gtest.h>

namespace cleave {
namespace {

constexpr uint32_t kHidden = 64;
constexpr uint32_t kFfn = 96;
constexpr uint32_t kVocab = 100;
constexpr uint32_t kHeads = 4;
constexpr uint32_t kKvHeads = 2;
constexpr uint32_t kHeadDim = 32;

// Two layers, the second with a window, all matrices of one type but the head.
class FakeCheckpoint final : public Checkpoint {
 public:
  FakeCheckpoint(DType type, DType head, uint32_t experts = 0) : type_(type), head_(head) {
    config_.hidden_size = kHidden;
    config_.num_heads = kHeads;
    config_.num_kv_heads = kKvHeads;
    config_.head_dim = kHeadDim;
    config_.ffn_size = kFfn;
    config_.vocab_size = kVocab;
    config_.layers.resize(2);
    config_.layers[1].window = 8;
    config_.num_experts = experts;
    config_.experts_per_token = experts == 0 ? 0 : 2;
  }

  [[nodiscard]] const ModelConfig& config() const override { return config_; }
  [[nodiscard]] const GenerationDefaults& generation_defaults() const override { return defaults_; }
  [[nodiscard]] const TokenizerSource& tokenizer_source() const override { return tokenizer_; }
  [[nodiscard]] const std::string& chat_template() const override { return text_; }
  [[nodiscard]] const std::string& name() const override { return text_; }
  [[nodiscard]] const std::string& path() const override { return text_; }
  [[nodiscard]] uint64_t weight_bytes() const override { return 0; }
  [[nodiscard]] DType main_dtype() const override { return type_; }
  [[nodiscard]] bool Has(WeightId id) const override {
    return id.role != WeightRole::kQBias && id.role != WeightRole::kQNorm &&
           id.role != WeightRole::kKBias && id.role != WeightRole::kVBias &&
           id.role != WeightRole::kKNorm && id.role != WeightRole::kAttnPostNorm &&
           id.role != WeightRole::kFfnPostNorm;
  }
  [[nodiscard]] Result<TensorView> Weight(WeightId id) const override {
    using enum WeightRole;
    TensorView view;
    view.dtype = type_;
    switch (id.role) {
      case kHead:
        view.dtype = head_;
        view.shape = {kVocab, kHidden};
        return view;
      case kQ:
        view.shape = {kHeads * kHeadDim, kHidden};
        return view;
      case kO:
        view.shape = {kHidden, kHeads * kHeadDim};
        return view;
      case kK:
      case kV:
        view.shape = {kKvHeads * kHeadDim, kHidden};
        return view;
      case kGate:
      case kUp:
      case kExpertGate:
      case kExpertUp:
        view.shape = {kFfn, kHidden};
        return view;
      case kDown:
      case kExpertDown:
        view.shape = {kHidden, kFfn};
        return view;
      case kRouter:
        view.shape = {config_.num_experts, kHidden};
        return view;
      default:
        view.dtype = DType::kF32;
        view.shape = {kHidden};
        return view;
    }
  }
  [[nodiscard]] RowOrder OrderOf(WeightId /*id*/) const override { return RowOrder::kPlain; }
  [[nodiscard]] std::vector<FileStamp> Stamps() const override { return {}; }
  void DropResidentPages() const override {}

 private:
  DType type_;
  DType head_;
  ModelConfig config_;
  GenerationDefaults defaults_;
  TokenizerSource tokenizer_;
  std::string text_;
};

constexpr KvShape kF16Kv = {.type = KvType::kF16, .head_dim = kHeadDim};
// Weights of a layer: q and o, k and v, gate, up and down.
constexpr double kAttentionWeights = 2.0 * kHidden * kHeadDim * (kHeads + kKvHeads);
constexpr double kFfnWeights = 3.0 * kHidden * kFfn;
constexpr double kHeadWeights = 1.0 * kHidden * kVocab;
constexpr double kNorms = 4.0 * kHidden;  // bytes of one

TEST(ModelWork, WeightsAreReadPackedAndCountTwoOperations) {
  const auto work = WorkOf(FakeCheckpoint(DType::kBF16, DType::kBF16), std::nullopt, kF16Kv);
  ASSERT_TRUE(work.ok());
  EXPECT_EQ(work->layer_operations, 2 * 2 * (kAttentionWeights + kFfnWeights));
  EXPECT_EQ(work->head_operations, 2 * kHeadWeights);
  EXPECT_EQ(work->layer_bytes, 2 * (2 * (kAttentionWeights + kFfnWeights) + 2 * kNorms));
  // Rows of the head are packed sixteen by sixteen.
  EXPECT_EQ(work->head_bytes, 2.0 * kHidden * 112 + kNorms);
  EXPECT_EQ(work->expert_bytes, 0);
  EXPECT_EQ(work->peak, PeakKind::kBf16);
}

TEST(ModelWork, FlagsChangeWhatIsRead) {
  const FakeCheckpoint stored(DType::kF16, DType::kF16);
  const auto half = WorkOf(stored, std::nullopt, kF16Kv);
  const auto rounded = WorkOf(stored, DType::kF32, kF16Kv);
  ASSERT_TRUE(half.ok() && rounded.ok());
  EXPECT_EQ(half->peak, PeakKind::kF32);
  EXPECT_EQ(rounded->layer_bytes - 4 * kNorms, 2 * (half->layer_bytes - 4 * kNorms));
  // Quantised weights stay as they are, unless fp32 is asked for.
  const FakeCheckpoint quantised(DType::kQ80, DType::kQ80);
  const auto kept = WorkOf(quantised, DType::kBF16, kF16Kv);
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(kept->peak, PeakKind::kInt8Scaled);
  EXPECT_EQ(kept->layer_bytes - 4 * kNorms, 2 * (kAttentionWeights + kFfnWeights) * 34 / 32);
  EXPECT_EQ(WorkOf(quantised, DType::kF32, kF16Kv)->peak, PeakKind::kF32);
  // A head in another type is not most of the work.
  EXPECT_EQ(WorkOf(FakeCheckpoint(DType::kQ80, DType::kF16), std::nullopt, kF16Kv)->peak,
            PeakKind::kInt8Scaled);
}

TEST(ModelWork, ATokenSeesItsContextAndNoMoreThanTheWindow) {
  const auto work = WorkOf(FakeCheckpoint(DType::kBF16, DType::kBF16), std::nullopt, kF16Kv);
  ASSERT_TRUE(work.ok());
  EXPECT_EQ(work->position_bytes, 2 * kKvHeads * kHeadDim * 2);
  EXPECT_EQ(work->position_operations, 2 * 2 * kHeads * kHeadDim);
  // Of one layer 1, 2, … 10; of the other 1, 2, … 8, 8, 8.
  const RequestShape shape{.batch = 1, .prompt_tokens = 10, .output_tokens = 4};
  EXPECT_DOUBLE_EQ(work->PrefillOperations(shape),
                   work->layer_operations + work->head_operations / 10 +
                       work->position_operations * (5.5 + (36 + 16) / 10.0));
  // 11, … 14 and 8.
  EXPECT_DOUBLE_EQ(work->DecodeOperations(shape), work->layer_operations + work->head_operations +
                                                      work->position_operations * (12.5 + 8));
  EXPECT_DOUBLE_EQ(work->DecodeBytes(shape),
                   work->layer_bytes + work->head_bytes + work->position_bytes * (12.5 + 8));
}

TEST(ModelWork, AnInt8CacheIsReadWithItsScales) {
  const KvShape int8 = {.type = KvType::kInt8, .head_dim = kHeadDim};
  const auto work = WorkOf(FakeCheckpoint(DType::kBF16, DType::kBF16), std::nullopt, int8);
  ASSERT_TRUE(work.ok());
  EXPECT_EQ(work->position_bytes, 2 * kKvHeads * (kHeadDim + 4));
}

TEST(ModelWork, ABatchSharesTheWeightsAndReplicasDoNot) {
  const auto work = WorkOf(FakeCheckpoint(DType::kBF16, DType::kBF16), std::nullopt, kF16Kv);
  ASSERT_TRUE(work.ok());
  RequestShape shape{.batch = 8, .prompt_tokens = 10, .output_tokens = 4};
  const double context = work->position_bytes * (12.5 + 8);
  const double weights = work->weight_bytes();
  EXPECT_DOUBLE_EQ(work->DecodeBytes(shape), weights / 8 + context);
  shape.replicas = 2;
  EXPECT_DOUBLE_EQ(work->DecodeBytes(shape), weights / 4 + context);
  shape.batch = 1;
  EXPECT_DOUBLE_EQ(work->DecodeBytes(shape), weights + context);
}

TEST(ModelWork, AStepReadsTheExpertsThatItsTokensChoose) {
  const auto work = WorkOf(FakeCheckpoint(DType::kBF16, DType::kBF16, 8), std::nullopt, kF16Kv);
  ASSERT_TRUE(work.ok());
  EXPECT_EQ(work->expert_operations, 2 * 2 * 8 * kFfnWeights);
  EXPECT_EQ(work->expert_bytes, 2 * 2 * 8 * kFfnWeights);
  EXPECT_EQ(work->layer_operations, 2 * 2 * (kAttentionWeights + 8 * kHidden));
  RequestShape shape{.batch = 1, .prompt_tokens = 10, .output_tokens = 4};
  const double context = work->position_bytes * (12.5 + 8);
  const double others = work->layer_bytes + work->head_bytes;
  EXPECT_DOUBLE_EQ(work->DecodeBytes(shape), others + work->expert_bytes / 4 + context);
  // Of two tokens, the second chooses a quarter of what the first left.
  shape.batch = 2;
  EXPECT_DOUBLE_EQ(work->DecodeBytes(shape),
                   (others + work->expert_bytes * (1 - 0.75 * 0.75)) / 2 + context);
  EXPECT_DOUBLE_EQ(work->DecodeOperations(shape),
                   work->layer_operations + work->expert_operations / 4 + work->head_operations +
                       work->position_operations * (12.5 + 8));
}

}  // namespace
}  // namespace cleave
