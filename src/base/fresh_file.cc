#include "base/fresh_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <string_view>

namespace cleave {
namespace {

constexpr std::string_view kSuffix = ".part";
// Between a file's making and its lock, and no writer is slower by far.
constexpr time_t kAbandonedAfterS = 60;

Status ErrnoStatus(const std::string& path, const char* call) {
  const int error = errno;
  return Unavailable(path + ": " + call + ": " + std::strerror(error));
}

// What a disk keeps free beside the file: others write too.
constexpr uint64_t kSpareBytes = 64 << 20;

Status CheckRoom(int folder, const std::string& path, uint64_t bytes) {
  struct rlimit limit {};
  // Past it a write ends the process, unless it ignores SIGXFSZ.
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      bytes > limit.rlim_cur) {
    return ResourceExhausted(path + ": " + std::to_string(bytes) +
                             " bytes; a file of this process may have " +
                             std::to_string(limit.rlim_cur) + " (ulimit -f)");
  }
  struct statvfs disk {};
  if (::fstatvfs(folder, &disk) != 0) return ErrnoStatus(path, "statvfs");
  const uint64_t free_bytes = uint64_t{disk.f_bavail} * disk.f_frsize;
  if (free_bytes >= kSpareBytes && free_bytes - kSpareBytes >= bytes) return OkStatus();
  return ResourceExhausted(path + ": " + std::to_string(bytes) + " bytes, and " +
                           std::to_string(kSpareBytes) + " to spare; its disk has " +
                           std::to_string(free_bytes) + " free");
}

// Removes `name`, unless somebody writes it.
void RemoveIfAbandoned(int folder, const char* name) {
  const UniqueFd fd(::openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return;
  if (info.st_uid != ::geteuid() || std::time(nullptr) - info.st_mtime < kAbandonedAfterS) return;
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) ::unlinkat(folder, name, 0);
}

void RemoveAbandoned(const std::string& folder_path, int folder, const std::string& name) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder_path.c_str()), &::closedir);
  if (entries == nullptr) return;
  const std::string prefix = name + ".";
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string_view found = entry->d_name;
    if (found.starts_with(prefix) && found.ends_with(kSuffix)) {
      RemoveIfAbandoned(folder, entry->d_name);
    }
  }
}

}  // namespace

Result<FreshFile> FreshFile::Create(const std::string& folder, const std::string& name,
                                    uint64_t bytes) {
  static std::atomic<uint32_t> next{0};
  const std::string path = folder + "/" + name;
  UniqueFd folder_fd(::open(folder.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY));
  if (!folder_fd.valid()) return ErrnoStatus(folder, "open");
  RemoveAbandoned(folder, folder_fd.get(), name);
  RETURN_IF_ERROR(CheckRoom(folder_fd.get(), path, bytes));
  // A process's number may come again, or be another machine's: a name that is taken is not ours.
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    std::string own_name = name + "." + std::to_string(::getpid()) + "-" +
                           std::to_string(next.fetch_add(1)) + std::string(kSuffix);
    UniqueFd fd(::openat(folder_fd.get(), own_name.c_str(),
                         O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd.valid() && errno == EEXIST) continue;
    if (!fd.valid()) return ErrnoStatus(path, "create");
    ::flock(fd.get(), LOCK_EX | LOCK_NB);  // where there are no locks, its age protects it
    return FreshFile(std::move(folder_fd), std::move(fd), path, name, std::move(own_name));
  }
  return Unavailable(path + ": create: no name beside it is free; remove its *.part files");
}

FreshFile::~FreshFile() {
  if (fd_.valid() && !own_name_.empty()) ::unlinkat(folder_.get(), own_name_.c_str(), 0);
}

Status FreshFile::WriteAt(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return ErrnoStatus(path_, "write");
    offset += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return OkStatus();
}

Status FreshFile::Sync() {
  return ::fdatasync(fd_.get()) == 0 ? OkStatus() : ErrnoStatus(path_, "sync");
}

Status FreshFile::Commit() {
  if (::fsync(fd_.get()) != 0) return ErrnoStatus(path_, "sync");
  if (::renameat(folder_.get(), own_name_.c_str(), folder_.get(), name_.c_str()) != 0) {
    return ErrnoStatus(path_, "rename");
  }
  own_name_.clear();
  ::fsync(folder_.get());  // a name that is lost with the power is a miss, not damage
  return OkStatus();
}

}  // namespace cleave
