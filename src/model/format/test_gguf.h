#pragma once
// For tests: a GGUF file that was just written, opened, or why it was not.

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "model/checkpoint.h"
#include "model/format/test_files.h"

namespace cleave::testing_files {

inline Result<std::unique_ptr<Checkpoint>> Open(const GgufWriter& writer) {
  const TempFolder folder;
  return OpenCheckpoint(folder.Write("tiny.gguf", writer.Build()));
}

// What is said after the file's name.
inline std::string RefusalOf(const GgufWriter& writer, StatusCode code) {
  const auto opened = Open(writer);
  EXPECT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), code) << opened.status().ToString();
  const std::string& message = opened.status().message();
  return message.substr(message.find("tiny.gguf: ") + 11);
}

}  // namespace cleave::testing_files
