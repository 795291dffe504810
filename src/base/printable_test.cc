#include "base/printable.h"

#include <gtest/gtest.h>

namespace cleave {
namespace {

TEST(Printable, LeavesTextAlone) {
  for (const char* text : {"", "llama.block_count", "é ß 中 😀 ”…", "\xC2\xA0", "\xF4\x8F\xBF\xBF",
                           "\xED\x9F\xBF", "\xEE\x80\x80"}) {
    EXPECT_EQ(Printable(text), text);
  }
}

TEST(Printable, ControlCharactersAreSpeltOut) {
  EXPECT_EQ(Printable("a\033[2Jb\r\nc\td\x7F"), "a\\x1b[2Jb\\x0d\\x0ac\\x09d\\x7f");
  EXPECT_EQ(Printable(std::string_view("k\0y", 3)), "k\\x00y");
  EXPECT_EQ(Printable("\xC2\x9B"
                      "31m"),
            "\\xc2\\x9b31m");  // the C1 form of ESC [
}

TEST(Printable, BytesThatAreNotUtf8AreSpeltOut) {
  EXPECT_EQ(Printable("\xFF\xFE"
                      "a"),
            "\\xff\\xfea");
  EXPECT_EQ(Printable("\xC0\xAF"), "\\xc0\\xaf");           // overlong
  EXPECT_EQ(Printable("\xE0\x9F\xBF"), "\\xe0\\x9f\\xbf");  // overlong
  EXPECT_EQ(Printable("\xED\xA0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(Printable("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(Printable("\xF0\x8F\xBF\xBF"), "\\xf0\\x8f\\xbf\\xbf");
  EXPECT_EQ(Printable("\xE4\xBD"), "\\xe4\\xbd");  // cut
  EXPECT_EQ(Printable("\xF0\x9F\x98"
                      "a"),
            "\\xf0\\x9f\\x98"
            "a");
}

TEST(Printable, LongTextIsCutBetweenCharacters) {
  EXPECT_EQ(Printable("abcd", 4), "abcd");
  EXPECT_EQ(Printable("abcde", 4), "abcd… (5 bytes)");
  EXPECT_EQ(Printable("abc中de", 4), "abc中… (8 bytes)");
  EXPECT_EQ(Printable(std::string(65535, '\n')).size(),
            kMaxPrintedBytes + std::string("… (65535 bytes)").size());
}

}  // namespace
}  // namespace cleave
