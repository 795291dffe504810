#include "engine/packed_identity.h"

#include <fmt/format.h>
// The variant for the processor at hand; all give the same bits.
#include <xxh_x86dispatch.h>

#include <algorithm>
#include <cstring>

#include "tensor/dtype.h"

namespace cleave {
namespace {

constexpr uint64_t kSampleBytes = 1024;
constexpr uint64_t kContentPart = 4 << 20;
// FAT keeps times to 2 s, and a network's clock may be off by as much.
constexpr int64_t kSettledAfterNs = 5'000'000'000;

// Numbers as 64 bits each: what is hashed has no padding.
class Description {
 public:
  template <typename... Numbers>
  void Add(Numbers... numbers) {
    (words_.push_back(static_cast<uint64_t>(numbers)), ...);
  }
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return std::as_bytes(std::span(words_));
  }
  [[nodiscard]] Hash128 Hash() const {
    const XXH128_hash_t hash = XXH3_128bits(words_.data(), words_.size() * sizeof(uint64_t));
    return {.low = hash.low64, .high = hash.high64};
  }

 private:
  std::vector<uint64_t> words_;
};

void AddPlan(const KPlan& plan, Description* out) {
  out->Add(plan.row_elements, plan.blocks.size(), plan.group_ends.size());
  for (const KBlock& b : plan.blocks) out->Add(b.window, b.source, b.lo, b.hi);
  for (const uint32_t end : plan.group_ends) out->Add(end);
}

uint64_t SourceRowBytes(const PackJob& job) {
  return RowBytes(job.source.dtype, job.source.cols()).value_or(0);
}

uint64_t SampleOf(const PackJob& job) {
  const uint64_t bytes = job.source.rows() * SourceRowBytes(job);
  const uint64_t size = std::min(bytes, kSampleBytes);
  return HashOf({job.source.data + (bytes - size) / 2, size});
}

}  // namespace

std::string Hash128::Hex() const { return fmt::format("{:016x}{:016x}", high, low); }

uint64_t HashOf(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

Hash128 KeyOf(std::span<const PackJob> jobs) {
  Description all;
  all.Add(kPackedVersion, jobs.size());
  for (const PackJob& job : jobs) {
    const PackedMatrix& to = *job.target;
    all.Add(job.source.dtype, job.source.rows(), job.source.cols(), job.order, job.head_dim,
            job.first_row, to.dtype(), to.rows(), to.record_bytes(), SampleOf(job));
    Description plan;
    AddPlan(to.plan(), &plan);
    const Hash128 hash = plan.Hash();
    all.Add(hash.low, hash.high);
  }
  return all.Hash();
}

uint64_t StampOf(std::span<const FileStamp> files, int64_t now_ns) {
  Description all;
  for (const FileStamp& file : files) {
    const int64_t newest_ns = std::max(file.modified_ns, file.changed_ns);
    if (newest_ns > now_ns - kSettledAfterNs) return 0;
    all.Add(file.device, file.inode, file.bytes, file.modified_ns, file.changed_ns);
  }
  return files.empty() ? 0 : std::max<uint64_t>(HashOf(all.bytes()), 1);
}

Hash128 ContentOf(std::span<const PackJob> jobs, ThreadPool* pool) {
  std::vector<std::span<const std::byte>> parts;
  for (const PackJob& job : jobs) {
    const uint64_t row_bytes = SourceRowBytes(job);
    std::span<const std::byte> rest(job.source.data + job.first_row * row_bytes,
                                    job.target->rows() * row_bytes);
    while (!rest.empty()) {
      parts.push_back(rest.first(std::min<uint64_t>(rest.size(), kContentPart)));
      rest = rest.subspan(parts.back().size());
    }
  }
  std::vector<uint64_t> hashes(parts.size());
  pool->Run([&](uint32_t thread) {
    const ThreadPool::Share share = pool->ShareOf(static_cast<uint32_t>(parts.size()), thread);
    for (uint32_t i = share.begin; i < share.end; ++i) hashes[i] = HashOf(parts[i]);
  });
  Description all;
  for (size_t i = 0; i < parts.size(); ++i) all.Add(parts[i].size(), hashes[i]);
  return all.Hash();
}

}  // namespace cleave
