#include "model/tokenizer/utf8.h"

#include <cstring>

namespace cleave::tok {
namespace {

unsigned char ByteAt(std::string_view s, size_t i) { return static_cast<unsigned char>(s[i]); }

struct SecondByteRange {
  unsigned char low;
  unsigned char high;
};

// Table 3-7 of the Unicode standard: which second bytes make a lead byte well-formed.
SecondByteRange SecondBytes(unsigned char lead) {
  switch (lead) {
    case 0xE0:
      return {0xA0, 0xBF};
    case 0xED:
      return {0x80, 0x9F};
    case 0xF0:
      return {0x90, 0xBF};
    case 0xF4:
      return {0x80, 0x8F};
    default:
      return {0x80, 0xBF};
  }
}

size_t AsciiRun(std::string_view bytes, size_t from) {
  size_t i = from;
  while (i + 8 <= bytes.size()) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    if ((word & 0x8080808080808080ULL) != 0) break;
    i += 8;
  }
  while (i < bytes.size() && ByteAt(bytes, i) < 0x80) ++i;
  return i;
}

}  // namespace

Utf8Unit ScanUnit(std::string_view bytes) {
  const unsigned char lead = ByteAt(bytes, 0);
  if (lead < 0x80) return {1, UnitKind::kCharacter};
  if (lead < 0xC2 || lead > 0xF4) return {1, UnitKind::kIllFormed};
  const size_t size = CharSize(bytes[0]);
  for (size_t i = 1; i < size; ++i) {
    if (i == bytes.size()) return {i, UnitKind::kUnfinished};
    const SecondByteRange range = i == 1 ? SecondBytes(lead) : SecondByteRange{0x80, 0xBF};
    if (ByteAt(bytes, i) < range.low || ByteAt(bytes, i) > range.high) {
      return {i, UnitKind::kIllFormed};
    }
  }
  return {size, UnitKind::kCharacter};
}

bool IsValidUtf8(std::string_view bytes) {
  size_t i = AsciiRun(bytes, 0);
  while (i < bytes.size()) {
    const Utf8Unit unit = ScanUnit(bytes.substr(i));
    if (unit.kind != UnitKind::kCharacter) return false;
    i = AsciiRun(bytes, i + unit.size);
  }
  return true;
}

void DrainLossy(std::string* pending, std::string* out) {
  const std::string_view bytes = *pending;
  size_t i = 0;
  while (i < bytes.size()) {
    const size_t run = AsciiRun(bytes, i);
    out->append(bytes, i, run - i);
    i = run;
    if (i == bytes.size()) break;
    const Utf8Unit unit = ScanUnit(bytes.substr(i));
    if (unit.kind == UnitKind::kUnfinished) break;
    out->append(unit.kind == UnitKind::kCharacter ? bytes.substr(i, unit.size) : kReplacementUtf8);
    i += unit.size;
  }
  pending->erase(0, i);
}

std::string LossyUtf8(std::string_view bytes) {
  std::string pending(bytes);
  std::string out;
  out.reserve(bytes.size());
  DrainLossy(&pending, &out);
  if (!pending.empty()) out.append(kReplacementUtf8);
  return out;
}

uint32_t NextCodePoint(std::string_view text, size_t* pos) {
  const size_t size = CharSize(text[*pos]);
  uint32_t cp = ByteAt(text, *pos);
  if (size > 1) cp &= 0x7FU >> size;
  for (size_t i = 1; i < size; ++i) cp = (cp << 6U) | (ByteAt(text, *pos + i) & 0x3FU);
  *pos += size;
  return cp;
}

void AppendCodePoint(uint32_t cp, std::string* out) {
  const auto tail = [cp](unsigned shift) {
    return static_cast<char>(0x80U | ((cp >> shift) & 0x3FU));
  };
  if (cp < 0x80) {
    out->push_back(static_cast<char>(cp));
  } else if (cp < 0x800) {
    out->append({static_cast<char>(0xC0U | (cp >> 6U)), tail(0)});
  } else if (cp < 0x10000) {
    out->append({static_cast<char>(0xE0U | (cp >> 12U)), tail(6), tail(0)});
  } else {
    out->append({static_cast<char>(0xF0U | (cp >> 18U)), tail(12), tail(6), tail(0)});
  }
}

}  // namespace cleave::tok
