#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace cleave {
namespace {

Status ErrnoStatus(const std::string& path, const char* call) {
  const int error = errno;
  std::string text = path + ": " + call + ": " + std::strerror(error);
  return {error == ENOENT ? StatusCode::kNotFound : StatusCode::kInternal, std::move(text)};
}

int64_t Nanos(const struct timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

Result<MappedFile> MappedFile::Open(const std::string& path) {
  // A FIFO would wait here for its writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ErrnoStatus(path, "open");
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    Status status = ErrnoStatus(path, "fstat");
    ::close(fd);
    return status;
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return InvalidArgument(path + ": not a regular file");
  }
  const auto size = static_cast<size_t>(info.st_size);
  const FileStamp stamp{.device = info.st_dev,
                        .inode = info.st_ino,
                        .bytes = size,
                        .modified_ns = Nanos(info.st_mtim),
                        .changed_ns = Nanos(info.st_ctim)};
  if (size == 0) {
    ::close(fd);
    return MappedFile(path, stamp, nullptr);
  }
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  Status status = data == MAP_FAILED ? ErrnoStatus(path, "mmap") : OkStatus();
  ::close(fd);
  if (!status.ok()) return status;
  return MappedFile(path, stamp, static_cast<const std::byte*>(data));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      stamp_(other.stamp_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    std::swap(path_, other.path_);
    std::swap(stamp_, other.stamp_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::DropResidentPages() const {
  if (data_ != nullptr) ::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED);
}

}  // namespace cleave
