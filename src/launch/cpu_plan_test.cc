#include "launch/cpu_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/host.h"

namespace cleave {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAreArray;

CpuTopology Machine(const std::string& description) {
  auto topology = ReadCpuTopology(description);
  EXPECT_TRUE(topology.ok()) << topology.status().ToString();
  return *topology;
}

TEST(CpuPlan, TakesOneProcessorOfEachCore) {
  const CpuTopology machine = Machine("numa:2 core:2 pu:2");
  EXPECT_THAT(machine.nodes, ElementsAre(ElementsAre(0, 2), ElementsAre(4, 6)));
  EXPECT_EQ(machine.cores(), 4U);
}

TEST(CpuPlan, SpreadsRanksOverNodesAndKeepsNeighboursTogether) {
  const CpuTopology machine = Machine("numa:2 core:4 pu:1");
  EXPECT_THAT(PlanCpus(machine, 2, 2), ElementsAre(ElementsAre(0, 1), ElementsAre(4, 5)));
  EXPECT_THAT(PlanCpus(machine, 4, 2), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3),
                                                   ElementsAre(4, 5), ElementsAre(6, 7)));
  EXPECT_THAT(PlanCpus(machine, 3, 1), ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(4)));
}

TEST(CpuPlan, ARankStaysInANodeWhereOneHasRoom) {
  // In order, the second rank's four cores would lie on both sides of the border.
  const CpuTopology machine = Machine("numa:2 core:6 pu:1");
  EXPECT_THAT(PlanCpus(machine, 2, 4),
              ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(6, 7, 8, 9)));
  // Three such ranks fill the machine only if one straddles.
  EXPECT_THAT(PlanCpus(machine, 3, 4), ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7),
                                                   ElementsAre(8, 9, 10, 11)));
}

TEST(CpuPlan, SharesAllCoresWhenThreadsAreNotSaid) {
  const CpuTopology machine = Machine("numa:1 core:7 pu:2");
  EXPECT_THAT(PlanCpus(machine, 3, 0),
              ElementsAre(ElementsAre(0, 2), ElementsAre(4, 6), ElementsAre(8, 10)));
  EXPECT_EQ(ThreadsPerRank(7, 3), 2U);
  EXPECT_EQ(ThreadsPerRank(2, 6), 1U);
}

TEST(CpuPlan, MoreRanksThanCoresAreNotPinned) {
  const CpuTopology machine = Machine("numa:1 core:2 pu:1");
  EXPECT_THAT(PlanCpus(machine, 3, 1), ElementsAre(IsEmpty(), IsEmpty(), IsEmpty()));
  EXPECT_THAT(PlanCpus(machine, 6, 0), testing::Each(IsEmpty()));
  EXPECT_THAT(PlanCpus(machine, 1, 3), ElementsAre(IsEmpty()));
}

TEST(CpuPlan, NoCoreIsGivenTwice) {
  for (const char* description : {"numa:1 core:8 pu:2", "numa:2 core:5 pu:1",
                                  "package:2 numa:2 core:3 pu:1", "numa:3 core:1 pu:4"}) {
    const CpuTopology machine = Machine(description);
    for (uint32_t ranks = 1; ranks <= machine.cores(); ++ranks) {
      for (uint32_t threads = 0; threads * ranks <= machine.cores(); ++threads) {
        std::vector<int> given;
        for (const std::vector<int>& rank : PlanCpus(machine, ranks, threads)) {
          if (threads != 0) {
            EXPECT_EQ(rank.size(), threads);
          }
          given.insert(given.end(), rank.begin(), rank.end());
        }
        EXPECT_GE(given.size(), ranks);
        std::ranges::sort(given);
        EXPECT_EQ(std::ranges::adjacent_find(given), given.end()) << description;
      }
    }
  }
}

TEST(CpuPlan, ThisMachinesCoresAreThoseThatMayBeUsed) {
  const auto here = ReadCpuTopology();
  ASSERT_TRUE(here.ok()) << here.status().ToString();
  std::vector<int> cores;
  for (const std::vector<int>& node : here->nodes) {
    cores.insert(cores.end(), node.begin(), node.end());
  }
  EXPECT_THAT(cores, UnorderedElementsAreArray(UsableCores()));
}

TEST(CpuPlan, RefusesWhatDescribesNoMachine) {
  EXPECT_THAT(ReadCpuTopology("a big one").status().ToString(),
              HasSubstr("invalid_argument: 'a big one' describes no machine"));
}

}  // namespace
}  // namespace cleave
