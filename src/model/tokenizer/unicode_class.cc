#include "model/tokenizer/unicode_class.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>
#include <unicode/uchar.h>

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
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = InstanceOf(form, &error);
  std::string out;
  if (U_FAILURE(error) == 0) {
    icu::StringByteSink<std::string> sink(&out, static_cast<int32_t>(text.size()));
    normalizer->normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<int32_t>(text.size())),
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
      AppendCodePoint(static_cast<uint32_t>(u_tolower(static_cast<UChar32>(cp))), &out);
    }
  }
  return out;
}

}  // namespace cleave::tok
