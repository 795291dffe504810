#include "engine/inline_executor.h"

#include <utility>

namespace cleave {

InlineExecutor::InlineExecutor(std::unique_ptr<Checkpoint> checkpoint,
                               const InlineExecutorOptions& options)
    : options_(options), checkpoint_(std::move(checkpoint)), pool_(options.threads, options.cpus) {}

InlineExecutor::~InlineExecutor() = default;

Result<std::unique_ptr<InlineExecutor>> InlineExecutor::Create(
    std::unique_ptr<Checkpoint> checkpoint, const InlineExecutorOptions& options,
    const LoadProgress& progress) {
  RETURN_IF_ERROR(checkpoint->config().Validate());
  std::unique_ptr<InlineExecutor> executor(new InlineExecutor(std::move(checkpoint), options));
  const ModelConfig& config = executor->checkpoint_->config();
  KvShape shape = options.kv_shape;
  shape.head_dim = config.head_dim;
  ASSIGN_OR_RETURN(KvCache kv, KvCache::Create(shape, config.num_layers(), config.num_kv_heads,
                                               options.num_blocks));
  executor->kv_ = std::make_unique<KvCache>(std::move(kv));
  ASSIGN_OR_RETURN(executor->weights_, LoadWeights(*executor->checkpoint_, options.float_type,
                                                   &executor->pool_, progress));
  const DecoderOptions decoder_options{.isa = options.isa,
                                       .max_batch_tokens = options.max_batch_tokens,
                                       .max_sequences = options.max_sequences,
                                       .max_positions = options.max_positions};
  executor->decoder_ = std::make_unique<Decoder>(config, decoder_options, &executor->weights_,
                                                 executor->kv_.get(), &executor->pool_);
  return executor;
}

Status InlineExecutor::Forward(const ForwardBatch& batch) { return decoder_->Forward(batch); }

Status InlineExecutor::Logits(std::span<const uint32_t> rows, float* out) {
  return decoder_->Logits(rows, out);
}

}  // namespace cleave
