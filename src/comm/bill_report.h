#pragma once
// Bill report: what each axis moved and cost, beside the prediction, as text and as JSON. Values
// in, strings out; any thread.

#include <cstdint>
#include <string>

#include "comm/bill.h"

namespace cleave {

// A table of all ranks together, a row an (axis, operation) that was used; then what it comes to.
// Several lines; "nothing was exchanged" when that is so.
std::string BillText(const Bill& bill, uint64_t generated_tokens);

// {"axes": [{"axis", "ops": [{"op", "calls", "metered_bytes", "predicted_calls", "predicted_bytes",
//                             "transfer_s", "wait_s"}]}],
//  "exact": metered as predicted, in calls and bytes, on every rank, "bubble",
//  "per_generated_token": {"generated_tokens", "axes": [{"axis", "ops": [{"op", "calls", "bytes",
//                          "transfer_s", "wait_s"}]}]},
//  "ranks": [{"replica", "rank", "pp", "tp", "cp", "step_s", "bubble", "axes": as above}]}
// Only what was used is listed. No token yet: per_generated_token.axes is empty. A world of one
// rank has neither axes nor ranks.
std::string BillJson(const Bill& bill, uint64_t generated_tokens);

}  // namespace cleave
