#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "launch/wire.h"
#include "launch/worker_spec.h"

namespace cleave {
namespace {

using testing::HasSubstr;

TimePoint At(int64_t ns) { return TimePoint(std::chrono::nanoseconds(ns)); }

SequenceSpec Spec() {
  SequenceSpec spec;
  spec.id = 77;
  spec.prompt = {1, 2, 3};
  spec.output = {4};
  spec.sampling.temperature = 0.5F;
  spec.sampling.top_k = 40;
  spec.sampling.logit_bias = {{5, -100.0F}, {6, 1.5F}};
  spec.sampling.allowed_token_ids = {9, 8};
  spec.sampling.bad_words = {{1, 2}, {}, {3}};
  spec.sampling.seed = 0xfeedfacecafebeef;
  spec.sampling.choice_index = 2;
  spec.sampling.ignore_eos = true;
  spec.sampling.stop_token_ids = {13};
  spec.sampling.logprobs = 5;
  spec.priority = -3;
  spec.cache_salt = "salt";
  spec.arrival = At(123456789);
  spec.replica = 1;
  return spec;
}

EngineStats Stats() {
  EngineStats stats;
  stats.running = 3;
  stats.waiting = 4;
  stats.num_blocks = 900;
  stats.steps = 1ULL << 40U;
  stats.forward_s = 1.25;
  stats.last_progress = At(55);
  return stats;
}

std::vector<EngineEvent> Events() {
  EngineObserver::Finished finished;
  finished.reason = FinishReason::kLength;
  finished.output_tokens = 12;
  finished.e2e_s = 0.75;
  finished.id = 77;
  return {StepEvent{17}, FirstTokenEvent{0.125}, NextTokenEvent{0.01}, PreemptedEvent{77, 5},
          finished};
}

std::vector<SequenceOutput> Outputs() {
  std::vector<SequenceOutput> outputs(2);
  outputs[0].id = 77;
  outputs[0].tokens = {5, 6};
  outputs[0].logprobs = {{{5, -0.5F, 1}, {{5, -0.5F, 1}, {9, -2.0F, 2}}}, {{6, -1.0F, 3}, {}}};
  outputs[0].prompt_logprobs = {{{2, -3.0F, 8}, {}}};
  outputs[0].cached_tokens = 16;
  outputs[1].id = 78;
  outputs[1].finish = FinishReason::kError;
  outputs[1].stop_token_id = 4;
  outputs[1].error = Unavailable("rank 1 died");
  return outputs;
}

std::vector<std::byte> StepBytes() {
  ByteWriter writer;
  Encode(&writer, DeadlineExceeded("late"), Stats(), Events(), Outputs());
  return {writer.bytes().begin(), writer.bytes().end()};
}

class Recorder final : public EngineObserver {
 public:
  void OnStep(uint32_t tokens) override { log += "step " + std::to_string(tokens) + "; "; }
  void OnFirstToken(double) override { log += "first; "; }
  void OnNextToken(double) override { log += "next; "; }
  void OnPreempted(SequenceId id, uint32_t tokens) override {
    log += "preempted " + std::to_string(id) + " at " + std::to_string(tokens) + "; ";
  }
  void OnFinished(const Finished& f) override {
    log += "finished " + std::to_string(f.id) + " after " + std::to_string(f.output_tokens);
  }
  std::string log;
};

TEST(Wire, CarriesARequest) {
  ByteWriter writer;
  Encode(&writer, 42, {Spec(), SequenceSpec{}});
  const auto message = DecodeSubmit(writer.bytes());
  ASSERT_TRUE(message.ok()) << message.status().ToString();
  EXPECT_EQ(message->number, 42U);
  ASSERT_EQ(message->sequences.size(), 2U);
  const SequenceSpec& got = message->sequences[0];
  const SequenceSpec want = Spec();
  EXPECT_EQ(got.id, want.id);
  EXPECT_EQ(got.prompt, want.prompt);
  EXPECT_EQ(got.output, want.output);
  EXPECT_EQ(got.sampling.temperature, want.sampling.temperature);
  EXPECT_EQ(got.sampling.top_k, want.sampling.top_k);
  EXPECT_EQ(got.sampling.logit_bias, want.sampling.logit_bias);
  EXPECT_EQ(got.sampling.allowed_token_ids, want.sampling.allowed_token_ids);
  EXPECT_EQ(got.sampling.bad_words, want.sampling.bad_words);
  EXPECT_EQ(got.sampling.seed, want.sampling.seed);
  EXPECT_EQ(got.sampling.choice_index, want.sampling.choice_index);
  EXPECT_EQ(got.sampling.ignore_eos, want.sampling.ignore_eos);
  EXPECT_EQ(got.sampling.stop_token_ids, want.sampling.stop_token_ids);
  EXPECT_EQ(got.sampling.logprobs, want.sampling.logprobs);
  EXPECT_EQ(got.priority, want.priority);
  EXPECT_EQ(got.cache_salt, want.cache_salt);
  EXPECT_EQ(got.arrival, want.arrival);
  EXPECT_EQ(got.replica, want.replica);
  // The same bytes again: nothing was lost on the way.
  ByteWriter again;
  Encode(&again, message->number, message->sequences);
  EXPECT_TRUE(std::ranges::equal(again.bytes(), writer.bytes()));
}

TEST(Wire, CarriesWhatAStepDid) {
  const std::vector<std::byte> bytes = StepBytes();
  const auto message = DecodeStep(bytes);
  ASSERT_TRUE(message.ok()) << message.status().ToString();
  EXPECT_EQ(message->health.ToString(), "deadline_exceeded: late");
  EXPECT_EQ(message->stats.steps, 1ULL << 40U);
  EXPECT_EQ(message->stats.last_progress, At(55));
  Recorder recorder;
  for (const EngineEvent& event : message->events) Replay(event, &recorder);
  EXPECT_EQ(recorder.log, "step 17; first; next; preempted 77 at 5; finished 77 after 12");
  ASSERT_EQ(message->outputs.size(), 2U);
  EXPECT_EQ(message->outputs[0].logprobs[0].top[1].id, 9);
  EXPECT_EQ(message->outputs[0].prompt_logprobs[0].chosen.logprob, -3.0F);
  EXPECT_EQ(message->outputs[1].error.ToString(), "unavailable: rank 1 died");
  ByteWriter again;
  Encode(&again, message->health, message->stats, message->events, message->outputs);
  EXPECT_TRUE(std::ranges::equal(again.bytes(), bytes));
}

TEST(Wire, CarriesRepliesIdsAndStatuses) {
  ByteWriter writer;
  Encode(&writer, ReplyMessage{9, ResourceExhausted("full"), Stats()});
  const auto reply = DecodeReply(writer.bytes());
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->number, 9U);
  EXPECT_EQ(reply->status.ToString(), "resource_exhausted: full");
  EXPECT_EQ(reply->stats.waiting, 4U);

