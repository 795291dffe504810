#include "bench/kernel_speed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kernels/isa_fixture.h"
#include "kernels/random_weights.h"

namespace cleave {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ProductOptions Tiny(DType dtype, ProductSum sum) {
  return {.dtype = dtype,
          .outputs = 37,
          .k = 512,
          .rows = {1, 5},
          .isa = SupportedIsas().back(),
          .cpus = {0},
          .sum = sum,
          .stream_bytes = 100000,
          .repeats = 1};
}

void Ignore(uint32_t /*rows*/) {}

TEST(KernelSpeed, EveryTypeAndSumHasTheScalarKernelsBits) {
  for (const DType dtype : kAllDTypes) {
    for (const ProductSum sum : {ProductSum::kColumn, ProductSum::kRow}) {
      ProductOptions options = Tiny(dtype, sum);
      if (dtype == DType::kQ41) options.cpus = {0, 1};
      const auto speed = MeasureProducts(options, Ignore);
      ASSERT_TRUE(speed.ok()) << speed.status().message();
      EXPECT_TRUE(speed->same()) << speed->runs[0].difference << speed->runs[1].difference;
      EXPECT_GE(speed->matrix_bytes * speed->copies, 100000);
      EXPECT_LT(speed->matrix_bytes * (speed->copies - 1), 100000);
      ASSERT_EQ(speed->runs.size(), 2);
      for (const ProductFigures& run : speed->runs) {
        EXPECT_GT(run.seconds, 0);
        EXPECT_GT(speed->OfBandwidth(run), 0);
        EXPECT_EQ(speed->OfPeak(run).has_value(), HasPeak(SupportedIsas().back()));
      }
    }
  }
}

TEST(KernelSpeed, TheScalarKernelsHaveNoPeakAndACachedMatrixOneCopy) {
  ProductOptions options = Tiny(DType::kQ41, ProductSum::kColumn);
  options.isa = Isa::kScalar;
  options.stream_bytes = 0;
  std::vector<uint32_t> told;
  const auto speed = MeasureProducts(options, [&](uint32_t rows) { told.push_back(rows); });
  ASSERT_TRUE(speed.ok());
  EXPECT_THAT(told, ElementsAre(1, 5));
  EXPECT_EQ(speed->copies, 1);
  EXPECT_FALSE(speed->OfPeak(speed->runs[0]).has_value());
  const auto json = nlohmann::json::parse(ProductJson(options, {*speed}));
  EXPECT_TRUE(json["types"][0]["peak"].is_null());
  EXPECT_TRUE(json["types"][0]["runs"][0]["of_peak"].is_null());
}

TEST(KernelSpeed, WhatCanNotBeIsRefused) {
  ProductOptions options = Tiny(DType::kQ4K, ProductSum::kColumn);
  options.k = 576;
  auto refused = MeasureProducts(options, Ignore);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("Q4_K has rows of whole blocks of 256"));
  EXPECT_THAT(refused.status().message(), HasSubstr("--shape 37x768"));
  options = Tiny(DType::kF32, ProductSum::kColumn);
  options.outputs = options.k = 1U << 20U;  // 4 TiB
  refused = MeasureProducts(options, Ignore);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("--shape"));
  options = Tiny(DType::kF32, ProductSum::kColumn);
  options.rows = {};
  EXPECT_EQ(MeasureProducts(options, Ignore).status().code(), StatusCode::kInvalidArgument);
}

// Two types, the second of which differs in one result.
std::vector<ProductSpeed> Sample() {
  ProductSpeed speed;
  speed.dtype = DType::kQ41;
  speed.matrix_bytes = 1000000;
  speed.copies = 3;
  speed.probe_bytes_per_s = 2e10;
  speed.best_probe_bytes_per_s = 3e10;
  speed.peak = PeakKind::kInt8Scaled;
  speed.peak_ops_per_s = 8e11;
  speed.best_peak_ops_per_s = 9e11;
  speed.runs = {{.rows = 1, .seconds = 1e-4, .ops_per_s = 4e10, .bytes_per_s = 1e10}};
  ProductSpeed other = speed;
  other.dtype = DType::kBF16;
  other.runs[0].difference = "BF16 with 1 rows, row 0, output 3: 1, the scalar kernel has 2";
  return {speed, other};
}

TEST(KernelReport, JsonHasEveryFigureBesideItsBound) {
  const ProductOptions options = Tiny(DType::kQ41, ProductSum::kRow);
  const auto json = nlohmann::json::parse(ProductJson(options, Sample()));
  EXPECT_EQ(json["isa"], IsaName(options.isa));
  EXPECT_EQ(json["threads"], 1);
  EXPECT_EQ(json["sum"], "row");
  EXPECT_EQ(json["outputs"], 37);
  EXPECT_EQ(json["k"], 512);
  EXPECT_EQ(json["same"], false);
  const auto& type = json["types"][0];
  EXPECT_EQ(type["type"], "Q4_1");
  EXPECT_EQ(type["copies"], 3);
  EXPECT_EQ(type["probe"]["bytes_per_s"], 2e10);
  EXPECT_EQ(type["peak"]["kind"], "int8_scaled");
  EXPECT_EQ(type["peak"]["ops_per_s"], 8e11);
  const auto& run = type["runs"][0];
  EXPECT_EQ(run["rows"], 1);
  EXPECT_DOUBLE_EQ(run["of_bandwidth"], 0.5);
  EXPECT_DOUBLE_EQ(run["of_peak"], 0.05);
  EXPECT_EQ(run["same"], true);
  EXPECT_FALSE(run.contains("difference"));
  EXPECT_EQ(json["types"][1]["runs"][0]["same"], false);
  EXPECT_THAT(json["types"][1]["runs"][0]["difference"].get<std::string>(), HasSubstr("output 3"));
}

TEST(KernelReport, TextSaysWhatDiffers) {
  const ProductOptions options = Tiny(DType::kQ41, ProductSum::kRow);
  std::vector<ProductSpeed> speeds = Sample();
  const std::string text = ProductText(options, speeds);
  EXPECT_THAT(text, HasSubstr("37 outputs over 512, 1 thread, "));
  EXPECT_THAT(text, HasSubstr("50.0 % of 20.0"));
  EXPECT_THAT(text, HasSubstr("5.0 % of 800.0"));
  EXPECT_THAT(text, HasSubstr("NOT the scalar kernel's bits:\nBF16 with 1 rows, row 0, output 3"));
  speeds.pop_back();
  EXPECT_THAT(ProductText(options, speeds), HasSubstr("the scalar kernel's bits in every result"));
}

}  // namespace
}  // namespace cleave
