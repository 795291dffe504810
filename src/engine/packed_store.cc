#include "engine/packed_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/fresh_file.h"
#include "base/unique_fd.h"

namespace cleave {
namespace {

constexpr std::array<char, 8> kMagic{'C', 'L', 'V', 'P', 'A', 'C', 'K', '\0'};
constexpr uint64_t kHugePage = 2 << 20;
constexpr uint64_t kPartBytes = 4 << 20;
constexpr uint64_t kMatrixAlignment = 64;
// Written at a time: large writes get large pages.
constexpr uint32_t kPartsAtOnce = 4;
// Between two signs of life while reading; between two waits for the disk while writing.
constexpr uint32_t kPartsOfProgress = 64;
// With a tenth in small pages kernels lose 3 % (packed_region.h); below, a copy is worth its
// memory.
constexpr double kHugeEnough = 0.9;

Status ErrnoStatus(const std::string& path, const char* call) {
  const int error = errno;
  return Unavailable(path + ": " + call + ": " + std::strerror(error));
}

// A regular file that nobody but this user and root can have written.
Result<UniqueFd> OpenTrusted(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid()) {
    if (errno == ENOENT) return NotFound(path);
    if (errno == ELOOP) return InvalidArgument(path + ": is a symbolic link");
    return ErrnoStatus(path, "open");
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(path, "fstat");
  if (!S_ISREG(info.st_mode)) return InvalidArgument(path + ": not a regular file");
  if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    return InvalidArgument(
        fmt::format("{}: belongs to user {}, this is {}; name a folder of your own", path,
                    info.st_uid, ::geteuid()));
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return InvalidArgument(path + ": others may write it; it should have mode 0600");
  }
  return fd;
}

}  // namespace

struct PackedStore::Header {
  std::array<char, 8> magic{};
  uint32_t file_version = 0;
  uint32_t packed_version = 0;
  Hash128 key;
  Hash128 content;
  uint64_t stamp = 0;
  uint64_t matrices = 0;
  uint64_t bytes = 0;
  uint64_t hash = 0;
};

PackedStore::PackedStore(std::string folder, std::span<const PackJob> jobs,
                         std::span<const FileStamp> files, int64_t now_ns)
    : folder_(std::move(folder)),
      jobs_(jobs),
      key_(KeyOf(jobs)),
      stamp_(StampOf(files, now_ns)),
      path_(folder_ + "/" + key_.Hex() + ".packed") {
  uint64_t end = 0;
  for (const PackJob& job : jobs_) {
    at_.push_back(end);
    end = RoundUp<uint64_t>(end + job.target->bytes(), kMatrixAlignment);
  }
  at_.push_back(end);
  // The header's length depends on the data's: the whole file, so far.
  file_bytes_ = RoundUp<uint64_t>(std::max<uint64_t>(end, 1), kHugePage);
  const size_t header = header_bytes();
  data_at_ = RoundUp<uint64_t>(header, kHugePage);
  file_bytes_ += data_at_;
}

uint32_t PackedStore::part_count() const {
  return static_cast<uint32_t>(CeilDiv<uint64_t>(data_bytes(), kPartBytes));
}

size_t PackedStore::header_bytes() const {
  static_assert(sizeof(Header) == 80 && std::has_unique_object_representations_v<Hash128>);
  return sizeof(Header) + jobs_.size() * sizeof(float) + part_count() * sizeof(uint64_t);
}

std::vector<std::byte> PackedStore::MakeHeader(const Hash128& content,
                                               std::span<const uint64_t> parts) const {
  Header header{.magic = kMagic,
                .file_version = kPackedFileVersion,
                .packed_version = kPackedVersion,
                .key = key_,
                .content = content,
                .stamp = stamp_,
                .matrices = jobs_.size(),
                .bytes = file_bytes_};
  std::vector<std::byte> out(header_bytes());
  std::memcpy(out.data(), &header, sizeof(header));
  std::byte* at = out.data() + sizeof(header);
  for (const PackJob& job : jobs_) {
    const float norm = job.target->max_row_norm();
    std::memcpy(at, &norm, sizeof(norm));
    at += sizeof(norm);
  }
  std::memcpy(at, parts.data(), parts.size_bytes());
  header.hash = HashOf(out);
  std::memcpy(out.data(), &header, sizeof(header));
  return out;
}

