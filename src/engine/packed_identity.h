#pragma once
// What the repacked weights of a rank are known by, on disk (engine/packed_store.h).
//
//   key      everything that determines the packed bytes but what the checkpoint's tensors hold:
//            kPackedVersion and, matrix by matrix, stored type and shape, packed type, rows and
//            their order, and the walk over the columns (so whatever tp, pp, ep, the family and
//            --dtype change); and of the tensors 1 KiB from the middle of each, in which another
//            training of the same model differs. It names the file.
//   stamp    device, inode, size and times of the checkpoint's files. The same as when the file
//            was written: the same contents, and nothing of them has to be read. 0 says nothing:
//            files that changed seconds ago may change again within one tick of their clock.
//   content  a hash over every byte of the checkpoint that went in. Compared when the stamp is
//            another one: a copy of the model, or one that was touched, is read once, which takes
//            less than packing it, and known again. No path goes in.
//
// So other weights are taken for these only when key and sample are equal, and either their files'
// stamps too (somebody set the clock back, or a read-only image was rebuilt with the same inode
// and times), or 128 bits of their hash. These are hashes against mistakes, not against forgers.
// Nothing depends on the instruction set: one record layout serves all.
// Pure; ContentOf runs on the pool and faults the checkpoint in.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "engine/pack_job.h"
#include "kernels/thread_pool.h"

namespace cleave {

struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Hash128&) const = default;
  [[nodiscard]] std::string Hex() const;  // 32 digits
};

Hash128 KeyOf(std::span<const PackJob> jobs);
// `now_ns`: of the clock that files' times are of.
uint64_t StampOf(std::span<const FileStamp> files, int64_t now_ns);
Hash128 ContentOf(std::span<const PackJob> jobs, ThreadPool* pool);

uint64_t HashOf(std::span<const std::byte> bytes);

}  // namespace cleave
