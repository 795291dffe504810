#pragma once
// Typed reading of one YAML mapping. The first error is kept, with file, line and column, and later
// reads give defaults: a reader is a list of fields with one Finish at its end, which also refuses
// fields that nobody asked for. Pure; any thread.

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace cleave {

class YamlFields {
 public:
  // `file` and `what` ("model Llama-3.1-8B") name the mapping in errors.
  YamlFields(const YAML::Node& node, std::string file, std::string what);

  [[nodiscard]] bool Has(const char* key);
  uint32_t Uint(const char* key, uint32_t absent = 0);
  double Number(const char* key);  // finite, at least 0; 0 when it is not there
  bool Bool(const char* key);
  std::string Text(const char* key);
  std::vector<std::string> Texts(const char* key);
  // A mapping inside; an empty one when it is not there.
  YamlFields Inner(const char* key);

  void Take(const Status& status);  // of an inner mapping
  [[nodiscard]] Status Finish();

 private:
  YAML::Node Find(const char* key);
  void Fail(const YAML::Node& at, const std::string& message);

  YAML::Node node_;
  std::string file_;
  std::string what_;
  std::vector<std::string> asked_;
  Status status_;
};

}  // namespace cleave
