#include "launch/codec.h"

#include <fmt/format.h>

namespace cleave {

std::span<const std::byte> ByteReader::Take(size_t size) {
  if (failed_ || size > bytes_.size() - at_) {
    failed_ = true;
    return {};
  }
  const std::span<const std::byte> taken = bytes_.subspan(at_, size);
  at_ += size;
  return taken;
}

uint32_t ByteReader::GetCount(size_t min_bytes) {
  const auto count = Get<uint32_t>();
  if (failed_ || count > (bytes_.size() - at_) / min_bytes) {
    failed_ = true;
    return 0;
  }
  return count;
}

std::string ByteReader::GetString() {
  const std::span<const std::byte> from = Take(GetCount(1));
  return {reinterpret_cast<const char*>(from.data()), from.size()};
}

Status ByteReader::Finish(std::string_view what) const {
  if (failed_) {
    return DataLoss(fmt::format("{}: damaged near byte {} of {}", what, at_, bytes_.size()));
  }
  if (at_ != bytes_.size()) {
    return DataLoss(
        fmt::format("{}: {} of {} bytes mean nothing", what, bytes_.size() - at_, bytes_.size()));
  }
  return OkStatus();
}

}  // namespace cleave
