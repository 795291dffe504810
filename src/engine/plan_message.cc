#include "engine/plan_message.h"

#include <fmt/format.h>

#include <cstring>

namespace cleave {
namespace {

struct PlanHeader {
  uint32_t tokens;
  uint32_t sequences;
  uint32_t wanted;
  uint32_t blocks;
};
struct SequenceWords {
  uint32_t first_position;
  uint32_t tokens;
  uint32_t blocks;
  uint32_t team;
};
struct WantedWords {
  uint32_t row;
  uint32_t use;
};

template <typename T>
void Append(const T* values, size_t count, std::vector<std::byte>* out) {
  const auto* bytes = reinterpret_cast<const std::byte*>(values);
  out->insert(out->end(), bytes, bytes + count * sizeof(T));
}

// Takes count values off the front; the sizes were checked.
template <typename T>
void Take(std::span<const std::byte>* bytes, size_t count, T* out) {
  if (count > 0) std::memcpy(out, bytes->data(), count * sizeof(T));
  *bytes = bytes->subspan(count * sizeof(T));
}

uint64_t BytesOf(const PlanHeader& h) {
  return sizeof(h) + uint64_t{h.tokens} * sizeof(int32_t) +
         uint64_t{h.sequences} * sizeof(SequenceWords) + uint64_t{h.wanted} * sizeof(WantedWords) +
         uint64_t{h.blocks} * sizeof(int32_t);
}

}  // namespace

uint64_t MaxPlanBytes(uint32_t max_batch_tokens, uint32_t max_sequences, uint32_t max_blocks) {
  return BytesOf({.tokens = max_batch_tokens,
                  .sequences = max_sequences,
                  .wanted = max_batch_tokens + max_sequences,
                  .blocks = 0}) +
         uint64_t{max_sequences} * max_blocks * sizeof(int32_t);
}

void WritePlan(const ForwardBatch& batch, std::vector<std::byte>* out) {
  PlanHeader header{.tokens = static_cast<uint32_t>(batch.token_ids.size()),
                    .sequences = static_cast<uint32_t>(batch.sequences.size()),
                    .wanted = static_cast<uint32_t>(batch.wanted.size()),
                    .blocks = 0};
  for (const BatchSequence& s : batch.sequences) {
    header.blocks += static_cast<uint32_t>(s.block_table.size());
  }
  out->clear();
  Append(&header, 1, out);
  Append(batch.token_ids.data(), batch.token_ids.size(), out);
  for (const BatchSequence& s : batch.sequences) {
    const SequenceWords words{.first_position = s.first_position,
                              .tokens = s.tokens,
                              .blocks = static_cast<uint32_t>(s.block_table.size()),
                              .team = s.team};
    Append(&words, 1, out);
  }
  for (const WantedRow& row : batch.wanted) {
    const WantedWords words{.row = row.row, .use = static_cast<uint32_t>(row.use)};
    Append(&words, 1, out);
  }
  for (const BatchSequence& s : batch.sequences) {
    Append(s.block_table.data(), s.block_table.size(), out);
  }
}

Status ParsePlan(std::span<const std::byte> bytes, ParsedPlan* plan) {
  PlanHeader header{};
  if (bytes.size() < sizeof(header)) {
    return DataLoss(fmt::format("a plan of {} bytes has no header", bytes.size()));
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (BytesOf(header) != bytes.size()) {
    return DataLoss(fmt::format("a plan says {} bytes and has {}", BytesOf(header), bytes.size()));
  }
  bytes = bytes.subspan(sizeof(header));
  plan->token_ids.resize(header.tokens);
  Take(&bytes, header.tokens, plan->token_ids.data());
  plan->sequences.clear();
  plan->blocks.resize(header.blocks);
  uint64_t blocks = 0;
  for (uint32_t i = 0; i < header.sequences; ++i) {
    SequenceWords words{};
    Take(&bytes, 1, &words);
    if (blocks + words.blocks > header.blocks) return DataLoss("a plan's block tables overrun it");
    plan->sequences.push_back({words.first_position, words.tokens,
                               std::span(plan->blocks).subspan(blocks, words.blocks), words.team});
    blocks += words.blocks;
  }
  plan->wanted.clear();
  for (uint32_t i = 0; i < header.wanted; ++i) {
    WantedWords words{};
    Take(&bytes, 1, &words);
    if (words.row >= header.tokens || words.use > static_cast<uint32_t>(RowUse::kLogits)) {
      return DataLoss(
          fmt::format("a plan wants row {} of {}, use {}", words.row, header.tokens, words.use));
    }
    plan->wanted.push_back({words.row, static_cast<RowUse>(words.use)});
  }
  Take(&bytes, header.blocks, plan->blocks.data());
  return OkStatus();
}

}  // namespace cleave
