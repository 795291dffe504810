#include "comm/crossover.h"

#include <gtest/gtest.h>

#include <limits>

#include "comm/comm_test_support.h"

namespace cleave {
namespace {

using Times = std::array<uint64_t, kTrialRows.size()>;

TEST(Crossover, TheBorderThatLosesLeast) {
  const Times even = {50, 50, 50, 50};
  EXPECT_EQ(CrossoverOf(even, even), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(CrossoverOf(Times{10, 10, 90, 90}, even), TrialBytes(kTrialRows[1]));
  EXPECT_EQ(CrossoverOf(Times{90, 90, 90, 90}, even), 0U);
  // One trial that somebody disturbed does not decide.
  EXPECT_EQ(CrossoverOf(Times{70, 10, 10, 90}, even), TrialBytes(kTrialRows[2]));
  EXPECT_EQ(CrossoverOf(Times{10, 90, 40, 90}, even), 2305U);
  EXPECT_EQ(CrossoverOf(Times{0, 0, 0, 0}, Times{0, 0, 0, 0}),
            std::numeric_limits<uint64_t>::max());
}

TEST(Crossover, MembersAgreeAndTheBillStartsAtZero) {
  for (const uint32_t size : {1U, 2U, 3U}) {
    std::vector<uint64_t> found(size);
    const std::vector<Status> statuses = RunWorld(TpWorld(size), [&](World* world) -> Status {
      RETURN_IF_ERROR(world->MeasureCrossovers());
      found[world->rank()] = world->one_shot_max_bytes(Axis::kTp);
      EXPECT_EQ(MeteredOf(world->group(Axis::kTp)->stats()), std::vector<Metered>(kCommOps));
      world->SetOneShotMaxBytes(1234);
      EXPECT_EQ(world->one_shot_max_bytes(Axis::kTp), size == 1 ? 0U : 1234U);
      return OkStatus();
    });
    for (uint32_t rank = 0; rank < size; ++rank) {
      EXPECT_TRUE(statuses[rank].ok()) << statuses[rank].ToString();
      EXPECT_EQ(found[rank], found[0]);
    }
  }
}

}  // namespace
}  // namespace cleave
