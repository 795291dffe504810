#include "plan/memory_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "plan/catalogue.h"

namespace cleave {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

struct Planned {
  Catalogue catalogue = *BuiltInCatalogue();
  ClusterFacts cluster;
  MemoryReport report;

  Planned(const char* model, const char* on, const char* format)
      : cluster(*ParseCluster(catalogue, on, 1)) {
    report.model = *catalogue.FindModel(model);
    report.cluster = &cluster;
    report.settings.weights = *FindWeightFormat(format);
    report.accounts = RankByMemory(*report.model, cluster, report.settings, report.request);
  }
};

TEST(MemoryReport, JsonHasTheAccountOfEverySplit) {
  const Planned planned("Llama-3.1-70B", "4x96GB", "fp8");
  const Json json = Json::parse(ReportJson(planned.report));
  EXPECT_EQ(json["model"]["total_params_b"], 70.55);
  EXPECT_EQ(json["model"]["kv_bytes_per_token"], 327680);
  EXPECT_EQ(json["devices"], 4);
  ASSERT_EQ(json["splits"].size(), 6U);  // dp · pp · tp = 4
  const Json& best = json["splits"][0];
  EXPECT_EQ(best["tp"], 4);
  EXPECT_EQ(best["fits"], true);
  const auto bytes = [&](const char* key) { return best[key].get<double>(); };
  EXPECT_NEAR(
      bytes("weight_bytes") + bytes("kv_bytes") + bytes("runtime_bytes") + bytes("margin_bytes"),
      bytes("budget_bytes"), 2);
}

TEST(MemoryReport, TextRanksAndSaysWhatWouldFit) {
  const std::string fits = ReportText(Planned("Llama-3.1-70B", "4x96GB", "fp8").report);
  EXPECT_THAT(fits, HasSubstr("70.55 B parameters (published 70.6B)"));
  EXPECT_THAT(fits, HasSubstr("1.41 GiB for 4608 tokens"));
  EXPECT_THAT(fits, HasSubstr("KV tokens"));
  const std::string none = ReportText(Planned("Llama-3.1-405B", "4x96GB", "fp8").report);
  EXPECT_THAT(none, HasSubstr("infeasible (dp=1"));
  EXPECT_THAT(none, HasSubstr("would fit: weights as awq"));
}

TEST(MemoryReport, TextSaysWhenNothingCutsTheModel) {
  const std::string none = ReportText(Planned("Llama-3.1-8B", "1xL4", "bf16").report);
  EXPECT_THAT(none, testing::Not(HasSubstr("no dp")));
  Planned planned("Llama-3.1-8B", "1xL4", "bf16");
  planned.report.accounts.clear();
  EXPECT_THAT(ReportText(planned.report), HasSubstr("infeasible: no dp"));
}

}  // namespace
}  // namespace cleave
