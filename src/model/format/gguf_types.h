#pragma once
// The element types a GGUF file may name, by number. Numbers and names are those of the public ggml
// type list; the types Cleave computes with are a subset. Pure; any thread.

#include <cstdint>
#include <optional>
#include <string>

#include "tensor/dtype.h"

namespace cleave {

// Nothing when Cleave does not know how to read the type.
std::optional<DType> DTypeOfGgml(uint32_t ggml_type);

// "IQ4_NL"; "type number 77" when there is no such type.
std::string GgmlTypeName(uint32_t ggml_type);

// "F32, F16, BF16, Q4_0, …"
std::string SupportedGgmlTypes();

}  // namespace cleave
