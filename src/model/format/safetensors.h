#pragma once
// safetensors: a u64 header length, a JSON header, then tensor data.
//
//   {"name": {"dtype": "BF16", "shape": [out, in], "data_offsets": [begin, end]}, …,
//    "__metadata__": {…}}          offsets count from the end of the header
//
// Every entry's range is checked against the file, and against its shape where the type is known.
// A type Cleave does not compute with is kept by name and refused when its tensor is asked for.
// Views point into `bytes`; whoever mapped the file keeps it. Pure; any thread.
// Fails: kDataLoss (damaged or cut short), kUnsupported (element types, by name).

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "base/status.h"
#include "tensor/view.h"

namespace cleave {

struct SafeTensor {
  std::string dtype_name;  // as the file spells it
  bool supported = false;  // view.dtype holds only when set
  TensorView view;
};

using SafeTensors = std::map<std::string, SafeTensor, std::less<>>;

Result<SafeTensors> ParseSafetensors(std::span<const std::byte> bytes);

// The view, or kUnsupported with the type's name.
Result<TensorView> SupportedView(const std::string& name, const SafeTensor& tensor);

}  // namespace cleave
