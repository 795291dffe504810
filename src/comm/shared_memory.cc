#include "comm/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace cleave {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 46U;  // what a process can map, less a margin
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

// One descriptor, closed unless it is kept.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }
  int Keep() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

Status SystemError(const char* what, uint64_t size) {
  const int error = errno;
  const StatusCode code =
      error == ENOMEM || error == EMFILE || error == ENFILE || error == ENOSPC || error == EFBIG
          ? StatusCode::kResourceExhausted
          : StatusCode::kInternal;
  return {code, fmt::format("shared memory of {} bytes: {}: {}", size, what, std::strerror(error))};
}

Result<std::byte*> Map(int fd, uint64_t size) {
  const int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (data == MAP_FAILED) return SystemError("mmap", size);
  return static_cast<std::byte*>(data);
}

}  // namespace

Result<SharedMemory> SharedMemory::Create(SharedMemoryKind kind, uint64_t size) {
  if (size == 0 || size > kMaxBytes) {
    return InvalidArgument(
        fmt::format("shared memory takes 1 to {} bytes, {} were asked for", kMaxBytes, size));
  }
  if (kind == SharedMemoryKind::kThreads) {
    ASSIGN_OR_RETURN(std::byte * data, Map(-1, size));
    return SharedMemory(data, size, -1);
  }
  Descriptor fd(memfd_create("cleave", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd.get() < 0) return SystemError("memfd_create", size);
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0) return SystemError("ftruncate", size);
  if (fcntl(fd.get(), F_ADD_SEALS, kSizeSeals | F_SEAL_SEAL) != 0) {
    return SystemError("sealing its size", size);
  }
  ASSIGN_OR_RETURN(std::byte * data, Map(fd.get(), size));
  return SharedMemory(data, size, fd.Keep());
}

Result<SharedMemory> SharedMemory::Attach(int fd) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals) {
    return InvalidArgument(fmt::format(
        "descriptor {} is not shared memory of sealed size: pass the one that made it", fd));
  }
  struct stat info {};
  if (fstat(fd, &info) != 0) return SystemError("fstat", 0);
  if (info.st_size <= 0) {
    return InvalidArgument(fmt::format("descriptor {} is shared memory of no bytes", fd));
  }
  const auto size = static_cast<uint64_t>(info.st_size);
  Descriptor own(fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (own.get() < 0) return SystemError("duplicating its descriptor", size);
  ASSIGN_OR_RETURN(std::byte * data, Map(own.get(), size));
  return SharedMemory(data, size, own.Keep());
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      fd_(std::exchange(other.fd_, -1)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, size_);
  if (fd_ >= 0) close(fd_);
}

}  // namespace cleave
