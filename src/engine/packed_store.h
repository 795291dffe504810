#pragma once
// PackedStore: the repacked matrices of a rank in a file, so that the next start maps them instead
// of packing (--repacked-cache-dir).
//
// The file DIR/KEY.packed, little endian, holds what packing made and a checksum of it:
//    0  u8[8]  "CLVPACK" and a zero
//    8  u32    kPackedFileVersion
//   12  u32    kPackedVersion
//   16  u64[2] key, low and high half          (packed_identity.h says what these three are)
//   32  u64[2] content
//   48  u64    stamp
//   56  u64    matrices
//   64  u64    bytes of the file
//   72  u64    XXH3 of the header, this field as zero
//   80  f32    max_row_norm of each matrix; then u64 XXH3 of each 4 MiB of what follows
//   at the next 2 MiB: the matrices, in the loader's order, each at a multiple of 64; then zeros up
//   to a multiple of 2 MiB, so that huge pages can hold the whole of it.
//
// Load believes nothing: length, every field and every checksum are compared before a kernel sees a
// byte, in parallel. Only a regular file of this user or of root that nobody else may write is
// opened, no symbolic link; Save writes with mode 0600, whole or not at all (base/fresh_file.h), so
// ranks and servers may start at once. Who can write as this user can forge a file: the checksums
// are against damage. As with any mapped file, one that is cut short while it is used ends its
// users; Save never writes into a file, it puts a new one in its place.
//
// Owner: LoadWeights, for its length. Thread: the rank's; the work is the pool's.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/pack_job.h"
#include "engine/packed_identity.h"
#include "engine/packed_region.h"
#include "kernels/thread_pool.h"

namespace cleave {

inline constexpr uint32_t kPackedFileVersion = 1;

class PackedStore {
 public:
  // The jobs' targets are described; they and the checkpoint outlive the store.
  PackedStore(std::string folder, std::span<const PackJob> jobs, std::span<const FileStamp> files,
              int64_t now_ns);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] uint64_t file_bytes() const { return file_bytes_; }

  // How much is done, 0 to 1; now and then, from the calling thread.
  using Progress = std::function<void(double share)>;

  enum class Keep { kMappedIfHuge, kMapped, kCopied };
  // Attaches every target to the region it gives, which must outlive them; on failure none.
  // kNotFound: there is no such file. Else what is wrong with it or with the folder, by its name:
  // kDataLoss (damaged), kInvalidArgument (not one to be trusted, or of other weights).
  Result<PackedRegion> Load(ThreadPool* pool, const Progress& progress,
                            Keep keep = Keep::kMappedIfHuge) const;
  // Of targets that are packed. Makes the folder, not those above it. Fails as FreshFile does; what
  // was there before is still there then.
  Status Save(ThreadPool* pool, const Progress& progress) const;

 private:
  struct Header;                              // the bytes of the file before the norms
  [[nodiscard]] size_t header_bytes() const;  // with norms and checksums
  [[nodiscard]] uint64_t data_bytes() const { return file_bytes_ - data_at_; }
  [[nodiscard]] uint32_t part_count() const;
  [[nodiscard]] std::vector<std::byte> MakeHeader(const Hash128& content,
                                                  std::span<const uint64_t> parts) const;
  Result<std::vector<std::byte>> ReadHeader(int fd) const;
  Status CheckHeader(std::vector<std::byte> bytes, ThreadPool* pool) const;
  Status CheckParts(std::span<const std::byte> data, std::span<const std::byte> header,
                    ThreadPool* pool, const Progress& progress) const;
  Result<PackedRegion> Copy(const PackedRegion& mapped, ThreadPool* pool) const;
  void FillPart(uint32_t part, std::span<std::byte> out) const;

  const std::string folder_;
  const std::span<const PackJob> jobs_;
  const Hash128 key_;
  const uint64_t stamp_;
  const std::string path_;
  std::vector<uint64_t> at_;  // of each matrix in the data, and their end
  uint64_t data_at_ = 0;      // in the file
  uint64_t file_bytes_ = 0;
};

}  // namespace cleave
