#include "model/tokenizer/unicode_class.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>

#include <algorithm>

#include "model/tokenizer/utf8.h"

namespace cleave::tok {
namespace {

const icu::Normalizer2* InstanceOf(NormalForm form, UErrorCode* error) {
  switch (form) {
    case NormalForm::kNfc:
      return icu::Normalizer2::getNFCInstance(*error);
    case NormalForm::kNfd:
      return icu::Normalizer2::getNFDInstance(*error);
    case NormalForm::kNfkc:
      return icu::Normalizer2::getNFKCInstance(*error);
    case NormalForm::kNfkd:
      break;
  }
  return icu::Normalizer2::getNFKDInstance(*error);
}

// The reference library normalizes by Unicode 9: later characters stay as they are.
icu::UnicodeSet MakeNormalizedSet() {
  UErrorCode error = U_ZERO_ERROR;
  icu::UnicodeSet set(u"[:age=9.0:]", error);
  if (U_FAILURE(error) != 0) set.set(0, 0x10FFFF);
  set.freeze();
  return set;
}

// Lower case of capitals that came after ICU 72's Unicode 15.
struct NewerCapital {
  uint32_t first;
  uint32_t last;
  uint32_t lower;  // of the first
};
constexpr NewerCapital kNewerCapitals[] = {
    {0x1C89, 0x1C89, 0x1C8A},   {0xA7CB, 0xA7CB, 0x0264}, {0xA7CC, 0xA7CC, 0xA7CD},
    {0xA7CE, 0xA7CE, 0xA7CF},   {0xA7D2, 0xA7D2, 0xA7D3}, {0xA7D4, 0xA7D4, 0xA7D5},
    {0xA7DA, 0xA7DA, 0xA7DB},   {0xA7DC, 0xA7DC, 0x019B}, {0x10D50, 0x10D65, 0x10D70},
    {0x16EA0, 0x16EB8, 0x16EBB}};

uint32_t LowerOf(uint32_t cp) {
  if (cp < 0x80) return cp >= 'A' && cp <= 'Z' ? cp + 0x20 : cp;
  for (const NewerCapital& capital : kNewerCapitals) {
    if (cp >= capital.first && cp <= capital.last) return capital.lower + (cp - capital.first);
  }
  return static_cast<uint32_t>(u_tolower(static_cast<UChar32>(cp)));
}

}  // namespace

bool IsWhiteSpace(uint32_t cp) {
  if (cp < 0x80) return cp == ' ' || (cp >= '\t' && cp <= '\r');
  return u_hasBinaryProperty(static_cast<UChar32>(cp), UCHAR_WHITE_SPACE) != 0;
}

bool IsWordChar(uint32_t cp) {
  const auto c = static_cast<UChar32>(cp);
  if (u_hasBinaryProperty(c, UCHAR_ALPHABETIC) != 0) return true;
  if (u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL) != 0) return true;
  constexpr uint32_t kMasks = U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;
  return (U_GET_GC_MASK(c) & kMasks) != 0;
}

size_t LeadingBlanks(std::string_view text) {
  size_t blanks = 0;
  size_t pos = 0;
  while (pos < text.size() && IsWhiteSpace(NextCodePoint(text, &pos))) blanks = pos;
  return blanks;
}

uint32_t CodePointBefore(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80) --begin;
  return NextCodePoint(text, &begin);
}

size_t TrailingBlanks(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const uint32_t cp = CodePointBefore(text, end);
    if (!IsWhiteSpace(cp)) break;
    std::string encoded;
    AppendCodePoint(cp, &encoded);
    end -= encoded.size();
  }
  return text.size() - end;
}

std::string Normalize(NormalForm form, std::string_view text) {
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (std::all_of(text.begin(), text.end(), is_ascii)) return std::string(text);
  static const icu::UnicodeSet normalized = MakeNormalizedSet();
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* full = InstanceOf(form, &error);
  std::string out;
  if (U_FAILURE(error) == 0) {
    const icu::FilteredNormalizer2 normalizer(*full, normalized);
    icu::StringByteSink<std::string> sink(&out, static_cast<int32_t>(text.size()));
    normalizer.normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<int32_t>(text.size())),
                             sink, nullptr, error);
  }
  return U_FAILURE(error) != 0 ? std::string(text) : out;
}

std::string LowerCase(std::string_view text) {
  constexpr uint32_t kCapitalIWithDot = 0x130;  // the only character with a longer lower case
  std::string out;
  out.reserve(text.size());
  size_t pos = 0;
  while (pos < text.size()) {
    const uint32_t cp = NextCodePoint(text, &pos);
    if (cp == kCapitalIWithDot) {
      out.append("i\xCC\x87");
    } else {
      AppendCodePoint(LowerOf(cp), &out);
    }
  }
  return out;
}

}  // namespace cleave::tok
