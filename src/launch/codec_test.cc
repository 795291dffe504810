#include "launch/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace cleave {
namespace {

using testing::HasSubstr;

enum class Colour { kRed, kGreen, kBlue };

TEST(Codec, ReadsWhatWasWritten) {
  ByteWriter writer;
  writer.Put(uint8_t{200});
  writer.Put(int32_t{-5});
  writer.Put(std::numeric_limits<uint64_t>::max());
  writer.Put(-0.0F);
  writer.Put(1e300);
  writer.Put(true);
  writer.Put(Colour::kBlue);
  writer.Put("words, \0 too");
  writer.Put(std::vector<int32_t>{1, -2, 3});
  writer.Put(std::vector<float>{});

  ByteReader reader(writer.bytes());
  EXPECT_EQ(reader.Get<uint8_t>(), 200);
  EXPECT_EQ(reader.Get<int32_t>(), -5);
  EXPECT_EQ(reader.Get<uint64_t>(), std::numeric_limits<uint64_t>::max());
  EXPECT_TRUE(std::signbit(reader.Get<float>()));
  EXPECT_EQ(reader.Get<double>(), 1e300);
  EXPECT_TRUE(reader.Get<bool>());
  EXPECT_EQ(reader.GetEnum(Colour::kBlue), Colour::kBlue);
  EXPECT_EQ(reader.GetString(), std::string("words, "));
  EXPECT_EQ(reader.GetArray<int32_t>(), (std::vector<int32_t>{1, -2, 3}));
  EXPECT_TRUE(reader.GetArray<float>().empty());
  EXPECT_TRUE(reader.Finish("x").ok());
}

TEST(Codec, AReadPastTheEndGivesZerosForGood) {
  ByteWriter writer;
  writer.Put(uint32_t{7});
  ByteReader reader(writer.bytes());
  EXPECT_EQ(reader.Get<uint64_t>(), 0U);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.Get<uint8_t>(), 0U);
  EXPECT_EQ(reader.GetString(), "");
  EXPECT_EQ(reader.left(), 0U);
  EXPECT_THAT(reader.Finish("a letter").ToString(), HasSubstr("data_loss: a letter: damaged"));
}

TEST(Codec, ACountThatCanNotBeAllocatesNothing) {
  ByteWriter writer;
  writer.Put(uint32_t{0xffffffff});
  writer.Put(uint64_t{0});
  {
    ByteReader reader(writer.bytes());
    EXPECT_TRUE(reader.GetArray<uint64_t>().empty());
    EXPECT_FALSE(reader.ok());
  }
  ByteReader reader(writer.bytes());
  EXPECT_EQ(reader.GetCount(1), 0U);
  EXPECT_FALSE(reader.ok());
}

TEST(Codec, RefusesValuesOutOfRangeAndBytesLeftOver) {
  const std::vector<std::byte> three = {std::byte{3}};
  ByteReader colour(three);
  EXPECT_EQ(colour.GetEnum(Colour::kBlue), Colour::kRed);
  EXPECT_FALSE(colour.ok());
  ByteReader boolean(three);
  EXPECT_FALSE(boolean.Get<bool>());
  EXPECT_FALSE(boolean.ok());
  ByteReader unread(three);
  EXPECT_THAT(unread.Finish("x").message(), HasSubstr("1 of 1 bytes mean nothing"));
}

TEST(Codec, TruncateTakesBackAndPatchOverwrites) {
  ByteWriter writer;
  writer.Put(uint32_t{1});
  const size_t at = writer.size();
  writer.Put(uint32_t{2});
  writer.Patch(0, uint32_t{9});
  writer.Truncate(at);
  ByteReader reader(writer.bytes());
  EXPECT_EQ(reader.Get<uint32_t>(), 9U);
  EXPECT_TRUE(reader.Finish("x").ok());
  writer.PutCount(size_t{1} << 33U);
  EXPECT_TRUE(writer.overflowed());
}

}  // namespace
}  // namespace cleave
