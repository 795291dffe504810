#include "model/tokenizer/vocab.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/rng.h"

namespace cleave::tok {

uint64_t HashText(std::string_view text) {
  uint64_t hash = 0x9e3779b97f4a7c15ULL ^ text.size();
  while (text.size() >= 8) {
    uint64_t word = 0;
    std::memcpy(&word, text.data(), 8);
    hash = (hash ^ word) * 0xbf58476d1ce4e5b9ULL;
    hash ^= hash >> 32U;
    text.remove_prefix(8);
  }
  uint64_t word = 0;
  std::memcpy(&word, text.data(), text.size());
  return MixBits(hash ^ word);
}

void Vocab::Reserve(size_t tokens, size_t bytes) {
  bytes_.reserve(bytes);
  places_.reserve(tokens);
  const size_t want = std::bit_ceil(std::max<size_t>(2 * tokens, 64));
  if (want > slots_.size()) {
    slots_.resize(want);
    Grow();
  }
}

size_t Vocab::SlotOf(uint64_t hash, std::string_view text) const {
  const size_t mask = slots_.size() - 1;
  const auto tag = static_cast<uint32_t>(hash >> 32U);
  size_t i = hash & mask;
  while (slots_[i].id != kNoToken && (slots_[i].tag != tag || Text(slots_[i].id) != text)) {
    i = (i + 1) & mask;
  }
  return i;
}

// Rebuilds the index for the present size of slots_.
void Vocab::Grow() {
  std::fill(slots_.begin(), slots_.end(), Slot{});
  for (int32_t id = 0; id < size(); ++id) {
    if (!Has(id)) continue;
    const uint64_t hash = HashText(Text(id));
    slots_[SlotOf(hash, Text(id))] = {static_cast<uint32_t>(hash >> 32U), id};
  }
}

Status Vocab::Add(int64_t id, std::string_view text) {
  if (id < 0 || id > kMaxTokenId) {
    return DataLoss(fmt::format("token id {} is outside 0..{}", id, kMaxTokenId));
  }
  if (Has(id)) return DataLoss(fmt::format("token id {} is given twice", id));
  if (text.size() > kMaxVocabBytes - bytes_.size()) {
    return DataLoss(fmt::format("token texts take more than {} bytes", kMaxVocabBytes));
  }
  if (2 * (count_ + 1) > slots_.size()) {
    slots_.resize(std::max<size_t>(64, 2 * slots_.size()));
    Grow();
  }
  const uint64_t hash = HashText(text);
  const size_t slot = SlotOf(hash, text);
  if (slots_[slot].id != kNoToken) {
    return DataLoss(
        fmt::format("token \"{}\" is given twice, as id {} and id {}", text, slots_[slot].id, id));
  }
  if (id >= size()) places_.resize(static_cast<size_t>(id) + 1);
  places_[id] = {static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(text.size())};
  bytes_.append(text);
  slots_[slot] = {static_cast<uint32_t>(hash >> 32U), static_cast<int32_t>(id)};
  ++count_;
  return OkStatus();
}

int32_t Vocab::Find(std::string_view text) const {
  if (slots_.empty()) return kNoToken;
  return slots_[SlotOf(HashText(text), text)].id;
}

std::string_view Vocab::Text(int32_t id) const {
  if (!Has(id)) return {};
  return std::string_view(bytes_).substr(places_[id].begin, places_[id].size);
}

bool Vocab::Has(int64_t id) const { return id >= 0 && id < size() && places_[id].size != kAbsent; }

}  // namespace cleave::tok
