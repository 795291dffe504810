#include "model/format/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/checked.h"
#include "model/format/byte_reader.h"
#include "model/format/gguf_types.h"

namespace cleave {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint64_t kMaxMetadata = 1U << 16U;
constexpr uint64_t kMaxTensors = 1U << 17U;
constexpr uint64_t kMaxKeyBytes = 65535;  // the format's own limit
constexpr uint64_t kMaxTensorNameBytes = 1024;
constexpr uint32_t kMaxDims = 4;
constexpr uint64_t kMaxAlignment = 1U << 16U;
// Smallest possible entries: what bounds the counts of a small file.
constexpr uint64_t kMinMetadataBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;

// Bytes of a scalar; 0 for strings, arrays and numbers that are no type.
uint64_t ScalarBytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return 0;
}

struct TensorInfo {
  std::string_view name;
  std::vector<uint64_t> extents;  // innermost first
  uint32_t ggml_type = 0;
  uint64_t offset = 0;  // from the start of the data
};

// One pass over one file.
class Parser {
 public:
  explicit Parser(std::span<const std::byte> bytes) : bytes_(bytes), reader_(bytes) {}

  Result<GgufContents> Parse() {
    RETURN_IF_ERROR(ReadHeader());
    for (uint64_t i = 0; i < metadata_count_; ++i) RETURN_IF_ERROR(ReadMetadata(i));
    RETURN_IF_ERROR(RefuseSplit());
    for (uint64_t i = 0; i < tensor_count_; ++i) RETURN_IF_ERROR(ReadTensorInfo(i));
    RETURN_IF_ERROR(PlaceTensors());
    return std::move(contents_);
  }

 private:
  [[nodiscard]] Status EndsInside(std::string_view what) const {
    return DataLoss(fmt::format("file is {} bytes and ends inside {} at byte {}; fetch it again",
                                bytes_.size(), what, reader_.position()));
  }

  Status ReadHeader() {
    if (!LooksLikeGguf(bytes_)) return DataLoss("not a GGUF file: it does not start with \"GGUF\"");
    std::span<const std::byte> magic;
    reader_.Take(kMagic.size(), &magic);
    uint32_t version = 0;
    if (!reader_.Read(&version)) return EndsInside("the header");
    if (version != 0 && (version & 0xffffU) == 0) {
      return Unsupported(
          "a big-endian GGUF file; little-endian ones are read: convert it with gguf-py's "
          "gguf_convert_endian");
    }
    if (version != 2 && version != 3) {
      return Unsupported(fmt::format("GGUF version {}; versions 2 and 3 are read", version));
    }
    contents_.version = version;
    if (!reader_.Read(&tensor_count_) || !reader_.Read(&metadata_count_)) {
      return EndsInside("the header");
    }
    RETURN_IF_ERROR(
        CheckCount("metadata entries", metadata_count_, kMaxMetadata, kMinMetadataBytes));
    return CheckCount("tensors", tensor_count_, kMaxTensors, kMinTensorBytes);
  }

  Status CheckCount(std::string_view what, uint64_t count, uint64_t limit, uint64_t min_bytes) {
    if (count > limit) {
      return DataLoss(
          fmt::format("header announces {} {}; at most {} are read", count, what, limit));
    }
    if (count > reader_.left() / min_bytes) {
      return DataLoss(fmt::format("header announces {} {}, more than a file of {} bytes can hold",
                                  count, what, bytes_.size()));
    }
    return OkStatus();
  }

  Status ReadMetadata(uint64_t index) {
    std::string_view key;
    const std::string what = fmt::format("metadata entry {}", index);
    if (!reader_.ReadString(&key)) return EndsInside(what);
    if (key.empty() || key.size() > kMaxKeyBytes) {
      return DataLoss(
          fmt::format("{}: key of {} bytes; 1 to {} are allowed", what, key.size(), kMaxKeyBytes));
    }
    GgufValue value;
    RETURN_IF_ERROR(ReadValue(&value).Annotate(fmt::format("metadata key {}", key)));
    if (!contents_.metadata.emplace(key, value).second) {
      return DataLoss(fmt::format("metadata key {} appears twice", key));
    }
    return OkStatus();
  }

  Status ReadValue(GgufValue* value) {
    uint32_t type = 0;
    if (!reader_.Read(&type)) return EndsInside("its type");
    uint64_t count = 1;
    if (static_cast<GgufType>(type) == GgufType::kArray) {
      if (!reader_.Read(&type) || !reader_.Read(&count)) return EndsInside("an array's header");
      if (static_cast<GgufType>(type) == GgufType::kArray) {
        return Unsupported("an array of arrays is not read");
      }
      value->array_count = count;
    }
    value->type = static_cast<GgufType>(type);
    if (value->type == GgufType::kString) return SkipStrings(count, &value->bytes);
    const uint64_t size = ScalarBytes(value->type);
    if (size == 0) return DataLoss(fmt::format("value type {} is none of the format's", type));
    const auto total = CheckedMul(count, size);
    if (!total.has_value() || !reader_.Take(*total, &value->bytes)) {
      return EndsInside(fmt::format("{} values of {} bytes", count, size));
    }
    return OkStatus();
  }

  Status SkipStrings(uint64_t count, std::span<const std::byte>* out) {
    const uint64_t start = reader_.position();
    std::string_view text;
    for (uint64_t i = 0; i < count; ++i) {
      if (!reader_.ReadString(&text)) return EndsInside(fmt::format("string {} of {}", i, count));
    }
    *out = bytes_.subspan(start, reader_.position() - start);
    return OkStatus();
  }