  ByteWriter ids;
  Encode(&ids, std::vector<SequenceId>{1, 2});
  EXPECT_EQ(DecodeIds(ids.bytes()).value(), (std::vector<SequenceId>{1, 2}));

  ByteWriter status;
  Encode(&status, NotFound("nobody"));
  Status got;
  ASSERT_TRUE(DecodeStatus(status.bytes(), &got).ok());
  EXPECT_EQ(got.ToString(), "not_found: nobody");

  for (const double share : {-0.1, 1.5, std::nan("")}) {
    ByteWriter progress;
    progress.Put(share);
    EXPECT_EQ(DecodeProgress(progress.bytes()).status().code(), StatusCode::kDataLoss);
  }
}

TEST(Wire, TheSmallestOfEverythingPasses) {
  ByteWriter submit;
  Encode(&submit, 1, std::vector<SequenceSpec>(50));
  const auto request = DecodeSubmit(submit.bytes());
  ASSERT_TRUE(request.ok()) << request.status().ToString();
  EXPECT_EQ(request->sequences.size(), 50U);

  std::vector<SequenceOutput> outputs(50);
  ByteWriter step;
  Encode(&step, OkStatus(), EngineStats(), std::vector<EngineEvent>(50), outputs);
  EXPECT_EQ(DecodeStep(step.bytes())->outputs.size(), 50U);
  outputs.resize(1);
  outputs[0].logprobs.resize(500);
  ByteWriter logprobs;
  Encode(&logprobs, OkStatus(), EngineStats(), {}, outputs);
  EXPECT_EQ(DecodeStep(logprobs.bytes())->outputs[0].logprobs.size(), 500U);
}

TEST(Wire, EveryTruncationIsAnError) {
  const std::vector<std::byte> step = StepBytes();
  for (size_t size = 0; size < step.size(); ++size) {
    EXPECT_EQ(DecodeStep({step.data(), size}).status().code(), StatusCode::kDataLoss) << size;
  }
  ByteWriter submit;
  Encode(&submit, 42, {Spec()});
  for (size_t size = 0; size < submit.size(); ++size) {
    EXPECT_EQ(DecodeSubmit(submit.bytes().first(size)).status().code(), StatusCode::kDataLoss);
  }
}

TEST(Wire, DamagedBytesGiveAValueOrAnError) {
  RngStream rng(5);
  const std::vector<std::byte> step = StepBytes();
  ByteWriter submit;
  Encode(&submit, 42, {Spec()});
  const std::vector<std::byte> request(submit.bytes().begin(), submit.bytes().end());
  size_t refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes = round % 2 == 0 ? step : request;
    const uint64_t flips = 1 + rng.Below(4);
    for (uint64_t i = 0; i < flips; ++i) {
      bytes[rng.Below(bytes.size())] = static_cast<std::byte>(rng.Next());
    }
    if (rng.Below(3) == 0) bytes.resize(rng.Below(bytes.size()));
    if (!DecodeStep(bytes).ok()) ++refused;
    if (!DecodeSubmit(bytes).ok()) ++refused;
    (void)DecodeReply(bytes);
    (void)DecodeIds(bytes);
    Status status;
    (void)DecodeStatus(bytes, &status);
  }
  EXPECT_GT(refused, 20000U);
}

