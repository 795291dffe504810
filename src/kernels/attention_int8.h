#pragma once
// The scale of a row of an int8 KV cache (kv_type.h), by which every instruction set rounds it.
// Pure; any thread.

namespace cleave::attention {

struct Int8Scale {
  float scale;    // what is stored
  float inverse;  // what the row is multiplied with; 0: the row is stored as zeros
};

// `largest`: the row's largest magnitude; infinity or NaN where an element is not finite.
Int8Scale Int8ScaleOf(float largest);

}  // namespace cleave::attention
