#include "model/jinja/unicode.h"

#include <unicode/uchar.h>
#include <unicode/ustring.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace cleave::jinja {
namespace {

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U; }

UChar32 Icu(char32_t c) { return static_cast<UChar32>(c); }

bool IsCased(char32_t c) { return IsUpper(c) || IsLower(c) || IsTitle(c); }

using Mapper = int32_t (*)(UChar*, int32_t, const UChar*, int32_t, UErrorCode*);

int32_t Upper(UChar* to, int32_t room, const UChar* from, int32_t size, UErrorCode* error) {
  return u_strToUpper(to, room, from, size, "", error);
}
int32_t Title(UChar* to, int32_t room, const UChar* from, int32_t size, UErrorCode* error) {
  return u_strToTitle(to, room, from, size, nullptr, "", error);
}
int32_t Fold(UChar* to, int32_t room, const UChar* from, int32_t size, UErrorCode* error) {
  return u_strFoldCase(to, room, from, size, U_FOLD_CASE_DEFAULT, error);
}

// One character's full mapping; at most three characters come out of one (Unicode SpecialCasing).
void AppendMapped(std::string& out, char32_t c, Mapper mapper) {
  std::array<UChar, 2> from{};
  std::array<UChar, 16> to{};
  int32_t from_size = 0;
  U16_APPEND_UNSAFE(from.data(), from_size, Icu(c));
  UErrorCode error = U_ZERO_ERROR;
  const int32_t size =
      mapper(to.data(), static_cast<int32_t>(to.size()), from.data(), from_size, &error);
  if (U_FAILURE(error) || size > static_cast<int32_t>(to.size())) {
    AppendUtf8(out, c);
    return;
  }
  int32_t pos = 0;
  while (pos < size) {
    UChar32 mapped = 0;
    U16_NEXT(to.data(), pos, size, mapped);
    AppendUtf8(out, static_cast<char32_t>(mapped));
  }
}

bool IsCaseIgnorable(char32_t c) { return u_hasBinaryProperty(Icu(c), UCHAR_CASE_IGNORABLE) != 0; }

// A capital sigma that ends a word becomes a final sigma (Unicode 3.13, Final_Sigma).
bool IsFinalSigma(std::string_view text, size_t pos, size_t size) {
  size_t before = pos;
  bool letter_before = false;
  while (before > 0) {
    const CodePoint c = DecodeBefore(text, before);
    before -= c.size;
    if (c.valid && IsCaseIgnorable(c.value)) continue;
    letter_before = c.valid && IsCased(c.value);
    break;
  }
  if (!letter_before) return false;
  for (size_t after = pos + size; after < text.size();) {
    const CodePoint c = DecodeAt(text, after);
    after += c.size;
    if (c.valid && IsCaseIgnorable(c.value)) continue;
    return !(c.valid && IsCased(c.value));
  }
  return true;
}

void AppendLower(std::string& out, std::string_view text, size_t pos, const CodePoint& c) {
  constexpr char32_t kCapitalSigma = 0x3a3;
  constexpr char32_t kFinalSigma = 0x3c2;
  constexpr char32_t kCapitalIWithDot = 0x130;
  if (c.value == kCapitalSigma && IsFinalSigma(text, pos, c.size)) {
    AppendUtf8(out, kFinalSigma);
  } else if (c.value == kCapitalIWithDot) {
    out += "i\xcc\x87";  // i and a combining dot above, the only lower case of two characters
  } else {
    AppendUtf8(out, static_cast<char32_t>(u_tolower(Icu(c.value))));
  }
}

// What happens to a character, given where it stands.
CaseMapping MappingAt(CaseMapping mapping, const CodePoint& c, size_t pos, bool after_cased) {
  switch (mapping) {
    case CaseMapping::kTitle:
      return after_cased ? CaseMapping::kLower : CaseMapping::kTitle;
    case CaseMapping::kCapitalize:
      return pos == 0 ? CaseMapping::kTitle : CaseMapping::kLower;
    case CaseMapping::kSwap:
      return IsUpper(c.value) ? CaseMapping::kLower : CaseMapping::kUpper;
    default:
      return mapping;
  }
}

void AppendCased(std::string& out, std::string_view text, size_t pos, const CodePoint& c,
                 CaseMapping mapping) {
  switch (mapping) {
    case CaseMapping::kLower:
      return AppendLower(out, text, pos, c);
    case CaseMapping::kTitle:
      return AppendMapped(out, c.value, Title);
    case CaseMapping::kFold:
      return AppendMapped(out, c.value, Fold);
    default:
      return AppendMapped(out, c.value, Upper);
  }
}

char AsciiCased(char c, CaseMapping mapping) {
  const bool lower = c >= 'a' && c <= 'z';
  const bool upper = c >= 'A' && c <= 'Z';
  const bool to_lower = mapping == CaseMapping::kLower || mapping == CaseMapping::kFold;
  if (upper && to_lower) return static_cast<char>(c - 'A' + 'a');
  if (lower && !to_lower) return static_cast<char>(c - 'a' + 'A');
  return c;
}

}  // namespace