WorkerSpec Orders() {
  WorkerSpec spec;
  spec.model_path = "/models/na\xefve.gguf";  // bytes that are no UTF-8
  spec.settings.kv_cache_memory_bytes = 1ULL << 33U;
  spec.settings.repacked_cache_dir = "/var/cache/\xff";
  spec.split.pp = 2;
  spec.split.tp = 3;
  spec.split.tp_shares = {3, 1, 1};
  spec.split.pp_layers = {10, 20};
  spec.split.redundant_experts = 2;
  spec.split.expert_loads = {UINT64_MAX, 0, 7};
  spec.split.experts_by_load = true;
  spec.rank = 17;
  spec.cpus = {4, 5};
  spec.split.cp = 3;
  spec.sizing.num_blocks = 4000;
  spec.sizing.kv_partitions = 3;
  spec.engine.num_blocks = 12000;
  spec.engine.kv_partitions = 3;
  spec.engine.eos_token_ids = {2};
  spec.engine.policy = SchedulingPolicy::kPriority;
  spec.epoch = 3;
  spec.fds.link = -1;
  return spec;
}

TEST(WorkerSpecs, GoAndComeBack) {
  const std::vector<uint8_t> bytes = Pack(Orders());
  const auto got = UnpackWorkerSpec(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  const WorkerSpec want = Orders();
  EXPECT_EQ(got->model_path, want.model_path);
  EXPECT_EQ(got->settings.kv_cache_memory_bytes, want.settings.kv_cache_memory_bytes);
  EXPECT_EQ(got->settings.max_model_len, std::nullopt);
  EXPECT_EQ(got->settings.repacked_cache_dir, want.settings.repacked_cache_dir);
  EXPECT_EQ(got->split, want.split);
  EXPECT_EQ(got->cpus, want.cpus);
  EXPECT_EQ(got->sizing.num_blocks, 4000U);
  EXPECT_EQ(got->sizing.kv_partitions, 3U);
  EXPECT_EQ(got->sizing.pool_blocks(), 12000U);
  EXPECT_EQ(got->engine.num_blocks, 12000U);
  EXPECT_EQ(got->engine.kv_partitions, 3U);
  EXPECT_EQ(got->engine.eos_token_ids, want.engine.eos_token_ids);
  EXPECT_EQ(got->engine.policy, SchedulingPolicy::kPriority);
  EXPECT_EQ(got->fds, want.fds);
  EXPECT_EQ(Pack(*got), bytes);
}

TEST(WorkerSpecs, AnyBytesGiveOrdersOrAnError) {
  RngStream rng(9);
  const std::vector<uint8_t> whole = Pack(Orders());
  for (int round = 0; round < 3000; ++round) {
    std::vector<uint8_t> bytes = whole;
    bytes[rng.Below(bytes.size())] = static_cast<uint8_t>(rng.Next());
    if (rng.Below(2) == 0) bytes.resize(rng.Below(bytes.size()));
    const auto got = UnpackWorkerSpec(std::as_bytes(std::span(bytes)));
    if (!got.ok()) {
      EXPECT_THAT(got.status().ToString(), HasSubstr("a worker's orders"));
    }
  }
  WorkerSpec wrong = Orders();
  wrong.rank = 18;
  const std::vector<uint8_t> bytes = Pack(wrong);
  EXPECT_THAT(UnpackWorkerSpec(std::as_bytes(std::span(bytes))).status().message(),
              HasSubstr("rank 18 of"));
}

TEST(WorkerSpecs, APoolHasOnePartitionForEachRankThatSharesASequence) {
  const auto refusal = [](const std::function<void(WorkerSpec*)>& change) {
    WorkerSpec spec = Orders();
    change(&spec);
    const std::vector<uint8_t> bytes = Pack(spec);
    return std::string(UnpackWorkerSpec(std::as_bytes(std::span(bytes))).status().message());
  };
  const std::string ok = refusal([](WorkerSpec*) {});
  EXPECT_EQ(ok, "");
  EXPECT_THAT(
      refusal([](WorkerSpec* s) { s->engine.kv_partitions = 0; }),
      HasSubstr("a worker's orders: 12000 KV blocks of 16 tokens in 1 pools of 0 partitions, for"));
  EXPECT_THAT(refusal([](WorkerSpec* s) { s->engine.kv_partitions = 2; }), HasSubstr("of 2 part"));
  EXPECT_THAT(refusal([](WorkerSpec* s) { s->engine.teams = 2; }), HasSubstr("in 2 pools"));
  EXPECT_THAT(refusal([](WorkerSpec* s) { s->engine.num_blocks = 4000; }), HasSubstr("4000 KV"));
  EXPECT_THAT(refusal([](WorkerSpec* s) { s->engine.block_size = 48; }), HasSubstr("of 48 tokens"));
  EXPECT_THAT(refusal([](WorkerSpec* s) { s->engine.block_size = 0; }), HasSubstr("of 0 tokens"));
  EXPECT_THAT(refusal([](WorkerSpec* s) { s->split.dcp = 3; }), HasSubstr("dcp=3"));
  EXPECT_EQ(refusal([](WorkerSpec* s) {
              s->split.dcp = 3;
              s->engine.kv_partitions = 9;
              s->engine.num_blocks = 9 * 4000;
            }),
            "");
  EXPECT_EQ(refusal([](WorkerSpec* s) {
              s->split.teams = s->engine.teams = 2;
              s->engine.num_blocks = 6 * 4000;
            }),
            "");
}

}  // namespace
}  // namespace cleave
