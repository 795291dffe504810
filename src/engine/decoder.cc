#include "engine/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "kernels/attention.h"

namespace cleave {
namespace {

// At most so many rows are prepared by every thread for itself: preparing a row costs less than a
// meeting of threads.
constexpr uint32_t kPrivateRows = 2;
// Query tokens of one attention item: enough to reuse a run's keys, small enough to share out.
constexpr uint32_t kAttentionTile = 32;
// Columns of a row-parallel product turned back to floats at a time.
constexpr uint32_t kPiece = 256;

uint32_t KindIndex(ActKind kind) { return static_cast<uint32_t>(kind); }

// Only int8 activations have a second term.
ActTerms TermsFor(const PackedMatrix& w, ActTerms wanted) {
  return ActKindOf(w.dtype()) == ActKind::kInt8 ? wanted : ActTerms::kOne;
}

}  // namespace

struct Decoder::Stage {
  Stage(uint32_t rows, uint32_t hidden_size) : hidden(static_cast<size_t>(rows) * hidden_size) {
    shift.resize(rows);
    wide.resize(rows);
  }

  std::vector<float> hidden;  // [rows, D]
  // By ActKind, those the model uses. int8 has two rows for each: inputs of V and of the head are
  // prepared in two terms.
  std::array<std::optional<ActBuffer>, 3> prepared;
  std::vector<int32_t> shift;  // [rows] quanta of the residual rows
  std::vector<uint8_t> wide;   // [rows] 1 = int64 sums
};

Decoder::Decoder(const ModelConfig& config, const DecoderOptions& options,
                 const ModelWeights* weights, KvCache* kv, ThreadPool* pool)
    : config_(config),
      options_(options),
      sum_rule_(SumRuleOf(config)),
      weights_(weights),
      kv_(kv),
      pool_(pool),
      next_item_(config.num_layers()) {
  const size_t tokens = options.max_batch_tokens;
  const size_t q_size = static_cast<size_t>(config.num_heads) * config.head_dim;
  const size_t kv_size = static_cast<size_t>(config.num_kv_heads) * config.head_dim;
  position_of_.resize(tokens);
  sequence_of_.resize(tokens);
  items_.reserve(tokens * config.num_kv_heads);
  x_.resize(tokens * config.hidden_size);
  q_.resize(tokens * q_size);
  k_.resize(tokens * kv_size);
  v_.resize(tokens * kv_size);
  attention_.resize(tokens * q_size);
  gate_.resize(tokens * config.ffn_size);
  up_.resize(tokens * config.ffn_size);
  if (config.post_norms) y_.resize(tokens * config.hidden_size);
  totals_.resize(tokens * config.hidden_size);
  MakeStages();
  FindRopeSettings();
  rope_rows_.resize(ropes_.size() * tokens * config.head_dim);
}

Decoder::~Decoder() = default;

void Decoder::MakeStages() {
  auto max_blocks = static_cast<uint32_t>(weights_->head.plan().blocks.size());
  std::array<bool, 3> used{};
  used[KindIndex(ActKindOf(weights_->head.dtype()))] = true;
  for (const LayerWeights& layer : weights_->layers) {
    for (const PackedMatrix* m :
         {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down}) {
      max_blocks = std::max(max_blocks, static_cast<uint32_t>(m->plan().blocks.size()));
      used[KindIndex(ActKindOf(m->dtype()))] = true;
    }
  }
  const auto make_stage = [&](uint32_t rows) {
    auto stage = std::make_unique<Stage>(rows, config_.hidden_size);
    for (uint32_t kind = 0; kind < used.size(); ++kind) {
      const uint32_t terms = kind == KindIndex(ActKind::kInt8) ? 2 : 1;
      if (used[kind]) stage->prepared[kind].emplace(terms * rows, max_blocks);
    }
    return stage;
  };
  shared_ = make_stage(std::max(options_.max_batch_tokens, options_.max_sequences));
  for (uint32_t thread = 0; thread < pool_->size(); ++thread) {
    private_.push_back(make_stage(kPrivateRows));
    scratch_.emplace_back(config_.head_dim);
  }
}

void Decoder::FindRopeSettings() {
  // Layers with the same rotary settings share their rows.
  std::vector<const LayerConfig*> seen;
  for (const LayerConfig& layer : config_.layers) {
    const auto same = std::find_if(seen.begin(), seen.end(), [&](const LayerConfig* other) {
      return other->rope_theta == layer.rope_theta && other->rope_scaling == layer.rope_scaling;
    });
    rope_of_layer_.push_back(static_cast<uint32_t>(same - seen.begin()));
    if (same == seen.end()) {
      seen.push_back(&layer);
      ropes_.emplace_back(layer.rope_theta, layer.rope_scaling, config_.head_dim);
    }
  }
}

float* Decoder::RopeRow(uint32_t rope, uint32_t row) {
  const size_t index = static_cast<size_t>(rope) * options_.max_batch_tokens + row;
  return &rope_rows_[index * config_.head_dim];
}

Status Decoder::CheckBatch(const ForwardBatch& batch) const {
  const size_t tokens = batch.token_ids.size();
  if (tokens == 0 || tokens > options_.max_batch_tokens) {
    return InvalidArgument(
        fmt::format("a batch of {} tokens; 1 to {} fit", tokens, options_.max_batch_tokens));
  }
  for (const int32_t id : batch.token_ids) {
    if (id < 0 || static_cast<uint32_t>(id) >= config_.vocab_size) {
      return InvalidArgument(
          fmt::format("token id {} is outside the vocabulary of {}", id, config_.vocab_size));
    }
  }
  size_t sum = 0;
  const uint32_t block_tokens = kv_->shape().block_tokens;
  for (const BatchSequence& s : batch.sequences) {
    sum += s.tokens;
    const uint64_t end = static_cast<uint64_t>(s.first_position) + s.tokens;
    if (s.tokens == 0 || end > options_.max_positions ||
        end > static_cast<uint64_t>(s.block_table.size()) * block_tokens) {
      return InvalidArgument(fmt::format(
          "a sequence's positions {} to {} pass its {} blocks of {} or the limit of {}",
          s.first_position, end, s.block_table.size(), block_tokens, options_.max_positions));
    }
    for (const int32_t block : s.block_table) {
      if (block < 0 || static_cast<uint32_t>(block) >= kv_->num_blocks()) {
        return InvalidArgument(fmt::format("KV block {} of {}", block, kv_->num_blocks()));
      }
    }
  }
  if (sum == tokens) return OkStatus();
  return InvalidArgument(fmt::format("{} token ids for sequences of {} tokens", tokens, sum));
}

void Decoder::PlanBatch(const ForwardBatch& batch) {
  tokens_ = static_cast<uint32_t>(batch.token_ids.size());
  token_ids_ = batch.token_ids;
  sequences_ = batch.sequences;
  items_.clear();
  uint32_t row = 0;
  for (uint32_t s = 0; s < sequences_.size(); ++s) {
    const BatchSequence& sequence = sequences_[s];
    for (uint32_t t = 0; t < sequence.tokens; ++t) {
      sequence_of_[row + t] = s;
      position_of_[row + t] = sequence.first_position + t;
    }
    // Later tiles see more positions: the long ones go out first.
    for (uint32_t end = sequence.tokens; end > 0;) {
      const uint32_t begin = (end - 1) / kAttentionTile * kAttentionTile;
      for (uint32_t head = 0; head < config_.num_kv_heads; ++head) {
        items_.push_back({s, head, row + begin, end - begin, sequence.first_position + begin});
      }
      end = begin;
    }
    row += sequence.tokens;
  }
  for (std::atomic<uint32_t>& next : next_item_) next.store(0, std::memory_order_relaxed);
}

Status Decoder::Forward(const ForwardBatch& batch) {
  RETURN_IF_ERROR(CheckBatch(batch));
  PlanBatch(batch);
  pool_->Run([this](uint32_t thread) { RunLayers(thread); });
  return OkStatus();
}

void Decoder::RunLayers(uint32_t thread) {
  Embed(thread);
  pool_->Barrier();
  for (uint32_t layer = 0; layer < config_.num_layers(); ++layer) {
    AttentionHalf(layer, thread);
    FfnHalf(layer, thread);
  }
}

void Decoder::Embed(uint32_t thread) {
  const TensorView& table = weights_->embedding;
  const uint64_t row_bytes = RowBytes(table.dtype, config_.hidden_size).value_or(0);
  const ThreadPool::Share rows = pool_->ShareOf(tokens_, thread);
  for (uint32_t row = rows.begin; row < rows.end; ++row) {
    float* x = &x_[static_cast<size_t>(row) * config_.hidden_size];
    const auto id = static_cast<uint64_t>(token_ids_[row]);
    DequantiseRow(table.dtype, table.data + id * row_bytes, config_.hidden_size, x);
    if (config_.embedding_scale != 1.0) {
      ScaleInPlace(options_.isa, x, static_cast<float>(config_.embedding_scale),
                   config_.hidden_size);
    }
    for (uint32_t rope = 0; rope < ropes_.size(); ++rope) {
      ropes_[rope].MakeRow(position_of_[row], RopeRow(rope, row));
    }
  }
}

Decoder::Stage& Decoder::StageOf(uint32_t thread) {
  return tokens_ <= kPrivateRows ? *private_[thread] : *shared_;
}

ThreadPool::Share Decoder::RowShare(uint32_t thread) const {
  if (tokens_ <= kPrivateRows) return {0, tokens_};
  return pool_->ShareOf(tokens_, thread);
}

void Decoder::MeetIfShared() {
  if (tokens_ > kPrivateRows) pool_->Barrier();
}

void Decoder::Prepare(Stage* stage, const PackedMatrix& w, const float* source, size_t stride,
                      ActTerms terms, ThreadPool::Share rows) const {
  const ActKind kind = ActKindOf(w.dtype());
  ActBuffer* acts = &*stage->prepared[KindIndex(kind)];
  if (TermsFor(w, terms) == ActTerms::kTwo) {
    PrepareTwoTerms(options_.isa, w.plan(), source, stride, rows.begin, rows.end, acts);
  } else {
    PrepareActs(options_.isa, kind, w.plan(), source, stride, rows.begin, rows.end, acts);
  }
}

void Decoder::NormInto(Stage* stage, const std::vector<float>& norm,
                       std::span<const PackedMatrix* const> matrices, ActTerms terms,
                       uint32_t thread) {
  const uint32_t size = config_.hidden_size;
  const ThreadPool::Share rows = RowShare(thread);
  for (uint32_t row = rows.begin; row < rows.end; ++row) {
    const size_t at = static_cast<size_t>(row) * size;
    const int32_t exponent = RmsNorm(options_.isa, &x_[at], norm.data(), size,
                                     static_cast<float>(config_.norm_eps), &stage->hidden[at]);
    stage->shift[row] = sum_rule_.absolute ? kAbsoluteBits : kRelativeBits - exponent;
  }
  std::array<bool, 3> done{};
  for (const PackedMatrix* w : matrices) {
    const ActKind kind = ActKindOf(w->dtype());
    if (done[KindIndex(kind)]) continue;
    done[KindIndex(kind)] = true;
    Prepare(stage, *w, stage->hidden.data(), size, terms, rows);
  }
  MeetIfShared();
}

void Decoder::PrepareRows(Stage* stage, const float* source, size_t stride, const PackedMatrix& w,
                          ActTerms terms, uint32_t thread) {
  const ActKind kind = ActKindOf(w.dtype());
  const uint32_t rows_each = TermsFor(w, terms) == ActTerms::kTwo ? 2 : 1;
  const ThreadPool::Share rows = RowShare(thread);
  Prepare(stage, w, source, stride, terms, rows);
  const ActBuffer& acts = *stage->prepared[KindIndex(kind)];
  for (uint32_t row = rows.begin; row < rows.end; ++row) {
    const bool narrow = !sum_rule_.absolute && RowFitsInt32(kind, acts, w.plan(), rows_each * row,
                                                            w.max_row_norm(), stage->shift[row]);
    stage->wide[row] = narrow ? 0 : 1;
  }
  MeetIfShared();
}

void Decoder::Column(const PackedMatrix& w, const Stage& stage, ActTerms terms, float* y,
                     uint32_t thread) {
  const ThreadPool::Share groups = pool_->ShareOf(w.groups(), thread);
  const ActKind kind = ActKindOf(w.dtype());
  MatmulColumn(options_.isa, w, *stage.prepared[KindIndex(kind)], tokens_, groups.begin, groups.end,
               y, w.rows(), TermsFor(w, terms));
}

void Decoder::RowParallel(const PackedMatrix& w, const Stage& stage,
                          const std::vector<float>& post_norm, ActTerms terms, uint32_t thread) {
  const uint32_t size = config_.hidden_size;
  const ThreadPool::Share groups = pool_->ShareOf(w.groups(), thread);
  const ActBuffer& acts = *stage.prepared[KindIndex(ActKindOf(w.dtype()))];
  MatmulRow(options_.isa, w, acts, tokens_, stage.shift.data(), stage.wide.data(), groups.begin,
            groups.end, totals_.data(), size, TermsFor(w, terms));
  const Columns columns{groups.begin * kRowsPerGroup, std::min(groups.end * kRowsPerGroup, size)};
  const uint32_t count = columns.end - columns.begin;
  alignas(64) std::array<float, kPiece> piece;
  for (uint32_t row = 0; row < tokens_; ++row) {
    const size_t start = static_cast<size_t>(row) * size + columns.begin;
    if (!post_norm.empty()) {
      QuantaToFloat(options_.isa, &totals_[start], stage.shift[row], count, &y_[start]);
      continue;
    }
    for (uint32_t done = 0; done < count; done += kPiece) {
      const auto n = std::min<uint32_t>(kPiece, count - done);
      QuantaToFloat(options_.isa, &totals_[start + done], stage.shift[row], n, piece.data());
      AddInPlace(options_.isa, &x_[start + done], piece.data(), n);
    }
  }
  pool_->Barrier();
  if (post_norm.empty()) return;
  const ThreadPool::Share rows = pool_->ShareOf(tokens_, thread);
  for (uint32_t row = rows.begin; row < rows.end; ++row) {
    const size_t at = static_cast<size_t>(row) * size;
    RmsNorm(options_.isa, &y_[at], post_norm.data(), size, static_cast<float>(config_.norm_eps),
            &y_[at]);
    AddInPlace(options_.isa, &x_[at], &y_[at], size);
  }
  pool_->Barrier();
}

void Decoder::AttentionHalf(uint32_t layer, uint32_t thread) {
  const LayerWeights& w = weights_->layers[layer];
  Stage& stage = StageOf(thread);
  const std::array<const PackedMatrix*, 3> inputs{&w.q, &w.k, &w.v};
  // V's rounding goes into the residual undamped, that of Q and K only through the softmax.
  NormInto(&stage, w.attn_norm, inputs, ActTerms::kTwo, thread);
  Column(w.q, stage, ActTerms::kFirstOfTwo, q_.data(), thread);
  Column(w.k, stage, ActTerms::kFirstOfTwo, k_.data(), thread);
  Column(w.v, stage, ActTerms::kTwo, v_.data(), thread);
  pool_->Barrier();
  FinishQkv(layer, thread);
  pool_->Barrier();
  RunAttention(layer, thread);
  pool_->Barrier();
  PrepareRows(&stage, attention_.data(), static_cast<size_t>(config_.num_heads) * config_.head_dim,
              w.o, ActTerms::kOne, thread);
  RowParallel(w.o, stage, w.attn_post_norm, ActTerms::kOne, thread);
}

void Decoder::FfnHalf(uint32_t layer, uint32_t thread) {
  const LayerWeights& w = weights_->layers[layer];
  Stage& stage = StageOf(thread);
  const std::array<const PackedMatrix*, 2> inputs{&w.gate, &w.up};
  NormInto(&stage, w.ffn_norm, inputs, ActTerms::kOne, thread);
  Column(w.gate, stage, ActTerms::kOne, gate_.data(), thread);
  Column(w.up, stage, ActTerms::kOne, up_.data(), thread);
  // gate and up have the same groups, so a thread finishes the columns it just made.
  const ThreadPool::Share groups = pool_->ShareOf(w.gate.groups(), thread);
  const Columns columns{groups.begin * kRowsPerGroup,
                        std::min(groups.end * kRowsPerGroup, config_.ffn_size)};
  for (uint32_t row = 0; row < tokens_; ++row) {
    const size_t at = static_cast<size_t>(row) * config_.ffn_size + columns.begin;
    GatedActivation(options_.isa, config_.activation, &gate_[at], &up_[at],
                    columns.end - columns.begin, &gate_[at]);
  }
  pool_->Barrier();
  PrepareRows(&stage, gate_.data(), config_.ffn_size, w.down, ActTerms::kTwo, thread);
  RowParallel(w.down, stage, w.ffn_post_norm, ActTerms::kTwo, thread);
}

void Decoder::FinishQkv(uint32_t layer, uint32_t thread) {
  const ThreadPool::Share rows = pool_->ShareOf(tokens_, thread);
  for (uint32_t row = rows.begin; row < rows.end; ++row) FinishQkvRow(layer, row);
}

void Decoder::FinishQkvRow(uint32_t layer, uint32_t row) {
  const LayerWeights& w = weights_->layers[layer];
  const Isa isa = options_.isa;
  const uint32_t d = config_.head_dim;
  const uint32_t heads = config_.num_heads;
  const uint32_t kv_heads = config_.num_kv_heads;
  float* q = &q_[static_cast<size_t>(row) * heads * d];
  float* k = &k_[static_cast<size_t>(row) * kv_heads * d];
  float* v = &v_[static_cast<size_t>(row) * kv_heads * d];
  if (!w.q_bias.empty()) {
    AddInPlace(isa, q, w.q_bias.data(), heads * d);
    AddInPlace(isa, k, w.k_bias.data(), kv_heads * d);
    AddInPlace(isa, v, w.v_bias.data(), kv_heads * d);
  }
  if (!w.q_norm.empty()) {
    const auto eps = static_cast<float>(config_.norm_eps);
    for (uint32_t h = 0; h < heads; ++h) {
      RmsNorm(isa, q + h * d, w.q_norm.data(), d, eps, q + h * d);
    }
    for (uint32_t h = 0; h < kv_heads; ++h) {
      RmsNorm(isa, k + h * d, w.k_norm.data(), d, eps, k + h * d);
    }
  }
  const uint32_t position = position_of_[row];
  const float* rope = RopeRow(rope_of_layer_[layer], row);
  ApplyRope(isa, q, heads, d, rope);
  ApplyRope(isa, k, kv_heads, d, rope);

  const uint32_t block_tokens = kv_->shape().block_tokens;
  const auto block =
      static_cast<size_t>(sequences_[sequence_of_[row]].block_table[position / block_tokens]);
  for (uint32_t h = 0; h < kv_heads; ++h) {
    StoreKv(isa, kv_->shape(), k + h * d, v + h * d, position % block_tokens,
            kv_->head_base(layer, h) + block * kv_->block_stride());
  }
}

void Decoder::RunAttention(uint32_t layer, uint32_t thread) {
  const uint32_t d = config_.head_dim;
  const uint32_t q_per_kv = config_.q_per_kv();
  const size_t row_floats = static_cast<size_t>(config_.num_heads) * d;
  AttentionJob job;
  job.q_stride = row_floats;
  job.out_stride = row_floats;
  job.heads = q_per_kv;
  job.window = config_.layers[layer].window;
  job.scale = static_cast<float>(config_.attention_scale);
  job.block_stride = kv_->block_stride();
  for (;;) {
    const uint32_t i = next_item_[layer].fetch_add(1, std::memory_order_relaxed);
    if (i >= items_.size()) return;
    const AttentionItem& item = items_[i];
    const size_t start = item.token * row_floats + static_cast<size_t>(item.kv_head) * q_per_kv * d;
    job.q = &q_[start];
    job.out = &attention_[start];
    job.tokens = item.tokens;
    job.first_position = item.position;
    job.block_table = sequences_[item.sequence].block_table;
    job.kv = kv_->head_base(layer, item.kv_head);
    Attention(options_.isa, kv_->shape(), job, &scratch_[thread]);
  }
}

Status Decoder::Logits(std::span<const uint32_t> rows, float* out) {
  if (rows.size() > options_.max_sequences) {
    return InvalidArgument(
        fmt::format("logits of {} rows; at most {} at once", rows.size(), options_.max_sequences));
  }
  for (const uint32_t row : rows) {
    if (row >= tokens_) {
      return InvalidArgument(fmt::format("logits of row {} of a batch of {}", row, tokens_));
    }
  }
  const auto count = static_cast<uint32_t>(rows.size());
  const uint32_t size = config_.hidden_size;
  const PackedMatrix& head = weights_->head;
  const ActKind kind = ActKindOf(head.dtype());
  const ActTerms terms = TermsFor(head, ActTerms::kTwo);
  pool_->Run([&](uint32_t thread) {
    const bool few = count <= kPrivateRows;
    Stage& stage = few ? *private_[thread] : *shared_;
    const ThreadPool::Share share =
        few ? ThreadPool::Share{0, count} : pool_->ShareOf(count, thread);
    for (uint32_t i = share.begin; i < share.end; ++i) {
      RmsNorm(options_.isa, &x_[static_cast<size_t>(rows[i]) * size], weights_->final_norm.data(),
              size, static_cast<float>(config_.norm_eps),
              &stage.hidden[static_cast<size_t>(i) * size]);
    }
    Prepare(&stage, head, stage.hidden.data(), size, terms, share);
    if (!few) pool_->Barrier();
    const ThreadPool::Share groups = pool_->ShareOf(head.groups(), thread);
    MatmulColumn(options_.isa, head, *stage.prepared[KindIndex(kind)], count, groups.begin,
                 groups.end, out, config_.vocab_size, terms);
    if (config_.final_logit_softcap == 0.0) return;
    const uint32_t begin = groups.begin * kRowsPerGroup;
    const uint32_t end = std::min(groups.end * kRowsPerGroup, config_.vocab_size);
    for (uint32_t i = 0; i < count; ++i) {
      SoftCapInPlace(options_.isa, out + static_cast<size_t>(i) * config_.vocab_size + begin,
                     static_cast<float>(config_.final_logit_softcap), end - begin);
    }
  });
  return OkStatus();
}

}  // namespace cleave
