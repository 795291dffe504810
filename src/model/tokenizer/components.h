#pragma once
// The components of tokenizer.json: normalizer, pre_tokenizer, post_processor, decoder.
// Called once a model; any thread. Fails: kUnsupported, naming a type (or an order of decoders)
// that we do not know; kDataLoss, naming a field that is missing or of the wrong type.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "base/status.h"
#include "model/tokenizer/decoder.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/pre_tokenizer.h"

namespace cleave::tok {

// Each takes the component's object, or null for none.
Status ReadNormalizer(const nlohmann::json& component, Normalizer* normalizer);
Status ReadPreTokenizer(const nlohmann::json& component, PreTokenizer* pre_tokenizer);
Status ReadDecoder(const nlohmann::json& component, Decoder* decoder);
// What stands in front of and behind a single text.
Status ReadPostProcessor(const nlohmann::json& component, std::vector<int32_t>* prefix,
                         std::vector<int32_t>* suffix);

}  // namespace cleave::tok
