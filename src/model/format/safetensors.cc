#include "model/format/safetensors.h"

#include <fmt/format.h>

#include <optional>

#include "base/checked.h"
#include "model/format/byte_reader.h"
#include "model/format/json_file.h"

namespace cleave {
namespace {

// Real headers stay under 1 MB; the parsed form takes a multiple of the text.
constexpr uint64_t kMaxHeaderBytes = 16U << 20U;
constexpr size_t kMaxDims = 8;
constexpr size_t kMaxNameBytes = 1024;
constexpr size_t kMaxDTypeBytes = 32;

std::optional<DType> DTypeOfSafetensors(std::string_view name) {
  if (name == "F32") return DType::kF32;
  if (name == "F16") return DType::kF16;
  if (name == "BF16") return DType::kBF16;
  return std::nullopt;
}

std::optional<uint64_t> WholeNumber(const Json& json) {
  if (!json.is_number_unsigned()) return std::nullopt;
  return json.get<uint64_t>();
}

// A list of `size` whole numbers, at most kMaxDims when size is not given.
std::optional<std::vector<uint64_t>> WholeNumbers(const Json& entry, const char* key,
                                                  std::optional<size_t> size) {
  const auto it = entry.find(key);
  if (it == entry.end() || !it->is_array() || it->size() > kMaxDims) return std::nullopt;
  if (size.has_value() && it->size() != *size) return std::nullopt;
  std::vector<uint64_t> out;
  for (const Json& each : *it) {
    const auto value = WholeNumber(each);
    if (!value.has_value()) return std::nullopt;
    out.push_back(*value);
  }
  return out;
}

Status CheckSize(const SafeTensor& tensor, uint64_t size) {
  std::optional<uint64_t> bytes = InfoOf(tensor.view.dtype).block_bytes;
  for (const uint64_t extent : tensor.view.shape) {
    if (bytes.has_value()) bytes = CheckedMul(*bytes, extent);
  }
  if (!bytes.has_value()) return DataLoss("its shape multiplies to more than 2^64");
  if (*bytes == size) return OkStatus();
  return DataLoss(fmt::format("its offsets hold {} bytes, but its shape needs {}", size, *bytes));
}

Result<SafeTensor> ReadEntry(const Json& entry, std::span<const std::byte> bytes,
                             uint64_t data_start) {
  if (!entry.is_object()) return DataLoss("not described by an object");
  const auto dtype = entry.find("dtype");
  const auto shape = WholeNumbers(entry, "shape", std::nullopt);
  const auto offsets = WholeNumbers(entry, "data_offsets", 2);
  if (dtype == entry.end() || !dtype->is_string() ||
      dtype->get_ref<const std::string&>().size() > kMaxDTypeBytes) {
    return DataLoss("dtype is not the name of a type");
  }
  if (!shape.has_value()) {
    return DataLoss(fmt::format("shape is not a list of at most {} whole numbers", kMaxDims));
  }
  if (!offsets.has_value()) return DataLoss("data_offsets is not two whole numbers");
  const uint64_t begin = offsets->front();
  const uint64_t end = offsets->back();
  if (begin > end) return DataLoss(fmt::format("data_offsets [{}, {}] run backwards", begin, end));
  if (end > bytes.size() - data_start) {
    return DataLoss(fmt::format(
        "file is {} bytes, but this tensor ends at byte {}; fetch it again", bytes.size(),
        CheckedAdd(data_start, end).has_value() ? fmt::to_string(data_start + end) : "2^64"));
  }
  SafeTensor tensor;
  tensor.dtype_name = dtype->get<std::string>();
  tensor.view.data = bytes.data() + data_start + begin;
  tensor.view.shape = *shape;
  const auto known = DTypeOfSafetensors(tensor.dtype_name);
  if (!known.has_value()) return tensor;
  tensor.supported = true;
  tensor.view.dtype = *known;
  RETURN_IF_ERROR(CheckSize(tensor, end - begin));
  if ((data_start + begin) % InfoOf(*known).block_bytes != 0) {
    return Unsupported(fmt::format(
        "its data begins at byte {}, not a multiple of {}; save the file again with safetensors "
        "0.3 or later",
        data_start + begin, InfoOf(*known).block_bytes));
  }
  return tensor;
}

}  // namespace

Result<SafeTensors> ParseSafetensors(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  uint64_t header_bytes = 0;
  if (!reader.Read(&header_bytes)) {
    return DataLoss(
        fmt::format("file is {} bytes; a safetensors file has at least 8", bytes.size()));
  }
  if (header_bytes > kMaxHeaderBytes) {
    return DataLoss(
        fmt::format("header of {} bytes; at most {} are read", header_bytes, kMaxHeaderBytes));
  }
  std::span<const std::byte> header;
  if (!reader.Take(header_bytes, &header)) {
    return DataLoss(fmt::format("file is {} bytes, but its header needs {}; fetch it again",
                                bytes.size(), header_bytes + 8));
  }
  const std::string_view text(reinterpret_cast<const char*>(header.data()), header.size());
  ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, "header", DuplicateKeys::kRefused));
  SafeTensors tensors;
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") continue;
    if (name.size() > kMaxNameBytes) {
      return DataLoss(fmt::format("a tensor's name has {} bytes; at most {} are read", name.size(),
                                  kMaxNameBytes));
    }
    auto tensor = ReadEntry(entry, bytes, reader.position());
    if (!tensor.ok()) return tensor.status().Annotate("tensor " + name);
    tensors.emplace(name, *std::move(tensor));
  }
  return tensors;
}

Result<TensorView> SupportedView(const std::string& name, const SafeTensor& tensor) {
  if (tensor.supported) return tensor.view;
  return Unsupported(
      fmt::format("tensor {} is stored as {}, which is not supported; supported are F32, F16, BF16",
                  name, tensor.dtype_name));
}

}  // namespace cleave
