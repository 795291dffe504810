#pragma once
// MappedFile: a whole file mapped read-only into memory.
//
// Owner: whoever opened it; movable. Threads: the bytes may be read from any thread. The mapping
// is private: a file that another program truncates later raises SIGBUS on access, as with any
// mapped file; a file that is short when opened is seen as short.
// Fails: kNotFound, kInvalidArgument (a folder), kInternal (the system call and its errno).

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace cleave {

// Which state of which file it is: any write, and any change of its times, gives another one, as
// long as the clock does not go back and the file system keeps times.
struct FileStamp {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t bytes = 0;
  int64_t modified_ns = 0;  // by whoever wrote or touched it
  int64_t changed_ns = 0;   // by the system
  bool operator==(const FileStamp&) const = default;
};

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
  [[nodiscard]] const FileStamp& stamp() const { return stamp_; }  // when it was opened
  // Gives the resident pages back to the system; a later read maps them again.
  void DropResidentPages() const;

 private:
  MappedFile(std::string path, const FileStamp& stamp, const std::byte* data)
      : path_(std::move(path)), stamp_(stamp), data_(data), size_(stamp.bytes) {}

  std::string path_;
  FileStamp stamp_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace cleave
