#pragma once
// The "did you mean" of a word that is not known. Pure.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cleave {

// Of `known` the one that takes the fewest changed letters to become `word`, when these are few;
// else empty.
std::string Nearest(std::string_view word, std::span<const std::string> known);

// Up to `most` of `known`, nearest first; letters in any case, and those that contain `word` before
// all others.
std::vector<std::string> NearestFew(std::string_view word, std::span<const std::string> known,
                                    size_t most);

}  // namespace cleave
