#include "cli/bench_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cleave {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<std::vector<ProductOptions>> Products(const std::vector<std::string>& args) {
  KernelFlags flags;
  OptionTable table("bench kernels", "test");
  flags.AddTo(&table);
  const auto parsed = table.Parse(args);
  if (!parsed.ok()) return parsed.status();
  return flags.Products();
}

std::vector<std::string_view> Names(const std::vector<ProductOptions>& products) {
  std::vector<std::string_view> names;
  names.reserve(products.size());
  for (const ProductOptions& options : products) names.push_back(NameOf(options.dtype));
  return names;
}

TEST(KernelFlags, WithoutFlagsAllTypesOfTheDemoModelsShape) {
  const auto products = Products({});
  ASSERT_TRUE(products.ok()) << products.status().message();
  EXPECT_THAT(Names(*products),
              ElementsAre("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"));
  const ProductOptions& first = products->front();
  EXPECT_EQ(first.outputs, 1536);
  EXPECT_EQ(first.k, 576);
  EXPECT_THAT(first.rows, ElementsAre(1, 4, 12, 32, 512));
  EXPECT_EQ(first.isa, ChooseIsa().value());
  EXPECT_EQ(first.cpus.size(), 1);
  EXPECT_EQ(first.sum, ProductSum::kColumn);
  EXPECT_EQ(first.stream_bytes, 256U << 20U);
  EXPECT_EQ(Products({"--shape", "16x512"})->size(), 11);
}

TEST(KernelFlags, SayWhatIsMeasured) {
  const auto products =
      Products({"--types", "q8_0,BF16,Q4_K", "--shape=48x256", "--rows", "7", "--isa", "scalar",
                "--sum", "row", "--bytes", "1M", "--repeats", "2"});
  ASSERT_TRUE(products.ok()) << products.status().message();
  EXPECT_THAT(Names(*products), ElementsAre("Q8_0", "BF16", "Q4_K"));
  for (const ProductOptions& options : *products) {
    EXPECT_EQ(options.outputs, 48);
    EXPECT_EQ(options.k, 256);
    EXPECT_THAT(options.rows, ElementsAre(7));
    EXPECT_EQ(options.isa, Isa::kScalar);
    EXPECT_EQ(options.sum, ProductSum::kRow);
    EXPECT_EQ(options.stream_bytes, 1U << 20U);
    EXPECT_EQ(options.repeats, 2);
  }
  EXPECT_EQ(Products({"--cached"})->front().stream_bytes, 0);
}

TEST(KernelFlags, TheOtherKernelsTakeTheSameThreadsAndBytes) {
  KernelFlags flags;
  flags.isa = "scalar";
  flags.bytes = 12345;
  flags.repeats = 3;
  auto others = flags.Others();
  ASSERT_TRUE(others.ok());
  EXPECT_EQ(others->isa, Isa::kScalar);
  EXPECT_EQ(others->cpus.size(), 1);
  EXPECT_EQ(others->stream_bytes, 12345);
  EXPECT_EQ(others->repeats, 3);
  flags.threads = 1000;
  others = flags.Others();
  ASSERT_FALSE(others.ok());
  EXPECT_THAT(others.status().message(), HasSubstr("--threads 1000"));
}

TEST(KernelFlags, WhatCanNotBeMeasuredIsRefusedByName) {
  struct Case {
    std::vector<std::string> args;
    std::vector<std::string> parts;
  };
  for (const auto& [args, parts] : {
           Case{{"--types", "Q4_1,Q9_9"}, {"--types", "'Q9_9'", "Q4_1, Q5_0"}},
           Case{{"--types", "Q4_1,"}, {"--types", "''"}},
           Case{{"--types", "Q4_K"}, {"--shape 1536x576", "Q4_K", "256"}},
           Case{{"--shape", "1536"}, {"--shape 1536"}},
           Case{{"--shape", "0x576"}, {"--shape 0x576"}},
           Case{{"--shape", "16x32x2"}, {"--shape 16x32x2"}},
           Case{{"--shape", "2000000x32"}, {"--shape 2000000x32", "1048576"}},
           Case{{"--rows", "1,0"}, {"--rows 1,0", "4096"}},
           Case{{"--rows", "4097"}, {"--rows 4097"}},
           Case{{"--threads", "1000"}, {"--threads 1000", "cores"}},
           Case{{"--isa", "sse9"}, {"--isa"}},
           Case{{"--sum", "both"}, {"--sum"}},
           Case{{"--bytes", "0"}, {"--bytes"}},
       }) {
    const auto products = Products(args);
    ASSERT_FALSE(products.ok()) << args[1];
    EXPECT_EQ(products.status().code(), StatusCode::kInvalidArgument);
    for (const std::string& part : parts) {
      EXPECT_THAT(products.status().message(), HasSubstr(part));
    }
  }
}

}  // namespace
}  // namespace cleave
