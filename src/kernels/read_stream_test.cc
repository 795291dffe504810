#include "kernels/read_stream.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/isa.h"
#include "kernels/read_stream_table.h"

namespace cleave {
namespace {

std::vector<uint64_t> Words(size_t count) {
  std::vector<uint64_t> words(count);
  for (size_t i = 0; i < count; ++i) words[i] = i * 0x9E3779B97F4A7C15U;
  return words;
}

uint64_t PlainSum(const uint64_t* words, size_t count) {
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += words[i];
  return sum;
}

TEST(SumWords, TakesEveryWordOnceWhateverTheCountAndTheAlignment) {
  const std::vector<uint64_t> words = Words(1000);
  for (const size_t begin : {0, 1, 3}) {
    for (size_t count = 0; count <= 300; ++count) {
      ASSERT_EQ(SumWords(words.data() + begin, count), PlainSum(words.data() + begin, count))
          << begin << " " << count;
    }
  }
}

TEST(SumWords, EveryInstructionSetFindsTheSame) {
  const std::vector<uint64_t> words = Words(64 * kStreamTurnWords);
  for (const size_t count : {size_t{0}, kStreamTurnWords, 32 * kStreamTurnWords}) {
    const uint64_t* second = words.data() + 32 * kStreamTurnWords;
    const uint64_t sum = PlainSum(words.data(), count) + PlainSum(second, count);
    EXPECT_EQ(SumStreamsScalar(words.data(), second, count), sum);
    if (CpuSupports(Isa::kAvx2)) {
      EXPECT_EQ(SumStreamsAvx2(words.data(), second, count), sum);
    }
    if (CpuSupports(Isa::kAvx512)) {
      EXPECT_EQ(SumStreamsAvx512(words.data(), second, count), sum);
    }
  }
}

}  // namespace
}  // namespace cleave
