#pragma once
// JSON from untrusted files: bounded in size and depth, and read field by field with errors that
// name the file and the key. Only the format readers include this.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cleave {

using Json = nlohmann::json;

enum class DuplicateKeys { kLastWins, kRefused };

// `what` names the text in errors ("config.json"). Refuses text that is not one JSON object, is
// damaged (kDataLoss, with the byte), or nests deeper than 32.
Result<Json> ParseJsonObject(std::string_view text, std::string_view what,
                             DuplicateKeys duplicates = DuplicateKeys::kLastWins);

// Typed reading of one object. A key that is absent or null counts as not there. The first error
// is kept and later reads give defaults: a reader is a list of fields with one check at its end.
class JsonFields {
 public:
  JsonFields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  [[nodiscard]] bool Has(const char* key) const;
  // nullptr when not there.
  [[nodiscard]] const Json* Find(const char* key) const;

  std::optional<uint32_t> Uint(const char* key);
  std::optional<double> Number(const char* key);
  std::optional<bool> Bool(const char* key);
  std::optional<std::string> String(const char* key);
  std::vector<std::string> Strings(const char* key);
  // An object's fields; empty ones when it is not there.
  const Json& Object(const char* key);

  uint32_t RequiredUint(const char* key);

  [[nodiscard]] const std::string& where() const { return where_; }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  void Fail(const char* key, std::string_view wanted);

  const Json& object_;
  std::string where_;
  Status status_;
};

}  // namespace cleave
