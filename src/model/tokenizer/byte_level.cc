#include "model/tokenizer/byte_level.h"

#include "model/tokenizer/utf8.h"

namespace cleave::tok {
namespace {

constexpr uint32_t kEndOfMap = 0x100 + 68;

constexpr std::array<int16_t, kEndOfMap> MakeCharBytes() {
  std::array<int16_t, kEndOfMap> map{};
  for (auto& byte : map) byte = -1;
  for (unsigned b = 0; b < 256; ++b) map[kByteToChar[b]] = static_cast<int16_t>(b);
  return map;
}
constexpr std::array<int16_t, kEndOfMap> kCharBytes = MakeCharBytes();

}  // namespace

void AppendByteChars(std::string_view bytes, std::string* out) {
  for (const char c : bytes) AppendCodePoint(kByteToChar[static_cast<unsigned char>(c)], out);
}

std::optional<std::string> BytesOfByteChars(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  size_t pos = 0;
  while (pos < text.size()) {
    if (ScanUnit(text.substr(pos)).kind != UnitKind::kCharacter) return std::nullopt;
    const uint32_t cp = NextCodePoint(text, &pos);
    if (cp >= kEndOfMap || kCharBytes[cp] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kCharBytes[cp]));
  }
  return bytes;
}

}  // namespace cleave::tok
