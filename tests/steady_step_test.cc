// A steady decode step allocates nothing: engine, scheduler, forward pass and sampler together, on
// all threads.

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "engine/allocation_count.h"
#include "engine/engine.h"
#include "engine/open_model.h"

namespace cleave {
namespace {

constexpr uint32_t kSequences = 8;
constexpr uint32_t kTokens = 100;

// What the process had allocated when each forward pass of one token a sequence began.
class CountingExecutor final : public Executor {
 public:
  CountingExecutor(std::unique_ptr<Executor> inner, std::vector<uint64_t>* counts)
      : inner_(std::move(inner)), counts_(counts) {
    counts_->reserve(2 * size_t{kTokens});
  }
  [[nodiscard]] uint32_t max_batch_tokens() const override { return inner_->max_batch_tokens(); }
  [[nodiscard]] uint32_t max_sequences() const override { return inner_->max_sequences(); }
  [[nodiscard]] uint32_t vocab_size() const override { return inner_->vocab_size(); }
  Status Submit(const ForwardBatch& batch) override {
    const bool steady =
        batch.sequences.size() == kSequences && batch.token_ids.size() == kSequences;
    if (steady) counts_->push_back(AllocationCountOfAll());
    return inner_->Submit(batch);
  }
  Status Collect(const RowSink& sink) override { return inner_->Collect(sink); }

 private:
  const std::unique_ptr<Executor> inner_;
  std::vector<uint64_t>* const counts_;  // the engine thread's until all have ended
};

// Sequences that ended; takes nothing from the engine.
class EndCount {
 public:
  void Take(const std::vector<SequenceOutput>& outputs) {
    const std::lock_guard<std::mutex> lock(mu_);
    for (const SequenceOutput& o : outputs) ended_ += o.finish == FinishReason::kLength ? 1 : 0;
    changed_.notify_all();
  }
  bool WaitAll() {
    std::unique_lock<std::mutex> lock(mu_);
    return changed_.wait_for(lock, std::chrono::minutes(2), [&] { return ended_ == kSequences; });
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  uint32_t ended_ = 0;  // guarded by mu_
};

std::vector<SequenceSpec> Requests() {
  std::vector<SequenceSpec> requests(kSequences);
  for (uint32_t i = 0; i < kSequences; ++i) {
    SequenceSpec& s = requests[i];
    s.id = i;
    s.prompt.assign(5 + i, static_cast<int32_t>(20 + i));
    s.sampling.max_tokens = kTokens;
    s.sampling.ignore_eos = true;
    s.sampling.seed = i;
    if (i % 2 == 0) s.sampling.top_p = 0.9F;
    if (i % 3 == 0) s.sampling.repetition_penalty = 1.1F;
  }
  return requests;
}

class SteadyStep : public testing::TestWithParam<const char*> {};

TEST_P(SteadyStep, AllocatesNothing) {
  auto checkpoint = OpenCheckpoint(std::string(CLEAVE_TINY) + "/" + GetParam());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  ModelSettings settings;
  settings.threads = 2;
  settings.max_model_len = 256;
  auto plan = PlanModel(**checkpoint, settings);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EngineConfig config;
  config.max_model_len = 256;
  config.num_blocks = plan->executor.num_blocks;
  auto executor = LoadModel(std::move(*checkpoint), *plan, nullptr);
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();

  std::vector<uint64_t> counts;
  EndCount ends;
  {
    Engine engine(
        config, std::make_unique<CountingExecutor>(std::move(*executor), &counts),
        [&](std::vector<SequenceOutput>&& o) { ends.Take(o); }, nullptr);
    ASSERT_TRUE(engine.Submit(Requests()).ok());
    ASSERT_TRUE(ends.WaitAll());
  }
  ASSERT_GE(counts.size(), kTokens - 2);
  // The first steps see buffers of the engine grow, the last one sequences end.
  for (size_t i = 2; i + 1 < counts.size(); ++i) {
    EXPECT_EQ(counts[i] - counts[i - 1], 0U) << "step " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, SteadyStep, testing::Values("llama3.gguf", "gemma3"));

}  // namespace
}  // namespace cleave
