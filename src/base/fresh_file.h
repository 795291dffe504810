#pragma once
// FreshFile: a file that appears whole or not at all: written under a name of its own in the same
// folder, made durable, then given its real name, in place of whatever had it.
//
//   ASSIGN_OR_RETURN(FreshFile file, FreshFile::Create(folder, "model.packed", bytes.size()));
//   RETURN_IF_ERROR(file.WriteAt(0, bytes));
//   return file.Commit();
//
// Several writers of one name do not meet: the last Commit wins. What a writer that was killed left
// behind is removed by the next Create of that name: a living one holds a lock on its file.
// The file is its owner's alone (mode 0600). In a folder that others may write too, they can remove
// or rename it; nobody but its owner can change what it holds.
// Owner: the writer; movable; without Commit nothing is left. Thread: one.
// Fails: kUnavailable naming the file, the call and its errno; kResourceExhausted at Create when so
// many bytes are not free, or more than a file of this process may have (ulimit -f).

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "base/unique_fd.h"

namespace cleave {

class FreshFile {
 public:
  static Result<FreshFile> Create(const std::string& folder, const std::string& name,
                                  uint64_t bytes);

  FreshFile(FreshFile&& other) noexcept = default;
  FreshFile& operator=(FreshFile&& other) noexcept = default;
  FreshFile(const FreshFile&) = delete;
  FreshFile& operator=(const FreshFile&) = delete;
  ~FreshFile();

  Status WriteAt(uint64_t offset, std::span<const std::byte> bytes);
  // What was written so far is on the disk.
  Status Sync();
  // Sync, then the real name; once.
  Status Commit();

 private:
  FreshFile(UniqueFd folder, UniqueFd fd, std::string path, std::string name, std::string own_name)
      : folder_(std::move(folder)),
        fd_(std::move(fd)),
        path_(std::move(path)),
        name_(std::move(name)),
        own_name_(std::move(own_name)) {}

  UniqueFd folder_;
  UniqueFd fd_;
  std::string path_;  // of the real name, for messages
  std::string name_;
  std::string own_name_;  // empty once committed
};

}  // namespace cleave