Result<std::vector<std::byte>> PackedStore::ReadHeader(int fd) const {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return ErrnoStatus(path_, "fstat");
  if (static_cast<uint64_t>(info.st_size) != file_bytes_) {
    return DataLoss(
        fmt::format("{}: has {} bytes, {} are expected", path_, info.st_size, file_bytes_));
  }
  std::vector<std::byte> out(header_bytes());
  for (size_t done = 0; done < out.size();) {
    const ssize_t n = ::pread(fd, &out[done], out.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(path_, "read");
    if (n == 0) return DataLoss(path_ + ": ends within its header");
    done += static_cast<size_t>(n);
  }
  return out;
}

Status PackedStore::CheckHeader(std::vector<std::byte> bytes, ThreadPool* pool) const {
  Header header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const uint64_t hash = std::exchange(header.hash, 0);
  std::memcpy(bytes.data(), &header, sizeof(header));
  const auto wrong = [this](const char* what) {
    return DataLoss(fmt::format("{}: its {} is wrong", path_, what));
  };
  if (header.magic != kMagic) return wrong("magic");
  if (header.file_version != kPackedFileVersion) return wrong("file version");
  if (header.packed_version != kPackedVersion) return wrong("version of packed weights");
  if (header.key != key_) return wrong("key");
  if (header.matrices != jobs_.size()) return wrong("number of matrices");
  if (header.bytes != file_bytes_) return wrong("length");
  if (hash != HashOf(bytes)) return wrong("header's checksum");
  if (stamp_ != 0 && header.stamp == stamp_) return OkStatus();
  if (header.content == ContentOf(jobs_, pool)) return OkStatus();
  return InvalidArgument(path_ + ": is of other weights of these shapes");
}

Status PackedStore::CheckParts(std::span<const std::byte> data, std::span<const std::byte> header,
                               ThreadPool* pool, const Progress& progress) const {
  const uint32_t parts = part_count();
  const auto hashes = header.last(parts * sizeof(uint64_t));
  std::atomic<uint32_t> damaged{parts};
  for (uint32_t first = 0; first < parts; first += kPartsOfProgress) {
    const uint32_t count = std::min(kPartsOfProgress, parts - first);
    pool->Run([&](uint32_t thread) {
      const ThreadPool::Share share = pool->ShareOf(count, thread);
      for (uint32_t part = first + share.begin; part < first + share.end; ++part) {
        const uint64_t at = part * kPartBytes;
        uint64_t wanted = 0;
        std::memcpy(&wanted, &hashes[part * sizeof(wanted)], sizeof(wanted));
        const auto bytes = data.subspan(at, std::min(kPartBytes, data.size() - at));
        if (HashOf(bytes) != wanted) damaged = part;
      }
    });
    if (damaged < parts) {
      return DataLoss(fmt::format("{}: damaged between bytes {} and {}", path_,
                                  data_at_ + damaged * kPartBytes,
                                  data_at_ + (damaged + 1) * kPartBytes));
    }
    if (progress) progress(static_cast<double>(first + count) / parts);
  }
  return OkStatus();
}

Result<PackedRegion> PackedStore::Copy(const PackedRegion& mapped, ThreadPool* pool) const {
  ASSIGN_OR_RETURN(PackedRegion memory, PackedRegion::Memory(data_bytes()));
  pool->Run([&](uint32_t thread) {
    for (size_t i = 0; i < jobs_.size(); ++i) {
      const PackedMatrix& m = *jobs_[i].target;
      if (m.groups() == 0) continue;
      // The groups that the thread multiplies later: first touch places their pages.
      const ThreadPool::Share share = pool->ShareOf(m.groups(), thread);
      const size_t group = m.bytes() / m.groups();
      std::memcpy(memory.data() + at_[i] + share.begin * group,
                  mapped.bytes().data() + at_[i] + share.begin * group,
                  (share.end - share.begin) * group);
    }
  });
  return memory;
}

Result<PackedRegion> PackedStore::Load(ThreadPool* pool, const Progress& progress,
                                       Keep keep) const {
  ASSIGN_OR_RETURN(const UniqueFd fd, OpenTrusted(path_));
  ASSIGN_OR_RETURN(const std::vector<std::byte> header, ReadHeader(fd.get()));
  RETURN_IF_ERROR(CheckHeader(header, pool));
  auto mapped = PackedRegion::Map(fd.get(), data_at_, data_bytes());
  if (!mapped.ok()) return mapped.status().Annotate(path_);
  PackedRegion region = std::move(*mapped);
  RETURN_IF_ERROR(CheckParts(region.bytes(), header, pool, progress));
  if (keep == Keep::kCopied || (keep == Keep::kMappedIfHuge && region.HugeShare() < kHugeEnough)) {
    ASSIGN_OR_RETURN(region, Copy(region, pool));
  }
  for (size_t i = 0; i < jobs_.size(); ++i) {
    float norm = 0;
    std::memcpy(&norm, &header[sizeof(Header) + i * sizeof(norm)], sizeof(norm));
    jobs_[i].target->Attach(region.bytes().data() + at_[i], norm);
  }
  return region;
}

void PackedStore::FillPart(uint32_t part, std::span<std::byte> out) const {
  const uint64_t begin = part * kPartBytes;
  const uint64_t end = begin + out.size();
  std::memset(out.data(), 0, out.size());
  // The last matrix that begins at or before `begin`.
  auto i = static_cast<size_t>(std::upper_bound(at_.begin(), at_.end() - 1, begin) - at_.begin());
  for (i = i == 0 ? 0 : i - 1; i < jobs_.size() && at_[i] < end; ++i) {
    const PackedMatrix& m = *jobs_[i].target;
    const uint64_t from = std::max(begin, at_[i]);
    const uint64_t to = std::min(end, at_[i] + m.bytes());
    if (from >= to) continue;
    std::memcpy(&out[from - begin], m.group_data(0) + (from - at_[i]), to - from);
  }
}

Status PackedStore::Save(ThreadPool* pool, const Progress& progress) const {
  if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) return ErrnoStatus(folder_, "mkdir");
  ASSIGN_OR_RETURN(FreshFile file, FreshFile::Create(folder_, key_.Hex() + ".packed", file_bytes_));
  const Hash128 content = ContentOf(jobs_, pool);
  const uint32_t parts = part_count();
  std::vector<uint64_t> hashes(parts);
  std::vector<std::byte> buffer(kPartsAtOnce * kPartBytes);
  for (uint32_t first = 0; first < parts; first += kPartsAtOnce) {
    const uint64_t at = first * kPartBytes;
    const auto bytes =
        std::span(buffer).first(std::min<uint64_t>(buffer.size(), data_bytes() - at));
    const uint32_t count = std::min(kPartsAtOnce, parts - first);
    pool->Run([&](uint32_t thread) {
      const ThreadPool::Share share = pool->ShareOf(count, thread);
      for (uint32_t i = share.begin; i < share.end; ++i) {
        const auto rest = bytes.subspan(i * kPartBytes);
        const auto part = rest.first(std::min<uint64_t>(rest.size(), kPartBytes));
        FillPart(first + i, part);
        hashes[first + i] = HashOf(part);
      }
    });
    RETURN_IF_ERROR(file.WriteAt(data_at_ + at, bytes));
    if ((first + count) % kPartsOfProgress == 0) RETURN_IF_ERROR(file.Sync());
    if (progress) progress(static_cast<double>(first + count) / parts);
  }
  RETURN_IF_ERROR(file.WriteAt(0, MakeHeader(content, hashes)));
  return file.Commit();
}

}  // namespace cleave
