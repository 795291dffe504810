#include "engine/greedy_batch.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/checked.h"
#include "kernels/isa.h"
#include "kernels/logits.h"
#include "kernels/math.h"

namespace cleave {
namespace {

struct Sequence {
  std::vector<int32_t> blocks;
  uint32_t position = 0;  // of the next token
  int32_t last = 0;
};

void Record(const float* row, uint32_t vocab, const GreedyOptions& options, Sequence* sequence,
            GreedyAnswer* answer) {
  const MaxLogit max = FindMax(Isa::kScalar, row, vocab);
  const int64_t mass = ComputeMasses(Isa::kScalar, row, vocab, max.value, kLog2E, nullptr);
  sequence->last = max.id;
  answer->tokens.push_back(max.id);
  answer->logprobs.push_back(max.value - LogSumExp(max.value, mass));
  float second = -std::numeric_limits<float>::infinity();
  for (uint32_t id = 0; id < vocab; ++id) {
    if (static_cast<int32_t>(id) != max.id) second = std::max(second, row[id]);
  }
  answer->gaps.push_back(max.value - second);
  if (options.keep_logits) answer->logits.emplace_back(row, row + vocab);
}

// The prompt in pieces; `last` takes the logits of its last token.
Status PrefillOne(Executor* executor, const std::vector<int32_t>& prompt, Sequence* sequence,
                  const RowSink& last) {
  for (uint32_t begin = 0; begin < prompt.size();) {
    const auto left = static_cast<uint32_t>(prompt.size()) - begin;
    const uint32_t tokens = std::min(executor->max_batch_tokens(), left);
    const BatchSequence piece{
        .first_position = begin, .tokens = tokens, .block_table = sequence->blocks};
    const WantedRow row{.row = tokens - 1};
    RETURN_IF_ERROR(RunBatch(executor,
                             {.token_ids = {prompt.data() + begin, tokens},
                              .sequences = {&piece, 1},
                              .wanted = {&row, tokens == left ? 1U : 0U}},
                             last));
    begin += tokens;
  }
  sequence->position = static_cast<uint32_t>(prompt.size());
  return OkStatus();
}

Status DecodeStep(Executor* executor, const GreedyOptions& options,
                  std::vector<Sequence>* sequences, std::vector<GreedyAnswer>* answers) {
  const uint32_t vocab = executor->vocab_size();
  const auto limit = std::min<size_t>(executor->max_sequences(), executor->max_batch_tokens());
  for (size_t begin = 0; begin < sequences->size(); begin += limit) {
    const size_t count = std::min(limit, sequences->size() - begin);
    std::vector<int32_t> ids;
    std::vector<BatchSequence> batch;
    std::vector<WantedRow> rows(count);
    for (uint32_t i = 0; i < count; ++i) rows[i].row = i;
    for (size_t i = begin; i < begin + count; ++i) {
      Sequence& s = (*sequences)[i];
      ids.push_back(s.last);
      batch.push_back({.first_position = s.position++, .tokens = 1, .block_table = s.blocks});
    }
    RETURN_IF_ERROR(RunBatch(executor, {.token_ids = ids, .sequences = batch, .wanted = rows},
                             [&](uint32_t i, const RowResult& result) {
                               Record(result.logits, vocab, options, &(*sequences)[begin + i],
                                      &(*answers)[begin + i]);
                               return OkStatus();
                             }));
  }
  return OkStatus();
}

}  // namespace

Result<std::vector<GreedyAnswer>> GreedyBatch(Executor* executor,
                                              const std::vector<std::vector<int32_t>>& prompts,
                                              const GreedyOptions& options) {
  const ScopedFpMode fp_mode;
  const uint32_t vocab = executor->vocab_size();
  std::vector<GreedyAnswer> answers(prompts.size());
  std::vector<Sequence> sequences(prompts.size());
  int32_t next_block = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto tokens = static_cast<uint32_t>(prompts[i].size()) + options.steps;
    sequences[i].blocks.resize(CeilDiv(tokens, options.block_tokens));
    std::iota(sequences[i].blocks.begin(), sequences[i].blocks.end(), next_block);
    next_block += static_cast<int32_t>(sequences[i].blocks.size());
    RETURN_IF_ERROR(PrefillOne(executor, prompts[i], &sequences[i],
                               [&](uint32_t /*index*/, const RowResult& result) {
                                 Record(result.logits, vocab, options, &sequences[i], &answers[i]);
                                 return OkStatus();
                               }));
  }
  for (uint32_t step = 1; step < options.steps; ++step) {
    RETURN_IF_ERROR(DecodeStep(executor, options, &sequences, &answers));
  }
  return answers;
}

Result<std::vector<std::vector<float>>> PromptLogits(Executor* executor,
                                                     const std::vector<int32_t>& prompt,
                                                     uint32_t block_tokens) {
  const ScopedFpMode fp_mode;
  const auto tokens = static_cast<uint32_t>(prompt.size());
  std::vector<int32_t> blocks(CeilDiv(tokens, block_tokens));
  std::iota(blocks.begin(), blocks.end(), 0);
  const BatchSequence piece{.first_position = 0, .tokens = tokens, .block_table = blocks};
  std::vector<WantedRow> rows(tokens);
  for (uint32_t row = 0; row < tokens; ++row) rows[row].row = row;
  std::vector<std::vector<float>> logits;
  RETURN_IF_ERROR(
      RunBatch(executor, {.token_ids = prompt, .sequences = {&piece, 1}, .wanted = rows},
               [&](uint32_t /*index*/, const RowResult& result) {
                 logits.emplace_back(result.logits, result.logits + executor->vocab_size());
                 return OkStatus();
               }));
  return logits;
}

}  // namespace cleave
