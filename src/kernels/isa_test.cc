#include "kernels/isa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

namespace cleave {
namespace {

using ::testing::HasSubstr;

// Keeps the compiler from folding the arithmetic under test.
float Opaque(float x) {
  volatile float v = x;
  return v;
}

class IsaTest : public ::testing::Test {
 protected:
  void TearDown() override { unsetenv("CLEAVE_ISA"); }
};

TEST_F(IsaTest, PicksTheBestSupportedByDefault) {
  unsetenv("CLEAVE_ISA");
  Result<Isa> isa = ChooseIsa();
  ASSERT_TRUE(isa.ok());
  EXPECT_TRUE(CpuSupports(*isa));
  EXPECT_EQ(*isa == Isa::kAmx, CpuSupports(Isa::kAmx));
  EXPECT_EQ(*isa >= Isa::kAvx512, CpuSupports(Isa::kAvx512));
}

TEST_F(IsaTest, VariableLowersIt) {
  setenv("CLEAVE_ISA", "scalar", 1);
  Result<Isa> isa = ChooseIsa();
  ASSERT_TRUE(isa.ok());
  EXPECT_EQ(*isa, Isa::kScalar);
  setenv("CLEAVE_ISA", "", 1);
  EXPECT_TRUE(ChooseIsa().ok());
}

TEST_F(IsaTest, UnknownNameIsRefusedWithTheNames) {
  setenv("CLEAVE_ISA", "sse9", 1);
  Result<Isa> isa = ChooseIsa();
  ASSERT_FALSE(isa.ok());
  EXPECT_EQ(isa.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(isa.status().message(), HasSubstr("CLEAVE_ISA=sse9 is not known"));
  EXPECT_THAT(isa.status().message(), HasSubstr("scalar, avx2, avx512 or amx"));
}

TEST_F(IsaTest, WiderSetsIncludeNarrowerOnes) {
  EXPECT_TRUE(CpuSupports(Isa::kAvx2) || !CpuSupports(Isa::kAvx512));
  EXPECT_TRUE(CpuSupports(Isa::kAvx512) || !CpuHasBf16Dot());
  EXPECT_TRUE(CpuSupports(Isa::kAvx512) || !CpuSupports(Isa::kAmx));
  EXPECT_TRUE(CpuSupports(Isa::kScalar));
}

TEST_F(IsaTest, FpModeFlushesAndRestores) {
  const float denormal = Opaque(0x1p-140F);
  EXPECT_NE(Opaque(denormal) * Opaque(1.0F), 0.0F);
  {
    ScopedFpMode mode;
    EXPECT_EQ(Opaque(denormal) * Opaque(0x1p30F), 0.0F);            // read as zero
    EXPECT_EQ(Opaque(0x1p-100F) * Opaque(0x1p-40F), 0.0F);          // written as zero
    EXPECT_EQ(Opaque(1.0F) + Opaque(0x1.8p-23F), 1.0F + 0x1p-22F);  // nearest even
  }
  EXPECT_NE(Opaque(denormal) * Opaque(1.0F), 0.0F);
}

TEST_F(IsaTest, FpModeBelongsToItsThread) {
  ScopedFpMode mode;
  float other = 0.0F;
  std::thread([&] {
    // A new thread inherits its creator's mode; an inner object must not change the creator's.
    ScopedFpMode inner;
    other = Opaque(0x1p-100F) * Opaque(0x1p-40F);
  }).join();
  EXPECT_EQ(other, 0.0F);
  EXPECT_EQ(Opaque(0x1p-100F) * Opaque(0x1p-40F), 0.0F);
}

}  // namespace
}  // namespace cleave
