#pragma once
// The weights of a Hugging Face folder: model.safetensors, or the shards that
// model.safetensors.index.json names. Maps every file and checks its header; data stays untouched.
// Fails: kNotFound (no weights; says which other formats lie there), kDataLoss, kInvalidArgument
// (an index that points outside the folder).

#include <map>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"
#include "model/format/safetensors.h"

namespace cleave {

struct HfWeights {
  std::vector<MappedFile> files;
  SafeTensors tensors;  // views into the files
};

Result<HfWeights> OpenHfWeights(const std::string& folder);

}  // namespace cleave
