#include <fmt/format.h>

#include <limits>

#include "model/format/byte_reader.h"
#include "model/format/gguf.h"

namespace cleave {
namespace {

bool IsInteger(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kUint16:
    case GgufType::kInt16:
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kUint64:
    case GgufType::kInt64:
      return true;
    default:
      return false;
  }
}

bool IsFloat(GgufType type) { return type == GgufType::kFloat32 || type == GgufType::kFloat64; }
bool IsNumber(GgufType type) { return IsInteger(type) || IsFloat(type); }
bool IsBool(GgufType type) { return type == GgufType::kBool; }
bool IsIntegerOrBool(GgufType type) { return IsInteger(type) || IsBool(type); }
bool IsString(GgufType type) { return type == GgufType::kString; }

std::string_view TypeName(const GgufValue& value) {
  if (value.array_count.has_value()) return "an array";
  if (IsString(value.type)) return "a string";
  if (IsBool(value.type)) return "a boolean";
  return IsInteger(value.type) ? "an integer" : "a float";
}

template <typename T>
T Next(ByteReader* reader) {
  T value{};
  reader->Read(&value);  // the parser saw that the bytes are there
  return value;
}

// Nothing when a 64-bit unsigned value does not fit.
std::optional<int64_t> NextInt(ByteReader* reader, GgufType type) {
  switch (type) {
    case GgufType::kUint8:
      return Next<uint8_t>(reader);
    case GgufType::kBool:
      return Next<uint8_t>(reader) != 0 ? 1 : 0;
    case GgufType::kInt8:
      return Next<int8_t>(reader);
    case GgufType::kUint16:
      return Next<uint16_t>(reader);
    case GgufType::kInt16:
      return Next<int16_t>(reader);
    case GgufType::kUint32:
      return Next<uint32_t>(reader);
    case GgufType::kInt32:
      return Next<int32_t>(reader);
    case GgufType::kInt64:
      return Next<int64_t>(reader);
    default:
      break;
  }
  const auto value = Next<uint64_t>(reader);
  if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return static_cast<int64_t>(value);
}

// Nothing as above.
std::optional<double> NextNumber(ByteReader* reader, GgufType type) {
  if (type == GgufType::kFloat32) return Next<float>(reader);
  if (type == GgufType::kFloat64) return Next<double>(reader);
  const auto value = NextInt(reader, type);
  if (!value.has_value()) return std::nullopt;
  return static_cast<double>(*value);
}

Status TooLarge(std::string_view key) {
  return DataLoss(fmt::format("metadata key {} does not fit 63 bits", key));
}

}  // namespace

void GgufFields::Fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

const GgufValue* GgufFields::Find(std::string_view key, bool (*accepts)(GgufType),
                                  std::string_view wanted) {
  const auto it = contents_.metadata.find(key);
  if (it == contents_.metadata.end()) return nullptr;
  if (!it->second.array_count.has_value() && accepts(it->second.type)) return &it->second;
  Fail(DataLoss(
      fmt::format("metadata key {} is {}; {} is wanted", key, TypeName(it->second), wanted)));
  return nullptr;
}

const GgufValue* GgufFields::FindArray(std::string_view key, bool (*accepts)(GgufType),
                                       std::string_view wanted) {
  const auto it = contents_.metadata.find(key);
  if (it == contents_.metadata.end()) return nullptr;
  if (it->second.array_count.has_value() && accepts(it->second.type)) return &it->second;
  Fail(DataLoss(fmt::format("metadata key {} is not an array of {}", key, wanted)));
  return nullptr;
}

std::optional<int64_t> GgufFields::Int(std::string_view key) {
  const GgufValue* found = Find(key, IsInteger, "an integer");
  if (found == nullptr) return std::nullopt;
  ByteReader reader(found->bytes);
  const auto value = NextInt(&reader, found->type);
  if (!value.has_value()) Fail(TooLarge(key));
  return value;
}

std::optional<double> GgufFields::Number(std::string_view key) {
  const GgufValue* found = Find(key, IsNumber, "a number");
  if (found == nullptr) return std::nullopt;
  ByteReader reader(found->bytes);
  const auto value = NextNumber(&reader, found->type);
  if (!value.has_value()) Fail(TooLarge(key));
  return value;
}

std::optional<bool> GgufFields::Bool(std::string_view key) {
  const GgufValue* found = Find(key, IsBool, "a boolean");
  if (found == nullptr) return std::nullopt;
  ByteReader reader(found->bytes);
  return Next<uint8_t>(&reader) != 0;
}

std::optional<std::string> GgufFields::String(std::string_view key) {
  const GgufValue* found = Find(key, IsString, "a string");
  if (found == nullptr) return std::nullopt;
  ByteReader reader(found->bytes);
  std::string_view text;
  reader.ReadString(&text);
  return std::string(text);
}

std::vector<std::string> GgufFields::Strings(std::string_view key) {
  std::vector<std::string> out;
  const GgufValue* found = FindArray(key, IsString, "strings");
  if (found == nullptr) return out;
  // Each string took at least 8 bytes of the file, so the count is bounded by its size.
  out.reserve(*found->array_count);
  ByteReader reader(found->bytes);
  for (std::string_view text; reader.ReadString(&text);) out.emplace_back(text);
  return out;
}

std::vector<float> GgufFields::Floats(std::string_view key) {
  std::vector<float> out;
  const GgufValue* found = FindArray(key, IsNumber, "numbers");
  if (found == nullptr) return out;
  out.reserve(*found->array_count);
  ByteReader reader(found->bytes);
  while (reader.left() > 0) {
    out.push_back(static_cast<float>(NextNumber(&reader, found->type).value_or(0)));
  }
  return out;
}

std::vector<int32_t> GgufFields::Ints(std::string_view key) {
  std::vector<int32_t> out;
  const GgufValue* found = FindArray(key, IsIntegerOrBool, "integers");
  if (found == nullptr) return out;
  out.reserve(*found->array_count);
  ByteReader reader(found->bytes);
  while (reader.left() > 0) {
    const auto value = NextInt(&reader, found->type);
    if (!value.has_value() || *value < std::numeric_limits<int32_t>::min() ||
        *value > std::numeric_limits<int32_t>::max()) {
      Fail(DataLoss(fmt::format("metadata key {} holds a value beyond 32 bits", key)));
      return {};
    }
    out.push_back(static_cast<int32_t>(*value));
  }
  return out;
}

uint32_t GgufFields::RequiredUint(std::string_view key) {
  const auto value = Int(key);
  if (!value.has_value()) {
    Fail(DataLoss(fmt::format("metadata key {} is missing", key)));
    return 0;
  }
  if (*value < 0 || *value > std::numeric_limits<uint32_t>::max()) {
    Fail(DataLoss(fmt::format("metadata key {} is {}; 0 to {} is wanted", key, *value,
                              std::numeric_limits<uint32_t>::max())));
    return 0;
  }
  return static_cast<uint32_t>(*value);
}

double GgufFields::RequiredNumber(std::string_view key) {
  const auto value = Number(key);
  if (!value.has_value()) Fail(DataLoss(fmt::format("metadata key {} is missing", key)));
  return value.value_or(0);
}

}  // namespace cleave
