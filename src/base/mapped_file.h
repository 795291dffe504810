#pragma once
// MappedFile: a whole file mapped read-only into memory.
//
// Owner: whoever opened it; movable. Threads: the bytes may be read from any thread. The mapping
// is private: a file that another program truncates later raises SIGBUS on access, as with any
// mapped file; a file that is short when opened is seen as short.
// Fails: kNotFound, kInvalidArgument (a folder), kInternal (the system call and its errno).

#include <cstddef>
#include <span>
#include <string>

#include "base/status.h"

namespace cleave {

class MappedFile {
 public:
  static Result<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  [[nodiscard]] const std::string& path() const { return path_; }
  // Gives the resident pages back to the system; a later read maps them again.
  void DropResidentPages() const;

 private:
  MappedFile(std::string path, const std::byte* data, size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}

  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace cleave
