#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/bounded_queue.h"
#include "base/checked.h"
#include "base/mapped_file.h"
#include "base/rng.h"
#include "base/status.h"
#include "base/text_table.h"

namespace cleave {
namespace {

Result<int> Half(int v) {
  if (v % 2 != 0) return InvalidArgument("odd");
  return v / 2;
}

Result<int> Quarter(int v) {
  ASSIGN_OR_RETURN(int half, Half(v));
  return Half(half);
}

TEST(Status, CarriesCodeAndMessage) {
  EXPECT_TRUE(OkStatus().ok());
  EXPECT_EQ(OkStatus().ToString(), "ok");
  const Status s = DataLoss("file ends early").Annotate("model.gguf");
  EXPECT_EQ(s.ToString(), "data_loss: model.gguf: file ends early");
  EXPECT_EQ(Quarter(8).value(), 2);
  EXPECT_EQ(Quarter(6).status().message(), "odd");
}

TEST(MappedFile, ReadsWholeFileAndNamesWhatIsMissing) {
  const std::string path = testing::TempDir() + "/mapped_file_test";
  std::ofstream(path) << "hello";
  auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->bytes().size(), 5U);
  EXPECT_EQ(static_cast<char>(file->bytes()[4]), 'o');
  MappedFile moved = std::move(*file);
  EXPECT_EQ(moved.bytes().size(), 5U);
  std::ofstream(path, std::ios::trunc).flush();
  EXPECT_EQ(MappedFile::Open(path)->bytes().size(), 0U);
  ::unlink(path.c_str());
  EXPECT_EQ(MappedFile::Open(path).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(MappedFile::Open("/").status().code(), StatusCode::kInvalidArgument);
  // Nobody writes into it.
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::Open(path).status().message(), path + ": not a regular file");
  ::unlink(path.c_str());
}

TEST(Checked, SaysWhenANumberWouldNotFit) {
  EXPECT_EQ(CheckedMul(3, 4), 12U);
  EXPECT_FALSE(CheckedMul(1ULL << 40U, 1ULL << 40U).has_value());
  EXPECT_FALSE(CheckedAdd(~0ULL, 1).has_value());
  EXPECT_EQ(CeilDiv(33, 16), 3);
  EXPECT_EQ(RoundUp(33, 16), 48);
}

TEST(TextTable, AlignsRight) {
  EXPECT_EQ(TextTable({{"op", "bytes"}, {"send", "7"}, {"", "123456"}}),
            "  op   bytes\nsend       7\n      123456\n");
  EXPECT_EQ(TextTable({}), "");
}

TEST(Rng, IsAPureFunctionOfItsKey) {
  const RngKey key{.seed = 7, .prompt_index = 1, .choice_index = 2, .position = 3};
  EXPECT_EQ(RandomBits(key), RandomBits(key));
  RngKey other = key;
  other.position = 4;
  EXPECT_NE(RandomBits(key), RandomBits(other));
  other = key;
  std::swap(other.prompt_index, other.choice_index);
  EXPECT_NE(RandomBits(key), RandomBits(other));
  RngStream stream(1);
  double sum = 0;
  for (int i = 0; i < 1000; ++i) sum += stream.Uniform();
  EXPECT_NEAR(sum / 1000, 0.5, 0.05);
  for (int i = 0; i < 1000; ++i) EXPECT_LT(stream.Below(7), 7U);
}

TEST(BoundedQueue, RefusesWhenFullAndDrainsAfterClose) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.Push(1));
  EXPECT_TRUE(queue.Push(2));
  EXPECT_FALSE(queue.Push(3));
  EXPECT_EQ(queue.Pop(SteadyClock::now()), 1);
  queue.Close();
  EXPECT_FALSE(queue.Push(4));
  EXPECT_EQ(queue.TryPop(), 2);
  EXPECT_EQ(queue.Pop(SteadyClock::now() + std::chrono::seconds(10)), std::nullopt);
}

}  // namespace
}  // namespace cleave
