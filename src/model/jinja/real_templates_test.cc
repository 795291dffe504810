// Chat templates of real models, which are not part of this repository: CLEAVE_TEMPLATE_DIR names a
// folder of *.jinja files with the expected.json that tools/oracle/jinja_cases.py wrote there.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "model/jinja/test_cases.h"

namespace cleave::jinja {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(JinjaRealTemplates, EqualJinja2) {
  const char* folder = std::getenv("CLEAVE_TEMPLATE_DIR");
  if (folder == nullptr) GTEST_SKIP() << "CLEAVE_TEMPLATE_DIR names no folder of templates";
  const OracleCases oracle(std::string(folder) + "/expected.json");
  ASSERT_FALSE(oracle.cases().empty());
  size_t equal = 0;
  for (const OracleCase& one : oracle.cases()) {
    const std::string source = ReadFile(std::string(folder) + "/" + one.template_name);
    const std::string difference = Difference(one, source);
    EXPECT_EQ(difference, "") << one.label;
    equal += difference.empty() ? 1 : 0;
  }
  RecordProperty("equal", std::to_string(equal));
  std::cout << equal << " of " << oracle.cases().size() << " renders equal\n";
}

}  // namespace
}  // namespace cleave::jinja
