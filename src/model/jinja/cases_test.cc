// Every committed case renders as Jinja2 renders it, byte for byte, or fails where Jinja2 fails.
#include <gtest/gtest.h>

#include "model/jinja/test_cases.h"

namespace cleave::jinja {
namespace {

TEST(JinjaCases, EqualJinja2) {
  const OracleCases oracle(CLEAVE_SOURCE_DIR "/src/model/jinja/testdata/cases.json");
  EXPECT_GT(oracle.cases().size(), 600U);
  for (const OracleCase& one : oracle.cases()) {
    EXPECT_EQ(Difference(one, one.template_name), "") << one.label << "\n" << one.template_name;
  }
}

}  // namespace
}  // namespace cleave::jinja
