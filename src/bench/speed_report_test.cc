#include "bench/speed_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace cleave {
namespace {

using testing::HasSubstr;

constexpr uint64_t kSecond = 1000000000;

PhaseSpeed Phase(uint64_t tokens, double seconds) {
  PhaseSpeed phase;
  phase.tokens = tokens;
  phase.seconds = seconds;
  return phase;
}

// Two ranks that reduced `bytes` in `transfer_s` each, and waited as long.
PhaseSpeed CutPhase(uint64_t tokens, double seconds, uint64_t bytes, uint64_t transfer_s) {
  PhaseSpeed phase = Phase(tokens, seconds);
  phase.ranks = 2;
  phase.moved.of(Axis::kTp, CommOp::kAllReduce) = {.calls = 4,
                                                   .bytes = bytes,
                                                   .predicted_calls = 4,
                                                   .predicted_bytes = bytes,
                                                   .transfer_ns = 2 * transfer_s * kSecond,
                                                   .wait_ns = 2 * transfer_s * kSecond};
  return phase;
}

// One rank against two: 20 s and 12 s of prefill, 8 s and 4 s of decoding, in the medians.
SpeedReport Sample() {
  SpeedReport report;
  report.model = "m.gguf";
  report.isa = "avx2";
  report.prompt_tokens = 100;
  report.output_tokens = 8;
  report.measured.split.tp = 2;
  report.measured.cores = 2;
  report.measured.tp_ceiling = 1.8;
  report.measured.runs.push_back(
      {.batch = 2,
       .prefill = {CutPhase(200, 10, 2000, 2), CutPhase(200, 12, 2000, 2),
                   CutPhase(200, 16, 2000, 2)},
       .decode = {CutPhase(16, 4, 800, 1), CutPhase(16, 8, 800, 1), CutPhase(16, 2, 800, 1)}});
  report.measured.bill.split = report.measured.split;
  report.measured.bill.ranks.resize(2);
  report.measured.bill.ranks[0].of(Axis::kTp, CommOp::kAllReduce) =
      report.measured.runs[0].prefill[0].moved.of(Axis::kTp, CommOp::kAllReduce);
  report.measured.generated_tokens = 54;
  report.against.emplace();
  report.against->runs.push_back({.batch = 2,
                                  .prefill = {Phase(200, 20), Phase(200, 18), Phase(200, 32)},
                                  .decode = {Phase(16, 8), Phase(16, 8), Phase(16, 4)}});
  report.probe_bytes = 1000000;
  report.probes = {{.cores = 1, .median_bytes_per_s = 1e10, .best_bytes_per_s = 1.1e10},
                   {.cores = 2, .median_bytes_per_s = 1.9e10, .best_bytes_per_s = 2e10}};
  report.work.layer_bytes = 3e9;
  report.work.head_bytes = 1e9;
  report.work.layer_operations = 1e9;
  report.work.head_operations = 1e8;
  report.work.position_bytes = 1000;
  report.work.position_operations = 2000;
  report.work.windows = {0};
  report.work.peak = PeakKind::kInt8Scaled;
  report.peaks = {{.cores = 1, .median_ops_per_s = 2e10, .best_ops_per_s = 2.1e10},
                  {.cores = 2, .median_ops_per_s = 4e10, .best_ops_per_s = 4.1e10}};
  return report;
}

TEST(SpeedRatio, IsThatOfMediansAndTheMedianOfPairs) {
  const auto ratios = RatiosOf(Sample());
  ASSERT_EQ(ratios.size(), 1);
  EXPECT_EQ(ratios[0].batch, 2);
  EXPECT_DOUBLE_EQ(ratios[0].prefill, 20.0 / 12);
  EXPECT_DOUBLE_EQ(ratios[0].prefill_pairs, 2);  // of 2, 1.5, 2
  EXPECT_DOUBLE_EQ(ratios[0].decode, 2);
  EXPECT_DOUBLE_EQ(ratios[0].decode_pairs, 2);  // of 2, 1, 2
}

TEST(SpeedRatio, CeilingsAreOfTheSharesTheReductionsAndTheMemory) {
  SpeedReport report = Sample();
  // The least: 20 s over 1.8, and 2 s of reductions.
  EXPECT_DOUBLE_EQ(RatiosOf(report)[0].prefill_ceiling.value(), 20 / (20 / 1.8 + 2));
  EXPECT_FALSE(RatiosOf(report)[0].decode_ceiling.has_value());
  report.measured.runs[0].batch = 1;
  EXPECT_DOUBLE_EQ(RatiosOf(report)[0].decode_ceiling.value(), 1.9);
  report.measured.split.pp = 2;
  EXPECT_FALSE(RatiosOf(report)[0].prefill_ceiling.has_value());
  report = Sample();
  report.measured.runs[0].batch = 1;
  report.against->threads = 2;
  report.against->cores = 2;
  EXPECT_FALSE(RatiosOf(report)[0].prefill_ceiling.has_value());
  EXPECT_DOUBLE_EQ(RatiosOf(report)[0].decode_ceiling.value(), 1);
  report = Sample();
  report.measured.cores = 1;  // two ranks on one core
  EXPECT_FALSE(RatiosOf(report)[0].prefill_ceiling.has_value());
}

TEST(SpeedBounds, AreWhatTheLayoutsCoresCanDo) {
  SpeedReport report = Sample();
  const LayoutFigures& layout = report.measured;
  // Of 100 tokens a prompt, 8 of output: positions seen are 50.5 and 104.5 in the mean.
  SpeedBounds bounds = BoundsOf(report, layout, layout.runs[0]);
  EXPECT_DOUBLE_EQ(bounds.prefill_ops_per_token, 1e9 + 1e6 + 50.5 * 2000);
  EXPECT_DOUBLE_EQ(bounds.prefill_of_peak.value(),
                   bounds.prefill_ops_per_token * (200.0 / 12) / 4e10);
  EXPECT_DOUBLE_EQ(bounds.decode_bytes_per_token, 4e9 / 2 + 104.5 * 1000);
  EXPECT_DOUBLE_EQ(bounds.decode_of_bandwidth.value(), bounds.decode_bytes_per_token * 4 / 1.9e10);
  EXPECT_DOUBLE_EQ(bounds.decode_ops_per_token, 1.1e9 + 104.5 * 2000);
  EXPECT_DOUBLE_EQ(bounds.decode_of_peak.value(), bounds.decode_ops_per_token * 4 / 4e10);
  // One core of the other layout.
  bounds = BoundsOf(report, *report.against, report.against->runs[0]);
  EXPECT_DOUBLE_EQ(bounds.prefill_of_peak.value(), bounds.prefill_ops_per_token * 10 / 2e10);
  EXPECT_DOUBLE_EQ(bounds.decode_of_bandwidth.value(), bounds.decode_bytes_per_token * 2 / 1e10);
}

TEST(SpeedBounds, ThatDoNotApplyAreNothing) {
  SpeedReport report = Sample();
  report.measured.runs[0].batch = 1;
  SpeedBounds bounds = BoundsOf(report, report.measured, report.measured.runs[0]);
  EXPECT_TRUE(bounds.prefill_of_peak && bounds.decode_of_bandwidth);
  EXPECT_FALSE(bounds.decode_of_peak);
  report.peaks.clear();
  report.measured.cores = 3;
  bounds = BoundsOf(report, report.measured, report.measured.runs[0]);
  EXPECT_FALSE(bounds.prefill_of_peak || bounds.decode_of_bandwidth);
  const auto json = nlohmann::json::parse(SpeedJson(report));
  EXPECT_TRUE(json["runs"][0]["bounds"]["prefill_of_peak"].is_null());
  EXPECT_TRUE(json["peak"]["cores"].empty());
}

TEST(SpeedReport, JsonHasTheFiguresOfBothLayouts) {
  const auto json = nlohmann::json::parse(SpeedJson(Sample()));
  EXPECT_EQ(json["same"], true);
  EXPECT_FALSE(json.contains("difference"));
  EXPECT_EQ(json["layout"], "dp=1 pp=1 tp=2 ep=1 cp=1");
  EXPECT_EQ(json["threads"], 1);
  EXPECT_EQ(json["tp_ceiling"], 1.8);
  const auto& run = json["runs"][0];
  EXPECT_EQ(run["batch"], 2);
  EXPECT_DOUBLE_EQ(run["prefill_tokens_per_s"], 200.0 / 12);
  EXPECT_DOUBLE_EQ(run["decode_tokens_per_s"], 4);
  EXPECT_DOUBLE_EQ(run["prefill"]["bytes_per_token"], 10);
  EXPECT_DOUBLE_EQ(run["decode"]["bytes_per_token"], 50);
  EXPECT_DOUBLE_EQ(run["prefill"]["transfer_s"], 2);
  EXPECT_DOUBLE_EQ(run["decode"]["wait_s"], 1);
  EXPECT_EQ(run["repeats"].size(), 3);
  EXPECT_EQ(json["against"]["layout"], "dp=1 pp=1 tp=1 ep=1 cp=1");
  EXPECT_DOUBLE_EQ(json["against"]["runs"][0]["prefill_tokens_per_s"], 10);
  EXPECT_DOUBLE_EQ(json["ratio"][0]["prefill_ceiling"], 20 / (20 / 1.8 + 2));
  EXPECT_TRUE(json["ratio"][0]["decode_ceiling"].is_null());
  EXPECT_EQ(json["bill"]["axes"][0]["axis"], "tp");
  EXPECT_EQ(json["bill"]["per_generated_token"]["generated_tokens"], 54);
  EXPECT_EQ(json["probe"]["bytes"], 1000000);
  EXPECT_DOUBLE_EQ(json["probe"]["cores"][1]["gain"], 1.9);
  EXPECT_DOUBLE_EQ(run["bounds"]["decode_bytes_per_token"], 4e9 / 2 + 104.5 * 1000);
  EXPECT_GT(run["bounds"]["decode_of_bandwidth"], 0);
  EXPECT_GT(json["against"]["runs"][0]["bounds"]["decode_of_peak"], 0);
  EXPECT_EQ(json["peak"]["kind"], "int8_scaled");
  EXPECT_DOUBLE_EQ(json["peak"]["cores"][1]["ops_per_s"], 4e10);
}

TEST(SpeedReport, JsonOfOneLayoutHasNoRatio) {
  SpeedReport report = Sample();
  report.against.reset();
  report.difference = "request 0 differs";
  const auto json = nlohmann::json::parse(SpeedJson(report));
  EXPECT_TRUE(json["against"].is_null());
  EXPECT_TRUE(json["ratio"].empty());
  EXPECT_EQ(json["same"], false);
  EXPECT_EQ(json["difference"], "request 0 differs");
}

TEST(SpeedReport, TextSaysWhatLimitsAndWhetherAnswersAreTheSame) {
  SpeedReport report = Sample();
  std::string text = SpeedText(report);
  EXPECT_THAT(text, HasSubstr("100 prompt and 8 output tokens, medians of 3"));
  EXPECT_THAT(text, HasSubstr("tp=2 ep=1 cp=1, 1 thread a rank"));
  EXPECT_THAT(text, HasSubstr("2.000x"));
  EXPECT_THAT(text, HasSubstr("131.1 % of 1.525"));
  EXPECT_THAT(text, HasSubstr("can gain at most 1.900x by memory"));
  EXPECT_THAT(text, HasSubstr("at most 1.800x"));
  EXPECT_THAT(text, HasSubstr("the same tokens in every run"));
  EXPECT_THAT(text, HasSubstr("all_reduce"));
  EXPECT_THAT(text, HasSubstr("beside what 2 cores can do"));
  EXPECT_THAT(text, HasSubstr("42.1 %"));  // 2 GB a token, 4 a second, of 19 GB/s
  EXPECT_THAT(text, HasSubstr("2 cores compute 40.0 Gop/s of int8_scaled (best 41.0)"));
  report.measured.split.pp = 2;
  EXPECT_THAT(SpeedText(report), testing::Not(HasSubstr("by the largest share alone")));
  report.difference = "request 0 differs";
  EXPECT_THAT(SpeedText(report), HasSubstr("NOT the same tokens: request 0 differs"));
}

}  // namespace
}  // namespace cleave
