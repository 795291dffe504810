#pragma once
// For tests: model files built byte by byte, and folders that vanish at the end of a test.

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/format/gguf.h"

namespace cleave::testing_files {

// Little endian, as the machine is.
template <typename T>
std::string Raw(T value) {
  std::string out(sizeof(T), '\0');
  std::memcpy(out.data(), &value, sizeof(T));
  return out;
}

inline std::string RawString(std::string_view text) {
  return Raw<uint64_t>(text.size()) + std::string(text);
}

inline std::span<const std::byte> AsBytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

struct GgufTensorSpec {
  std::string name;
  std::vector<uint64_t> extents;  // innermost first
  uint32_t type = 0;              // F32
  uint64_t bytes = 0;
};

// A GGUF file in the making. Members are open: a test damages what it wants to.
struct GgufWriter {
  uint32_t version = 3;
  uint64_t alignment = 32;
  std::vector<std::string> metadata;  // encoded entries
  std::vector<std::string> tensors;   // encoded descriptions
  std::string data;

  GgufWriter& Entry(std::string_view key, GgufType type, const std::string& value) {
    metadata.push_back(RawString(key) + Raw(type) + value);
    return *this;
  }
  GgufWriter& Uint(std::string_view key, uint32_t value) {
    return Entry(key, GgufType::kUint32, Raw(value));
  }
  GgufWriter& Float(std::string_view key, float value) {
    return Entry(key, GgufType::kFloat32, Raw(value));
  }
  GgufWriter& Bool(std::string_view key, bool value) {
    return Entry(key, GgufType::kBool, Raw<uint8_t>(value ? 1 : 0));
  }
  GgufWriter& String(std::string_view key, std::string_view value) {
    return Entry(key, GgufType::kString, RawString(value));
  }
  GgufWriter& Strings(std::string_view key, const std::vector<std::string>& values) {
    std::string body;
    for (const std::string& value : values) body += RawString(value);
    return Array(key, GgufType::kString, values.size(), body);
  }
  GgufWriter& Array(std::string_view key, GgufType type, uint64_t count, const std::string& body) {
    return Entry(key, GgufType::kArray, Raw(type) + Raw(count) + body);
  }
  GgufWriter& Tensor(const GgufTensorSpec& spec) {
    data.resize((data.size() + alignment - 1) / alignment * alignment, '\0');
    return TensorAt(spec, data.size());
  }
  GgufWriter& TensorAt(const GgufTensorSpec& spec, uint64_t offset) {
    std::string out = RawString(spec.name) + Raw(static_cast<uint32_t>(spec.extents.size()));
    for (const uint64_t extent : spec.extents) out += Raw(extent);
    tensors.push_back(out + Raw(spec.type) + Raw(offset));
    // Every byte tells its place, so that a test sees which tensor it got.
    for (uint64_t i = 0; i < spec.bytes; ++i) {
      data.push_back(static_cast<char>(tensors.size() + i));
    }
    return *this;
  }
  GgufWriter& F32(const std::string& name, const std::vector<uint64_t>& extents) {
    uint64_t bytes = 4;
    for (const uint64_t extent : extents) bytes *= extent;
    return Tensor({.name = name, .extents = extents, .type = 0, .bytes = bytes});
  }

  [[nodiscard]] std::string Build() const {
    std::string out =
        "GGUF" + Raw(version) + Raw<uint64_t>(tensors.size()) + Raw<uint64_t>(metadata.size());
    for (const std::string& each : metadata) out += each;
    for (const std::string& each : tensors) out += each;
    out.resize((out.size() + alignment - 1) / alignment * alignment, '\0');
    return out + data;
  }
};

struct SafeTensorSpec {
  std::string name;
  std::vector<uint64_t> shape;
  std::string dtype = "F32";
  uint64_t element_bytes = 4;
};

inline std::string BuildSafetensors(const std::string& header, const std::string& data) {
  return Raw<uint64_t>(header.size()) + header + data;
}

inline std::string BuildSafetensors(const std::vector<SafeTensorSpec>& specs) {
  nlohmann::json header = nlohmann::json::object();
  header["__metadata__"] = {{"format", "pt"}};
  std::string data;
  for (const SafeTensorSpec& spec : specs) {
    uint64_t bytes = spec.element_bytes;
    for (const uint64_t extent : spec.shape) bytes *= extent;
    header[spec.name] = {{"dtype", spec.dtype},
                         {"shape", spec.shape},
                         {"data_offsets", {data.size(), data.size() + bytes}}};
    for (uint64_t i = 0; i < bytes; ++i) data.push_back(static_cast<char>(header.size() + i));
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return BuildSafetensors(text, data);
}

class TempFolder {
 public:
  TempFolder() {
    static std::atomic<int> next{0};
    path_ = ::testing::TempDir() + "cleave_format_" + std::to_string(::getpid()) + "_" +
            std::to_string(next++);
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  // Makes the folders on the way; gives the full path.
  [[nodiscard]] std::string Write(const std::string& name, const std::string& bytes) const {
    std::string full = path_ + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(full).parent_path());
    std::ofstream(full, std::ios::binary) << bytes;
    return full;
  }

 private:
  std::string path_;
};

}  // namespace cleave::testing_files