  Status RefuseSplit() {
    GgufFields fields(contents_);
    const auto parts = fields.Int("split.count");
    const auto part = fields.Int("split.no");
    RETURN_IF_ERROR(fields.status());
    if (!parts.has_value() || *parts <= 1) return OkStatus();
    return Unsupported(
        fmt::format("part {} of a model split into {} files; join them with "
                    "`llama-gguf-split --merge FIRST-PART OUT.gguf`",
                    part.value_or(0) + 1, *parts));
  }

  Status ReadTensorInfo(uint64_t index) {
    TensorInfo info;
    const std::string what = fmt::format("tensor description {}", index);
    if (!reader_.ReadString(&info.name)) return EndsInside(what);
    if (info.name.empty() || info.name.size() > kMaxTensorNameBytes) {
      return DataLoss(fmt::format("{}: name of {} bytes; 1 to {} are allowed", what,
                                  info.name.size(), kMaxTensorNameBytes));
    }
    uint32_t dims = 0;
    if (!reader_.Read(&dims)) return EndsInside(what);
    if (dims < 1 || dims > kMaxDims) {
      return DataLoss(fmt::format("tensor {} has {} dimensions; 1 to {} are allowed", info.name,
                                  dims, kMaxDims));
    }
    info.extents.resize(dims);
    for (uint64_t& extent : info.extents) {
      if (!reader_.Read(&extent)) return EndsInside(what);
      if (extent == 0) return DataLoss(fmt::format("tensor {} has an extent of 0", info.name));
    }
    if (!reader_.Read(&info.ggml_type) || !reader_.Read(&info.offset)) return EndsInside(what);
    if (!DTypeOfGgml(info.ggml_type).has_value()) {
      return Unsupported(
          fmt::format("tensor {} is stored as {}, which is not supported; supported are {}",
                      info.name, GgmlTypeName(info.ggml_type), SupportedGgmlTypes()));
    }
    infos_.push_back(std::move(info));
    return OkStatus();
  }

  Result<uint64_t> Alignment() {
    GgufFields fields(contents_);
    const int64_t alignment = fields.Int("general.alignment").value_or(32);
    RETURN_IF_ERROR(fields.status());
    const auto value = static_cast<uint64_t>(alignment);
    if (alignment < 8 || value > kMaxAlignment || !std::has_single_bit(value)) {
      return DataLoss(fmt::format("general.alignment is {}; it must be a power of two from 8 to {}",
                                  alignment, kMaxAlignment));
    }
    return value;
  }

  Status PlaceTensors() {
    ASSIGN_OR_RETURN(const uint64_t alignment, Alignment());
    const uint64_t data_start = RoundUp(reader_.position(), alignment);
    for (const TensorInfo& info : infos_) {
      RETURN_IF_ERROR(
          PlaceTensor(info, data_start, alignment).Annotate(fmt::format("tensor {}", info.name)));
    }
    return OkStatus();
  }

  Status PlaceTensor(const TensorInfo& info, uint64_t data_start, uint64_t alignment) {
    TensorView view;
    view.dtype = *DTypeOfGgml(info.ggml_type);
    view.shape.assign(info.extents.rbegin(), info.extents.rend());
    std::optional<uint64_t> size = RowBytes(view.dtype, info.extents[0]);
    if (!size.has_value()) {
      return DataLoss(fmt::format("rows of {} elements; {} needs multiples of {} below 2^64 bytes",
                                  info.extents[0], NameOf(view.dtype),
                                  InfoOf(view.dtype).block_elements));
    }
    // Elements are counted too: a block of 32 has fewer bytes than elements.
    std::optional<uint64_t> elements = info.extents[0];
    for (size_t i = 1; i < info.extents.size(); ++i) {
      if (size.has_value()) size = CheckedMul(*size, info.extents[i]);
      if (elements.has_value()) elements = CheckedMul(*elements, info.extents[i]);
    }
    if (!size.has_value() || !elements.has_value()) {
      return DataLoss("its extents multiply to more than 2^64");
    }
    if (info.offset % alignment != 0) {
      return DataLoss(
          fmt::format("offset {} is not a multiple of the alignment, {}", info.offset, alignment));
    }
    const auto start = CheckedAdd(data_start, info.offset);
    const auto end = start.has_value() ? CheckedAdd(*start, *size) : std::nullopt;
    if (!end.has_value() || *end > bytes_.size()) {
      return DataLoss(fmt::format(
          "file is {} bytes, but this tensor's {} bytes end at byte {}; fetch it again",
          bytes_.size(), *size, end.has_value() ? fmt::to_string(*end) : "2^64 or later"));
    }
    view.data = bytes_.data() + *start;
    contents_.tensor_bytes += *size;
    if (!contents_.tensors.emplace(info.name, std::move(view)).second) {
      return DataLoss("appears twice");
    }
    return OkStatus();
  }

  const std::span<const std::byte> bytes_;
  ByteReader reader_;
  uint64_t tensor_count_ = 0;
  uint64_t metadata_count_ = 0;
  std::vector<TensorInfo> infos_;
  GgufContents contents_;
};

}  // namespace

bool LooksLikeGguf(std::span<const std::byte> bytes) {
  return bytes.size() >= kMagic.size() &&
         std::equal(kMagic.begin(), kMagic.end(), bytes.begin(),
                    [](char a, std::byte b) { return static_cast<std::byte>(a) == b; });
}

Result<GgufContents> ParseGguf(std::span<const std::byte> bytes) { return Parser(bytes).Parse(); }

}  // namespace cleave
