#pragma once
// Reads the files that tools/oracle/jinja_cases.py writes, and compares renders with them.

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace cleave::jinja {

struct OracleCase {
  std::string label;          // which case it is, in words
  std::string template_name;  // a file, or the source itself
  const nlohmann::ordered_json* context = nullptr;
  bool fails = false;
  std::string text;   // what Jinja2 renders
  std::string error;  // or what it raises
};

class OracleCases {
 public:
  explicit OracleCases(const std::string& path);
  [[nodiscard]] const std::vector<OracleCase>& cases() const { return cases_; }

 private:
  std::map<std::string, nlohmann::ordered_json> contexts_;
  std::vector<OracleCase> cases_;
};

// Empty when the render of `source` is as the case says, else how it differs.
std::string Difference(const OracleCase& expected, const std::string& source);

}  // namespace cleave::jinja
