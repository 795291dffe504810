#pragma once
// GGUF v2 and v3, little endian: one file of metadata, tensor descriptions and tensor data.
//
//   0   "GGUF", u32 version, u64 tensor count, u64 metadata count
//   24  metadata: string key, u32 type, value; a string is u64 length and bytes; an array is u32
//       element type, u64 count, elements
//   …   tensors: string name, u32 dimensions, u64 extents (innermost first), u32 type, u64 offset
//   …   padding to general.alignment (32 unless said), then the data the offsets count from
//
// Everything is checked before it is used: counts and lengths against the bytes that are left,
// types, extents, sizes and ranges against the file. The result holds views into `bytes`; whoever
// mapped the file keeps it. Parsing reads the metadata only, never tensor data. Pure; any thread.
// Fails: kDataLoss (damaged or cut short), kUnsupported (version, byte order, tensor type, split).

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/view.h"

namespace cleave {

// As the file numbers them.
enum class GgufType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

struct GgufValue {
  GgufType type = GgufType::kUint8;     // of the value, or of an array's elements
  std::optional<uint64_t> array_count;  // set: an array
  std::span<const std::byte> bytes;     // strings: each with its length before it
};

struct GgufContents {
  uint32_t version = 0;
  std::map<std::string_view, GgufValue> metadata;
  std::map<std::string_view, TensorView> tensors;
  uint64_t tensor_bytes = 0;  // of all tensors together
};

// Whether the bytes start as a GGUF file does.
bool LooksLikeGguf(std::span<const std::byte> bytes);

Result<GgufContents> ParseGguf(std::span<const std::byte> bytes);

// Typed reading of metadata. The first error is kept and later reads give defaults, so that a
// reader is a list of fields with one check at its end.
class GgufFields {
 public:
  explicit GgufFields(const GgufContents& contents) : contents_(contents) {}

  // Nothing when the key is not there.
  std::optional<int64_t> Int(std::string_view key);
  std::optional<double> Number(std::string_view key);  // of any integer or float type
  std::optional<bool> Bool(std::string_view key);
  std::optional<std::string> String(std::string_view key);
  std::vector<std::string> Strings(std::string_view key);
  std::vector<float> Floats(std::string_view key);
  std::vector<int32_t> Ints(std::string_view key);  // booleans count as 0 and 1

  // Absent or outside 32 bits is an error.
  uint32_t RequiredUint(std::string_view key);
  double RequiredNumber(std::string_view key);

  [[nodiscard]] const Status& status() const { return status_; }

 private:
  const GgufValue* Find(std::string_view key, bool (*accepts)(GgufType), std::string_view wanted);
  const GgufValue* FindArray(std::string_view key, bool (*accepts)(GgufType),
                             std::string_view wanted);
  void Fail(Status status);

  const GgufContents& contents_;
  Status status_;
};

}  // namespace cleave
