// Weights that an earlier start kept are those that packing makes, to the bit, on every rank of a
// cut; whatever is wrong with the folder or its files, a start is good and says it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "engine/model_weights.h"
#include "engine/open_model.h"
#include "model/format/test_files.h"

namespace cleave {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing_files::TempFolder;

std::vector<const PackedMatrix*> MatricesOf(const ModelWeights& weights) {
  std::vector<const PackedMatrix*> all{&weights.head};
  for (const LayerWeights& l : weights.layers) {
    all.insert(all.end(), {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down, &l.router});
    for (const ExpertWeights& e : l.experts) all.insert(all.end(), {&e.gate, &e.up, &e.down});
  }
  return all;
}

void ExpectEqual(const ModelWeights& a, const ModelWeights& b) {
  const auto x = MatricesOf(a);
  const auto y = MatricesOf(b);
  ASSERT_EQ(x.size(), y.size());
  EXPECT_EQ(a.packed_bytes(), b.packed_bytes());
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(x[i]->bytes(), y[i]->bytes()) << i;
    EXPECT_EQ(x[i]->dtype(), y[i]->dtype()) << i;
    EXPECT_EQ(std::bit_cast<uint32_t>(x[i]->max_row_norm()),
              std::bit_cast<uint32_t>(y[i]->max_row_norm()));
    if (x[i]->bytes() == 0) continue;
    EXPECT_EQ(std::memcmp(x[i]->group_data(0), y[i]->group_data(0), x[i]->bytes()), 0) << i;
  }
}

// What was logged since the last call.
class Log {
 public:
  Log() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "kept", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)));
  }
  ~Log() { spdlog::set_default_logger(before_); }
  std::string Take() {
    std::string text = text_.str();
    text_.str("");
    return text;
  }

 private:
  std::ostringstream text_;
  std::shared_ptr<spdlog::logger> before_;  // shared by the library
};

class KeptWeights : public testing::Test {
 protected:
  Result<ModelWeights> Load(const std::string& folder, std::optional<DType> float_type = {}) {
    return Load(folder, {}, 0, float_type);
  }
  Result<ModelWeights> Load(const std::string& folder, const Split& split, uint32_t rank,
                            std::optional<DType> float_type = {}) {
    checkpoints_.push_back(*OpenCheckpoint(model_));
    ModelSettings settings;
    settings.split = split;
    const auto plan = PlanModel(*checkpoints_.back(), settings);
    CLEAVE_CHECK(plan.ok());
    return LoadWeights(*checkpoints_.back(), plan->layout.ranks[rank], float_type, &pool_, nullptr,
                       folder);
  }
  [[nodiscard]] std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& e : std::filesystem::directory_iterator(folder_.path() + "/kept")) {
      files.push_back(e.path());
    }
    return files;
  }

  std::string model_ = std::string(CLEAVE_TINY) + "/llama3";
  const TempFolder folder_;
  const std::string kept_ = folder_.path() + "/kept";
  Log log_;
  ThreadPool pool_{2};
  std::vector<std::unique_ptr<Checkpoint>> checkpoints_;  // weights see into them
};

struct Case {
  const char* model;
  Split split;
  std::optional<DType> float_type = {};
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.model << " " << c.split.ToString(); }

class EveryCut : public KeptWeights, public testing::WithParamInterface<Case> {};

TEST_P(EveryCut, ComesBackToTheBit) {
  model_ = std::string(CLEAVE_TINY) + "/" + GetParam().model;
  const Split& split = GetParam().split;
  for (uint32_t rank = 0; rank < split.ranks_per_replica(); ++rank) {
    const auto plain = Load("", split, rank, GetParam().float_type);
    ASSERT_TRUE(plain.ok()) << plain.status().ToString();
    EXPECT_EQ(log_.Take(), "");
    const auto first = Load(kept_, split, rank, GetParam().float_type);
    EXPECT_TRUE(first->kept.bytes().empty());
    EXPECT_THAT(log_.Take(), HasSubstr("repacked weights written to " + kept_));
    const auto second = Load(kept_, split, rank, GetParam().float_type);
    EXPECT_FALSE(second->kept.bytes().empty());
    EXPECT_THAT(log_.Take(), HasSubstr("from " + kept_));
    ExpectEqual(*plain, *first);
    ExpectEqual(*plain, *second);
    // The weights may move: what they point into goes with them.
    Result<ModelWeights> moved = Load(kept_, split, rank, GetParam().float_type);
    const ModelWeights last = *std::move(moved);
    ExpectEqual(*plain, last);
    log_.Take();
  }
  EXPECT_EQ(Files().size(), split.ranks_per_replica());
}

INSTANTIATE_TEST_SUITE_P(Models, EveryCut,
                         testing::Values(Case{"llama3", {}}, Case{"llama3", {}, DType::kBF16},
                                         Case{"llama3.gguf", {.tp = 2}},
                                         Case{"llama3.gguf", {}, DType::kF32},
                                         Case{"llama_head80.gguf", {.tp = 3}},
                                         Case{"gemma3", {.pp = 3}},
                                         Case{"qwen2.gguf", {.pp = 2, .tp = 2}},
                                         Case{"mixtral_q8.gguf", {.tp = 2, .ep = 2}},
                                         Case{"qwen3_moe", {.tp = 4, .ep = 2}}));

