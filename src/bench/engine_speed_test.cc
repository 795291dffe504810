#include "bench/engine_speed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <utility>

#include "engine/fake_executor.h"

namespace cleave {
namespace {

constexpr uint32_t kBlocks = 4096;

// An engine over a fake model, with the meter as its sink.
struct Measured {
  explicit Measured(uint32_t step_tokens = 64, std::function<Status()> before_forward = nullptr,
                    uint32_t in_flight = 1) {
    EngineConfig config;
    config.max_model_len = 512;
    config.max_num_batched_tokens = step_tokens;
    config.block_size = 4;
    config.num_blocks = kBlocks;
    config.enable_prefix_caching = false;
    auto executor = std::make_unique<FakeExecutor>(
        FakeExecutorOptions{.num_blocks = kBlocks,
                            .max_batch_tokens = step_tokens,
                            .max_in_flight = in_flight,
                            .before_forward = std::move(before_forward)});
    engine = std::make_unique<Engine>(
        config, std::move(executor),
        [this](std::vector<SequenceOutput>&& outputs) { meter.OnOutputs(std::move(outputs)); },
        nullptr);
    client = MakeEngineClient(engine.get());
  }

  SpeedMeter meter;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<EngineClient> client;
};

SpeedOptions OptionsFor(uint32_t batch, uint32_t step_tokens = 64, uint32_t stages = 1) {
  return {.batch = batch,
          .prompt_tokens = 37,
          .output_tokens = 11,
          .lead_tokens = LeadTokens(batch, 37, step_tokens, stages),
          .vocab_size = 64};
}

TEST(LeadTokens, CoverTheStepsOfAPrefill) {
  EXPECT_EQ(LeadTokens(1, 512, 512, 1), 0);
  EXPECT_GE(LeadTokens(32, 512, 512, 1), 32 * 512 / (512 - 32));
  EXPECT_LE(LeadTokens(32, 512, 512, 1), 40);
  EXPECT_GT(LeadTokens(32, 512, 512, 4), LeadTokens(32, 512, 512, 1));
  EXPECT_LE(LeadTokens(4096, 1 << 20, 4096, 1), 1 << 20);
}

TEST(SpeedMeter, OneRequestDecodesAllItsTokensInTheWindow) {
  Measured measured;
  const auto speed = measured.meter.Measure(measured.client.get(), OptionsFor(1));
  ASSERT_TRUE(speed.ok()) << speed.status().message();
  EXPECT_EQ(speed->prefill.tokens, 37);
  EXPECT_EQ(speed->decode.tokens, 11);
  EXPECT_GT(speed->prefill.seconds, 0);
  EXPECT_GT(speed->decode.seconds, 0);
  ASSERT_EQ(speed->tokens.size(), 1);
  EXPECT_EQ(speed->tokens[0].size(), 12);
  EXPECT_EQ(measured.client->stats().generation_tokens, 12);
  EXPECT_EQ(speed->decode.ranks, 0);
}

TEST(SpeedMeter, ABatchIsCountedWhileAllOfItDecodes) {
  for (const uint32_t in_flight : {1U, 2U}) {
    Measured measured(64, nullptr, in_flight);
    const uint32_t batch = 24;
    const auto options = OptionsFor(batch, 64, in_flight);
    const auto speed = measured.meter.Measure(measured.client.get(), options);
    ASSERT_TRUE(speed.ok()) << speed.status().message();
    EXPECT_EQ(speed->prefill.tokens, batch * 37);
    // One token of every request a step; steps in flight may be one ahead.
    EXPECT_GE(speed->decode.tokens, (11 - in_flight + 1) * (batch - 1));
    EXPECT_LE(speed->decode.tokens, (11 + in_flight) * batch);
    ASSERT_EQ(speed->tokens.size(), batch);
    for (const auto& tokens : speed->tokens) EXPECT_EQ(tokens.size(), 12);
    // Nothing is left behind.
    EXPECT_EQ(measured.client->stats().used_blocks, 0);
  }
}

TEST(SpeedMeter, ARequestAnswersAlikeInEveryBatchAndRun) {
  Measured measured;
  Measured other(200);
  const auto first = measured.meter.Measure(measured.client.get(), OptionsFor(3));
  const auto again = measured.meter.Measure(measured.client.get(), OptionsFor(8));
  const auto elsewhere = other.meter.Measure(other.client.get(), OptionsFor(8, 200));
  ASSERT_TRUE(first.ok() && again.ok() && elsewhere.ok());
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(first->tokens[i], again->tokens[i]);
  EXPECT_EQ(again->tokens, elsewhere->tokens);
  EXPECT_NE(again->tokens[0], again->tokens[1]);
}

TEST(SpeedMeter, ARefusedRequestIsToldAndTheOthersEnd) {
  Measured measured;
  SpeedOptions options = OptionsFor(2);
  options.prompt_tokens = 511;
  options.output_tokens = 10;
  const auto speed = measured.meter.Measure(measured.client.get(), options);
  ASSERT_FALSE(speed.ok());
  EXPECT_EQ(speed.status().code(), StatusCode::kInvalidArgument);
  const auto next = measured.meter.Measure(measured.client.get(), OptionsFor(2));
  EXPECT_TRUE(next.ok()) << next.status().message();
}

TEST(SpeedMeter, AFailedStepIsToldAsItIs) {
  std::atomic<int> steps{0};
  Measured measured(64,
                    [&steps] { return ++steps < 4 ? OkStatus() : Unavailable("rank 1 is gone"); });
  const auto speed = measured.meter.Measure(measured.client.get(), OptionsFor(2));
  ASSERT_FALSE(speed.ok());
  EXPECT_THAT(speed.status().message(), testing::HasSubstr("rank 1 is gone"));
}

// Accepts everything and does nothing.
class SilentEngine final : public EngineClient {
 public:
  Status Submit(std::vector<SequenceSpec> /*sequences*/) override { return OkStatus(); }
  void Abort(SequenceId /*id*/) override {}
  void StartDrain() override {}
  [[nodiscard]] EngineStats stats() const override { return {}; }
  [[nodiscard]] EngineConfig config() const override { return {}; }
  [[nodiscard]] Status health() const override { return OkStatus(); }
};

TEST(SpeedMeter, AnEngineThatDoesNothingIsNotWaitedForForLong) {
  SilentEngine engine;
  SpeedMeter meter;
  SpeedOptions options = OptionsFor(2);
  options.stall = std::chrono::milliseconds(1);
  const auto speed = meter.Measure(&engine, options);
  ASSERT_FALSE(speed.ok());
  EXPECT_EQ(speed.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(speed.status().message(), testing::HasSubstr("0 of 2 requests began"));
}

}  // namespace
}  // namespace cleave
