#include "metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "metrics/buckets.h"

namespace cleave {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

ModelFacts Facts() {
  ModelFacts facts;
  facts.model_name = "tiny \"quoted\"";
  facts.max_model_len = 2048;
  facts.block_size = 16;
  facts.num_blocks = 256;
  facts.max_concurrency = 2;
  facts.cache_dtype = "f32";
  return facts;
}

std::string Line(const std::string& name, const std::string& more, const std::string& value) {
  return name + "{" + more + "engine=\"0\",model_name=\"tiny \\\"quoted\\\"\"} " + value + "\n";
}

TEST(BucketsTest, SizesRunOneTwoFiveUpToTheLimit) {
  EXPECT_THAT(SizeBuckets(100), ElementsAre(1, 2, 5, 10, 20, 50, 100));
  EXPECT_THAT(SizeBuckets(49), ElementsAre(1, 2, 5, 10, 20));
  EXPECT_THAT(SizeBuckets(1), ElementsAre(1));
  EXPECT_EQ(SizeBuckets(4'294'967'295U).back(), 2e9);
}

TEST(ServerMetricsTest, ExposesHttpAndProcessBeforeAnyModel) {
  ServerMetrics metrics;
  metrics.CountRejection("queued_reqs");  // no model: nothing to count it on
  metrics.CountExchange({"/v1/models", "GET", 200, 0.05, 0, 120});
  metrics.CountExchange({"none", "BREW", 404, 0.01, 7, 90});
  const std::string text = metrics.Expose({nullptr, 3, 2});
  EXPECT_THAT(text, HasSubstr("http_requests_total{handler=\"/v1/models\",method=\"GET\","
                              "status=\"2xx\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("http_requests_total{handler=\"none\",method=\"other\","
                              "status=\"4xx\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("http_request_size_bytes_sum{handler=\"none\"} 7\n"));
  EXPECT_THAT(text, HasSubstr("http_response_size_bytes_sum{handler=\"/v1/models\"} 120\n"));
  EXPECT_THAT(text, HasSubstr("http_request_duration_highr_seconds_count 2\n"));
  EXPECT_THAT(text, HasSubstr("cleave_http_connections 3\n"));
  EXPECT_THAT(text, HasSubstr("cleave_http_refused_total 2\n"));
  EXPECT_THAT(text, HasSubstr("process_resident_memory_bytes"));
  EXPECT_THAT(text, Not(HasSubstr("vllm:")));
  EXPECT_THAT(text, Not(HasSubstr("process_open_fds 0\n")));
}

TEST(ServerMetricsTest, LevelsAndTotalsFollowTheEngine) {
  ServerMetrics metrics;
  metrics.AttachModel(Facts());
  EngineStats stats;
  stats.running = 2;
  stats.waiting = 5;
  stats.used_blocks = 64;
  stats.num_blocks = 256;
  stats.prompt_tokens = 100;
  stats.prefix_hits = 32;
  stats.prefix_queries = 96;
  stats.generation_tokens = 7;
  stats.preemptions = 1;
  metrics.Expose({&stats, 0, 0});
  stats.generation_tokens = 9;
  const std::string text = metrics.Expose({&stats, 0, 0});
  EXPECT_THAT(text, HasSubstr(Line("vllm:num_requests_running", "", "2")));
  EXPECT_THAT(text, HasSubstr(Line("vllm:num_requests_waiting", "", "5")));
  EXPECT_THAT(text, HasSubstr(Line("vllm:kv_cache_usage_perc", "", "0.25")));
  EXPECT_THAT(text, HasSubstr(Line("vllm:prompt_tokens_total", "", "100")));
  EXPECT_THAT(text, HasSubstr(Line("vllm:prompt_tokens_cached_total", "", "32")));
  EXPECT_THAT(text, HasSubstr(Line("vllm:generation_tokens_total", "", "9")));
  EXPECT_THAT(text, HasSubstr(Line("vllm:num_preemptions_total", "", "1")));
  EXPECT_THAT(text, HasSubstr("source=\"local_compute\"} 68\n"));
  EXPECT_THAT(text, HasSubstr("vllm:prompt_tokens_cached_by_source_total{engine=\"0\",model_name="
                              "\"tiny \\\"quoted\\\"\",source=\"local_cache_hit\"} 32\n"));
  EXPECT_THAT(text, HasSubstr("kv_cache_size_tokens=\"4096\""));
  EXPECT_THAT(text, HasSubstr("kv_cache_max_concurrency=\"2.00\""));
  EXPECT_THAT(text, HasSubstr("enable_prefix_caching=\"True\""));
}

TEST(ServerMetricsTest, TotalsOfRanksFollowTheBill) {
  ServerMetrics metrics;
  metrics.AttachModel(Facts());
  Bill bill = {.split = {.dp = 2, .pp = 2}, .ranks = std::vector<RankBill>(4)};
  OpBill& sends = bill.ranks[2].of(Axis::kPp, CommOp::kSend);
  sends = {.calls = 3, .bytes = 96, .predicted_calls = 3, .predicted_bytes = 96};
  metrics.Expose({.bill = &bill});
  sends = {.calls = 5,
           .bytes = 160,
           .predicted_calls = 5,
           .predicted_bytes = 160,
           .transfer_ns = 500'000'000,
           .wait_ns = 1'000'000'000};
  bill.ranks[2].AddStepTime(4'000'000'000);
  const std::string text = metrics.Expose({.bill = &bill});
  const std::string end = ",model_name=\"tiny \\\"quoted\\\"\",op=\"send\",rank=\"0\"} ";
  const std::string labels = "{axis=\"pp\",engine=\"1\"" + end;
  EXPECT_THAT(text, HasSubstr("cleave_comm_bytes_total" + labels + "160\n"));
  EXPECT_THAT(text, HasSubstr("cleave_comm_calls_total" + labels + "5\n"));
  EXPECT_THAT(text, HasSubstr("cleave_comm_predicted_calls_total" + labels + "5\n"));
  EXPECT_THAT(text, HasSubstr("cleave_comm_wait_seconds_total" + labels + "1\n"));
  EXPECT_THAT(text, HasSubstr("cleave_comm_transfer_seconds_total" + labels + "0.5\n"));
  const std::string rank = "{engine=\"1\",model_name=\"tiny \\\"quoted\\\"\",rank=\"0\"} ";
  EXPECT_THAT(text, HasSubstr("cleave_rank_step_seconds_total" + rank + "4\n"));
  EXPECT_THAT(text, HasSubstr("cleave_pp_bubble_ratio" + rank + "0.25\n"));
  EXPECT_THAT(text, Not(HasSubstr("axis=\"tp\""))) << "what was not used is not listed";
}

TEST(ServerMetricsTest, ExpertsByReplica) {
  ServerMetrics metrics;
  metrics.AttachModel(Facts());
  Bill bill = {.split = {.dp = 2, .tp = 2, .ep = 2}, .ranks = std::vector<RankBill>(4)};
  bill.expert_tokens = {{3, 0, 0}, {0, 1, 2}, {7, 2, 0}, {0, 0, 1}};
  const std::string name = "model_name=\"tiny \\\"quoted\\\"\"} ";
  const std::string text = metrics.Expose({.bill = &bill});
  EXPECT_THAT(text,
              HasSubstr("cleave_expert_tokens_total{engine=\"0\",expert=\"0\"," + name + "3\n"));
  EXPECT_THAT(text,
              HasSubstr("cleave_expert_tokens_total{engine=\"0\",expert=\"2\"," + name + "2\n"));
  EXPECT_THAT(text,
              HasSubstr("cleave_expert_tokens_total{engine=\"1\",expert=\"2\"," + name + "1\n"));
  EXPECT_THAT(text, HasSubstr("cleave_expert_imbalance{engine=\"0\"," + name + "1\n"));
  EXPECT_THAT(text, HasSubstr("cleave_expert_imbalance{engine=\"1\"," + name + "1.8\n"));
  // Of one rank: over the experts.
  Bill alone;
  alone.expert_tokens = {{1, 0, 5}};
  ServerMetrics other;
  other.AttachModel(Facts());
  const std::string later = other.Expose({.bill = &alone});
  EXPECT_THAT(later, HasSubstr("cleave_expert_imbalance{engine=\"0\"," + name + "2.5\n"));
}

TEST(ServerMetricsTest, ObservesEndsByReason) {
  ServerMetrics metrics;
  EngineObserver* observer = metrics.AttachModel(Facts());
  EXPECT_EQ(metrics.AttachModel(Facts()), observer);
  EngineObserver::Finished ended;
  ended.reason = FinishReason::kLength;
  ended.prompt_tokens = 30;
  ended.cached_tokens = 16;
  ended.output_tokens = 5;
  ended.max_tokens = 5;
  ended.prefill_s = 0.5;
  ended.decode_s = 2;
  ended.e2e_s = 3;
  ended.id = 1;
  observer->OnFinished(ended);
  observer->OnStep(31);
  observer->OnFirstToken(0.003);
  observer->OnNextToken(0.02);
  metrics.CountRequest(3);
  const std::string text = metrics.Expose({});
  EXPECT_THAT(text,
              HasSubstr("finished_reason=\"length\",model_name=\"tiny \\\"quoted\\\"\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("vllm:request_inference_time_seconds_sum"));
  EXPECT_THAT(text, HasSubstr("le=\"0.005\"} 1\n"));
  EXPECT_THAT(text, HasSubstr(Line("vllm:request_prefill_kv_computed_tokens_sum", "", "14")));
  EXPECT_THAT(text, HasSubstr(Line("vllm:request_time_per_output_token_seconds_sum", "", "0.5")));
  EXPECT_THAT(text, HasSubstr(Line("vllm:iteration_tokens_total_sum", "", "31")));
  EXPECT_THAT(text, HasSubstr(Line("vllm:request_params_n_sum", "", "3")));
}

TEST(ServerMetricsTest, AnAbortForAStopStringCountsAsStop) {
  ServerMetrics metrics;
  EngineObserver* observer = metrics.AttachModel(Facts());
  EngineObserver::Finished ended;
  ended.reason = FinishReason::kAbort;
  ended.id = 7;
  metrics.ExpectStop(7);
  observer->OnFinished(ended);
  observer->OnFinished(ended);  // the id is free again: an abort
  metrics.ExpectStop(8);
  metrics.Forget(8);
  ended.id = 8;
  observer->OnFinished(ended);
  const std::string text = metrics.Expose({});
  EXPECT_THAT(text, HasSubstr("finished_reason=\"stop\",model_name=\"tiny \\\"quoted\\\"\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("finished_reason=\"abort\",model_name=\"tiny \\\"quoted\\\"\"} 2\n"));
}

TEST(ServerMetricsTest, RejectionsAreCountedByReason) {
  ServerMetrics metrics;
  metrics.AttachModel(Facts());
  metrics.CountRejection("queued_tokens");
  EXPECT_THAT(metrics.Expose({}), HasSubstr("reason=\"queued_tokens\"} 1\n"));
}

}  // namespace
}  // namespace cleave
