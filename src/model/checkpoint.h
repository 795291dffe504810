#pragma once
// Checkpoint: a model on disk, read through one interface whatever its format.
//
//   ASSIGN_OR_RETURN(auto checkpoint, OpenCheckpoint(path));     // .gguf file or HF folder
//   checkpoint->config().num_layers();
//   ASSIGN_OR_RETURN(TensorView q, checkpoint->Weight({WeightRole::kQ, /*layer=*/3}));
//
// Owner: the loader; tensors are views into mapped files and live as long as the checkpoint.
// Threads: const after Open; any. Every length, offset, count and type of a file was checked when
// it was opened: a TensorView's bytes are all there, and its shape is the one the config implies.
// Fails: kNotFound, kDataLoss (damaged, with expected and real sizes), kUnsupported (an
// architecture or tensor type we do not know, with the list of those we do).

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"
#include "model/config.h"
#include "tensor/view.h"

namespace cleave {

// Shapes: out features first. Biases and norms are [n].
enum class WeightRole {
  kEmbedding,     // [V, D]
  kFinalNorm,     // [D]
  kHead,          // [V, D]; absent when tied
  kAttnNorm,      // [D]    before attention
  kQ,             // [H·d, D]
  kK,             // [G·d, D]
  kV,             // [G·d, D]
  kQBias,         // [H·d]
  kKBias,         // [G·d]
  kVBias,         // [G·d]
  kQNorm,         // [d]
  kKNorm,         // [d]
  kO,             // [D, H·d]
  kAttnPostNorm,  // [D]    after attention, before the residual add (Gemma 3)
  kFfnNorm,       // [D]    before the FFN
  kGate,          // [F, D]
  kUp,            // [F, D]
  kDown,          // [D, F]
  kFfnPostNorm,   // [D]    after the FFN, before the residual add (Gemma 3)
  kRouter,        // [E, D] a layer of experts has these four, no kGate, kUp, kDown
  kExpertGate,    // [F, D] of one expert, as the next two
  kExpertUp,      // [F, D]
  kExpertDown,    // [D, F]
};

struct WeightId {
  WeightRole role;
  uint32_t layer = 0;   // ignored for kEmbedding, kFinalNorm, kHead
  uint32_t expert = 0;  // kExpertGate, kExpertUp, kExpertDown only
};

// Row order of a stored Q or K weight or bias: GGUF's llama files interleave each head's rotary
// pairs (rows 2i and 2i+1 of a head are the i-th element of the first and second half). The loader
// undoes it while repacking; row r of the plain order is row SourceRow(order, r, d) of the file.
enum class RowOrder { kPlain, kInterleavedHalves };
uint64_t SourceRow(RowOrder order, uint64_t row, uint32_t head_dim);

// The raw material of a tokenizer; model/tokenizer builds from it.
struct TokenizerSource {
  enum class Kind { kHuggingFaceJson, kGguf };
  Kind kind = Kind::kHuggingFaceJson;

  // kHuggingFaceJson: file texts; empty where a file is not there.
  std::string tokenizer_json;
  std::string tokenizer_config_json;

  // kGguf: tokenizer.ggml.* as stored.
  std::string gguf_model;  // "gpt2" (byte-level BPE) or "llama" (SentencePiece BPE)
  std::string gguf_pre;    // name of the pre-tokenizer pattern
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> token_types;  // 1 normal, 2 unknown, 3 control, 4 user, 5 unused, 6 byte
  std::vector<std::string> merges;   // "left right"
  std::optional<int32_t> bos_id, eos_id, unk_id, pad_id;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
};

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  [[nodiscard]] virtual const ModelConfig& config() const = 0;
  [[nodiscard]] virtual const GenerationDefaults& generation_defaults() const = 0;
  [[nodiscard]] virtual const TokenizerSource& tokenizer_source() const = 0;
  // The model's own chat template; empty when it has none.
  [[nodiscard]] virtual const std::string& chat_template() const = 0;
  // Short human name: "SmolLM2 135M Instruct" or the folder's name.
  [[nodiscard]] virtual const std::string& name() const = 0;
  [[nodiscard]] virtual const std::string& path() const = 0;
  // Bytes of weights on disk.
  [[nodiscard]] virtual uint64_t weight_bytes() const = 0;
  // The most common dtype of the matrices, for reports and for --dtype/--kv-cache-dtype auto.
  [[nodiscard]] virtual DType main_dtype() const = 0;

  // Whether the weight is there (for optional roles).
  [[nodiscard]] virtual bool Has(WeightId id) const = 0;
  // kNotFound names the tensor as the file would call it.
  [[nodiscard]] virtual Result<TensorView> Weight(WeightId id) const = 0;
  [[nodiscard]] virtual RowOrder OrderOf(WeightId id) const = 0;

  // Of the files that hold the weights, when they were opened.
  [[nodiscard]] virtual std::vector<FileStamp> Stamps() const = 0;

  // Gives mapped pages back once everything was repacked.
  virtual void DropResidentPages() const = 0;
};

// `path` is a .gguf file or a folder with config.json.
Result<std::unique_ptr<Checkpoint>> OpenCheckpoint(const std::string& path);

// Where a model argument lies: a file or folder as it is; else a Hub name ("org/model") looked up
// in the local Hugging Face cache (HF_HOME, else ~/.cache/huggingface), else fetched by the `hf`
// command when that is on PATH; else kNotFound with both ways out.
Result<std::string> ResolveModelPath(const std::string& argument);

}  // namespace cleave