// Replicas of a cut hold the same, and share the file.
TEST_F(KeptWeights, RanksThatHoldTheSameShareAFile) {
  ASSERT_TRUE(Load(kept_, {.cp = 2}, 1).ok());  // no head
  ASSERT_TRUE(Load(kept_, {.dp = 2, .cp = 2}, 1).ok());
  EXPECT_EQ(Files().size(), 1U);
}

TEST_F(KeptWeights, OtherTypesAndCutsHaveOtherFiles) {
  for (const auto type :
       {std::optional<DType>(), std::optional(DType::kBF16), std::optional(DType::kF16)}) {
    ASSERT_TRUE(Load(kept_, type).ok());
  }
  ASSERT_TRUE(Load(kept_, {.tp = 2}, 0).ok());
  ASSERT_TRUE(Load(kept_, {.tp = 2, .tp_shares = {2, 1}}, 0).ok());
  ASSERT_TRUE(Load(kept_, {.pp = 2}, 0).ok());
  EXPECT_EQ(Files().size(), 6U);
  EXPECT_THAT(log_.Take(), Not(HasSubstr("from " + kept_)));
}

// No path goes into the key, and a copy of the model is known by its contents.
TEST_F(KeptWeights, ACopyOfTheModelUsesTheFile) {
  ASSERT_TRUE(Load(kept_).ok());
  std::filesystem::copy(model_, folder_.path() + "/copy");
  const auto plain = Load("");
  model_ = folder_.path() + "/copy";
  log_.Take();
  const auto copy = Load(kept_);
  ExpectEqual(*plain, *copy);
  EXPECT_THAT(log_.Take(), HasSubstr("from " + kept_));
}

// The same sizes, names and shapes; one weight is another one.
TEST_F(KeptWeights, AnEditedModelIsNotTakenForTheOther) {
  std::filesystem::copy(model_, folder_.path() + "/copy");
  model_ = folder_.path() + "/copy";
  ASSERT_TRUE(Load(kept_).ok());
  std::string file;
  for (const auto& e : std::filesystem::directory_iterator(model_)) {
    if (e.path().extension() == ".safetensors") file = e.path();
  }
  const auto times = std::filesystem::last_write_time(file);
  const TensorView down = *checkpoints_.back()->Weight({WeightRole::kDown, 0});
  std::fstream out(file, std::ios::binary | std::ios::in | std::ios::out);
  std::string text(std::istreambuf_iterator<char>(out), {});
  const std::string bytes(reinterpret_cast<const char*>(down.data), 64);
  const size_t at = text.find(bytes);
  ASSERT_NE(at, std::string::npos);
  out.clear();
  out.seekp(static_cast<std::streamoff>(at));
  out.put(static_cast<char>(bytes[0] ^ 1));
  out.close();
  std::filesystem::last_write_time(file, times);
  log_.Take();
  const auto plain = Load("");
  const auto edited = Load(kept_);
  EXPECT_TRUE(edited->kept.bytes().empty());
  EXPECT_THAT(log_.Take(), HasSubstr("is of other weights of these shapes; repacking"));
  ExpectEqual(*plain, *edited);
  const auto again = Load(kept_);
  EXPECT_FALSE(again->kept.bytes().empty());
  ExpectEqual(*plain, *again);
}

TEST_F(KeptWeights, ADamagedFileIsSaidAndReplaced) {
  const auto plain = Load(kept_);
  const std::string file = Files()[0];
  log_.Take();
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  const auto start = Load(kept_);
  ExpectEqual(*plain, *start);
  const std::string said = log_.Take();
  EXPECT_THAT(said, HasSubstr("[warning] --repacked-cache-dir: " + file + ": has "));
  EXPECT_THAT(said, HasSubstr("; repacking"));
  EXPECT_THAT(said, HasSubstr("repacked weights written to " + file));
  const auto next = Load(kept_);
  ExpectEqual(*plain, *next);
  EXPECT_THAT(log_.Take(), HasSubstr("from " + file));
}

TEST_F(KeptWeights, AStartIsGoodWhereNothingCanBeKept) {
  const auto plain = Load("");
  for (const std::string& folder :
       {folder_.Write("file", "x"), folder_.path() + "/no/such", std::string("/proc")}) {
    log_.Take();
    const auto start = Load(folder);
    ASSERT_TRUE(start.ok());
    ExpectEqual(*plain, *start);
    const std::string said = log_.Take();
    EXPECT_THAT(said, HasSubstr("[warning] --repacked-cache-dir: " + folder)) << said;
    EXPECT_THAT(said, HasSubstr("; the next start repacks again")) << said;
  }
}

}  // namespace
}  // namespace cleave
