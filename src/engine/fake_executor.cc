#include "engine/fake_executor.h"

#include <fmt/format.h>

#include <utility>

#include "base/checked.h"
#include "base/rng.h"
#include "split/layout.h"

namespace cleave {

SequenceSpec FakeSequence(SequenceId id, size_t prompt, uint32_t max_tokens) {
  SequenceSpec spec;
  spec.id = id;
  spec.prompt.assign(prompt, static_cast<int32_t>(1 + id % 60));
  spec.sampling.max_tokens = max_tokens;
  spec.sampling.seed = id;
  spec.sampling.ignore_eos = true;
  spec.arrival = SteadyClock::now();
  return spec;
}

FakeExecutor::FakeExecutor(FakeExecutorOptions options)
    : options_(std::move(options)),
      kv_(static_cast<size_t>(options_.num_blocks) * options_.block_size),
      in_flight_(options_.max_in_flight),
      logits_(options_.vocab_size) {
  const size_t tokens = size_t{options_.teams} * options_.max_batch_tokens;
  hidden_.reserve(tokens);
  for (std::vector<Pending>& batch : in_flight_) batch.reserve(tokens);
}

// Partition p has the p-th share of the ids, and every kv_partitions-th run of a sequence.
Status FakeExecutor::CheckTable(std::span<const int32_t> table) const {
  const uint32_t each = blocks_of_team() / options_.kv_partitions;
  for (size_t i = 0; i < table.size(); ++i) {
    const int32_t block = table[i];
    if (block < 0 || static_cast<uint32_t>(block) >= blocks_of_team()) {
      return Internal(fmt::format("block {} does not exist", block));
    }
    const size_t run = i * options_.block_size / kRunPositions;
    if (static_cast<uint32_t>(block) / each != run % options_.kv_partitions) {
      return Internal(
          fmt::format("block {} holds a part of run {}: of {} partitions of {} blocks, "
                      "another's",
                      block, run, options_.kv_partitions, each));
    }
  }
  return OkStatus();
}

Status FakeExecutor::CheckBatch(const ForwardBatch& batch) const {
  uint64_t tokens = 0;
  uint32_t team = 0;
  for (const BatchSequence& s : batch.sequences) {
    tokens += s.tokens;
    if (s.team < team || s.team >= options_.teams) return Internal("not in the order of teams");
    team = s.team;
    const uint32_t end = s.first_position + s.tokens;
    if (s.tokens == 0 || s.block_table.size() != CeilDiv(end, options_.block_size)) {
      return Internal("a sequence without tokens, or whose table does not match them");
    }
    RETURN_IF_ERROR(CheckTable(s.block_table));
  }
  if (tokens != batch.token_ids.size()) return Internal("the batch is not what it says");
  for (team = 0; team < options_.teams; ++team) RETURN_IF_ERROR(CheckTeam(team, batch));
  return OkStatus();
}

Status FakeExecutor::CheckTeam(uint32_t team, const ForwardBatch& batch) const {
  uint64_t tokens = 0;
  uint32_t sequences = 0;
  for (const BatchSequence& s : batch.sequences) {
    tokens += s.team == team ? s.tokens : 0;
    sequences += s.team == team ? 1 : 0;
  }
  if (tokens <= options_.max_batch_tokens && sequences <= options_.max_sequences) return OkStatus();
  return Internal("the batch is larger than the executor allows");
}

FakeExecutor::Slot& FakeExecutor::At(const BatchSequence& sequence, uint32_t position) {
  const auto block = static_cast<size_t>(sequence.block_table[position / options_.block_size]) +
                     size_t{sequence.team} * blocks_of_team();
  return kv_[block * options_.block_size + position % options_.block_size];
}

Status FakeExecutor::Submit(const ForwardBatch& batch) {
  if (batches_ == in_flight_.size()) return Internal("more batches under way than allowed");
  if (options_.before_forward) RETURN_IF_ERROR(options_.before_forward());
  RETURN_IF_ERROR(CheckBatch(batch));
  size_t next = 0;
  for (const BatchSequence& s : batch.sequences) {
    for (uint32_t i = 0; i < s.tokens; ++i) {
      At(s, s.first_position + i) = {batch.token_ids[next++], s.first_position + i};
    }
  }
  // Only after all are written: a block that two sequences write at once shows up in one of them.
  hidden_.clear();
  for (const BatchSequence& s : batch.sequences) {
    uint64_t hash = 17;
    for (uint32_t p = 0; p < s.first_position + s.tokens; ++p) {
      const Slot& slot = At(s, p);
      if (slot.position != p) return Internal("a slot holds another position");
      hash = MixBits(hash * 31 + static_cast<uint64_t>(slot.token + 1));
      if (p >= s.first_position) hidden_.push_back(hash);
    }
  }
  return KeepWanted(batch);
}

Status FakeExecutor::KeepWanted(const ForwardBatch& batch) {
  std::vector<Pending>& pending = in_flight_[(oldest_ + batches_++) % in_flight_.size()];
  pending.clear();
  for (const WantedRow& wanted : batch.wanted) {
    if (wanted.row >= hidden_.size()) return Internal("a row outside the batch");
    pending.push_back({hidden_[wanted.row], wanted.use});
  }
  return OkStatus();
}

void FakeExecutor::MakeLogits(uint64_t hidden) {
  for (uint32_t i = 0; i < options_.vocab_size; ++i) {
    const uint64_t bits = MixBits(hidden + i * 0x9e3779b97f4a7c15ULL);
    logits_[i] = static_cast<float>(bits >> 40U) * 0x1p-22F;  // [0, 4)
  }
}

Status FakeExecutor::Collect(const RowSink& sink) {
  if (batches_ == 0) return Internal("no batch is under way");
  const std::vector<Pending>& pending = in_flight_[oldest_];
  for (uint32_t i = 0; i < pending.size(); ++i) {
    MakeLogits(pending[i].hidden);
    RowResult result;
    if (pending[i].use == RowUse::kHighest) {
      result.highest = FindMax(Isa::kScalar, logits_.data(), options_.vocab_size);
    } else {
      result.logits = logits_.data();
    }
    RETURN_IF_ERROR(sink(i, result));
  }
  oldest_ = (oldest_ + 1) % in_flight_.size();
  --batches_;
  return OkStatus();
}

}  // namespace cleave