CodePoint DecodeAt(std::string_view text, size_t pos) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(pos);
  if (lead < 0x80) return {lead, 1, true};
  const CodePoint bad{lead, 1, false};
  uint32_t size = 0;
  char32_t value = 0;
  char32_t least = 0;
  if (lead >= 0xc2 && lead < 0xe0) {
    size = 2, value = lead & 0x1fU, least = 0x80;
  } else if (lead >= 0xe0 && lead < 0xf0) {
    size = 3, value = lead & 0x0fU, least = 0x800;
  } else if (lead >= 0xf0 && lead < 0xf5) {
    size = 4, value = lead & 0x07U, least = 0x10000;
  } else {
    return bad;
  }
  if (text.size() - pos < size) return bad;
  for (size_t i = pos + 1; i < pos + size; ++i) {
    if (!IsContinuation(text[i])) return bad;
    value = (value << 6U) | (byte(i) & 0x3fU);
  }
  const bool surrogate = value >= 0xd800 && value < 0xe000;
  if (value < least || value > 0x10ffff || surrogate) return bad;
  return {value, size, true};
}

CodePoint DecodeBefore(std::string_view text, size_t end) {
  for (size_t size = 1; size <= std::min<size_t>(4, end); ++size) {
    if (IsContinuation(text[end - size])) continue;
    const CodePoint c = DecodeAt(text, end - size);
    if (c.valid && c.size == size) return c;
    break;
  }
  return {static_cast<unsigned char>(text[end - 1]), 1, false};
}

size_t CountCodePoints(std::string_view text) {
  size_t count = 0;
  size_t pos = 0;
  while (pos < text.size()) {
    // Most text is ASCII: eight bytes at once while no top bit is set.
    constexpr uint64_t kTopBits = 0x8080808080808080U;
    uint64_t word = 0;
    if (text.size() - pos >= sizeof(word)) {
      std::memcpy(&word, text.data() + pos, sizeof(word));
      if ((word & kTopBits) == 0) {
        pos += sizeof(word);
        count += sizeof(word);
        continue;
      }
    }
    pos += DecodeAt(text, pos).size;
    ++count;
  }
  return count;
}

void AppendUtf8(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0U | (c >> 6U));
    out += static_cast<char>(0x80U | (c & 0x3fU));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0U | (c >> 12U));
    out += static_cast<char>(0x80U | ((c >> 6U) & 0x3fU));
    out += static_cast<char>(0x80U | (c & 0x3fU));
  } else {
    out += static_cast<char>(0xf0U | (c >> 18U));
    out += static_cast<char>(0x80U | ((c >> 12U) & 0x3fU));
    out += static_cast<char>(0x80U | ((c >> 6U) & 0x3fU));
    out += static_cast<char>(0x80U | (c & 0x3fU));
  }
}

bool IsSpace(char32_t c) {
  if (c <= 0x20) return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool IsLineBreak(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool IsPrintable(char32_t c) {
  if (c < 0x7f) return c >= 0x20;
  constexpr uint32_t kHidden =
      U_GC_C_MASK | U_GC_ZL_MASK | U_GC_ZP_MASK | U_GC_ZS_MASK;  // Cc Cf Cs Co Cn Zl Zp Zs
  return (U_GET_GC_MASK(Icu(c)) & kHidden) == 0;
}

bool IsAlpha(char32_t c) { return (U_GET_GC_MASK(Icu(c)) & U_GC_L_MASK) != 0; }
bool IsDecimal(char32_t c) { return u_charType(Icu(c)) == U_DECIMAL_DIGIT_NUMBER; }
bool IsDigit(char32_t c) {
  const int32_t type = u_getIntPropertyValue(Icu(c), UCHAR_NUMERIC_TYPE);
  return type == U_NT_DECIMAL || type == U_NT_DIGIT;
}
bool IsNumeric(char32_t c) {
  return u_getIntPropertyValue(Icu(c), UCHAR_NUMERIC_TYPE) != U_NT_NONE;
}
bool IsUpper(char32_t c) { return u_hasBinaryProperty(Icu(c), UCHAR_UPPERCASE) != 0; }
bool IsLower(char32_t c) { return u_hasBinaryProperty(Icu(c), UCHAR_LOWERCASE) != 0; }
bool IsTitle(char32_t c) { return u_charType(Icu(c)) == U_TITLECASE_LETTER; }

std::string MapCase(std::string_view text, CaseMapping mapping) {
  std::string out;
  out.reserve(text.size());
  bool after_cased = false;
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = DecodeAt(text, pos);
    const CaseMapping here = MappingAt(mapping, c, pos, after_cased);
    if (c.value < 0x80) {
      out += AsciiCased(text[pos], here);
    } else if (!c.valid) {
      out += text[pos];
    } else {
      AppendCased(out, text, pos, c, here);
    }
    after_cased = c.valid && (c.value < 0x80 ? u_isalpha(Icu(c.value)) != 0 : IsCased(c.value));
    pos += c.size;
  }
  return out;
}

}  // namespace cleave::jinja
