#include "bench/op_speed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kernels/isa_fixture.h"
#include "kernels/peak.h"

namespace cleave {
namespace {

using testing::HasSubstr;

TEST(OpSpeed, EveryKernelHasTheScalarKernelsBits) {
  const OpOptions options{
      .isa = SupportedIsas().back(), .cpus = {0, 1}, .stream_bytes = 0, .repeats = 1};
  std::vector<std::string> told;
  const auto speeds = MeasureOps(options, [&](const std::string& name) { told.push_back(name); });
  ASSERT_TRUE(speeds.ok()) << speeds.status().message();
  ASSERT_EQ(speeds->size(), told.size());
  EXPECT_GE(speeds->size(), 8);
  for (size_t i = 0; i < speeds->size(); ++i) {
    const OpSpeed& speed = (*speeds)[i];
    EXPECT_EQ(speed.name, told[i]);
    EXPECT_TRUE(speed.same) << speed.name;
    EXPECT_GT(speed.seconds, 0);
    EXPECT_GT(speed.bytes_per_s, 0);
    EXPECT_GT(speed.probe_bytes_per_s, 0);
    const bool counted = speed.name.starts_with("attention");
    EXPECT_EQ(speed.ops_per_s > 0, counted) << speed.name;
    EXPECT_EQ(speed.peak_ops_per_s > 0, counted && HasPeak(options.isa)) << speed.name;
  }
  const auto json = nlohmann::json::parse(OpJson(options, *speeds));
  EXPECT_EQ(json["same"], true);
  EXPECT_EQ(json["kernels"].size(), speeds->size());
}

TEST(OpSpeed, WhatCanNotBeIsRefused) {
  const auto none = MeasureOps({.cpus = {}}, [](const std::string&) {});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), StatusCode::kInvalidArgument);
  const auto large =
      MeasureOps({.cpus = {0}, .stream_bytes = uint64_t{1} << 50U}, [](const std::string&) {});
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(large.status().message(), HasSubstr("--bytes"));
}

TEST(OpReport, HasEveryFigureBesideItsBound) {
  const OpOptions options{.isa = Isa::kAvx2, .cpus = {0}, .repeats = 5};
  const std::vector<OpSpeed> speeds = {{.name = "attention",
                                        .bytes = 1000,
                                        .operations = 4000,
                                        .seconds = 1e-6,
                                        .bytes_per_s = 1e9,
                                        .probe_bytes_per_s = 4e9,
                                        .ops_per_s = 4e9,
                                        .peak_ops_per_s = 8e9,
                                        .same = true},
                                       {.name = "norm",
                                        .bytes = 1000,
                                        .seconds = 1e-6,
                                        .bytes_per_s = 1e9,
                                        .probe_bytes_per_s = 2e9,
                                        .same = false}};
  const auto json = nlohmann::json::parse(OpJson(options, speeds));
  EXPECT_EQ(json["isa"], "avx2");
  EXPECT_EQ(json["same"], false);
  EXPECT_DOUBLE_EQ(json["kernels"][0]["of_bandwidth"], 0.25);
  EXPECT_DOUBLE_EQ(json["kernels"][0]["of_peak"], 0.5);
  EXPECT_TRUE(json["kernels"][1]["operations"].is_null());
  EXPECT_TRUE(json["kernels"][1]["of_peak"].is_null());
  EXPECT_EQ(json["kernels"][1]["same"], false);
  const std::string text = OpText(options, speeds);
  EXPECT_THAT(text, HasSubstr("1 thread, avx2; medians of 5"));
  EXPECT_THAT(text, HasSubstr("25.0 % of 4.0"));
  EXPECT_THAT(text, HasSubstr("50.0 % of 8.0"));
  EXPECT_THAT(text, HasSubstr("DIFFER"));
}

}  // namespace
}  // namespace cleave
