#include "kv/block_hash.h"

#include <openssl/evp.h>

#include <array>
#include <cstring>

#include "base/status.h"

namespace cleave {

struct BlockHasher::Context {
  EVP_MD* digest = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  EVP_MD_CTX* state = EVP_MD_CTX_new();

  Context() { CLEAVE_CHECK(digest != nullptr && state != nullptr); }
  ~Context() {
    EVP_MD_CTX_free(state);
    EVP_MD_free(digest);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  BlockHash Digest(const BlockHash& parent, std::span<const int32_t> tokens,
                   std::string_view salt) {
    std::array<unsigned char, EVP_MAX_MD_SIZE> full;
    const bool ok = EVP_DigestInit_ex(state, digest, nullptr) == 1 &&
                    EVP_DigestUpdate(state, &parent, sizeof(parent)) == 1 &&
                    EVP_DigestUpdate(state, tokens.data(), tokens.size_bytes()) == 1 &&
                    EVP_DigestUpdate(state, salt.data(), salt.size()) == 1 &&
                    EVP_DigestFinal_ex(state, full.data(), nullptr) == 1;
    CLEAVE_CHECK(ok);
    BlockHash name;
    std::memcpy(&name, full.data(), sizeof(name));
    return name;
  }
};

BlockHasher::BlockHasher(const BlockHash& root)
    : root_(root), context_(std::make_unique<Context>()) {}

BlockHasher::~BlockHasher() = default;

BlockHash BlockHasher::First(std::span<const int32_t> tokens, std::string_view salt) {
  return context_->Digest(root_, tokens, salt);
}

BlockHash BlockHasher::Next(const BlockHash& parent, std::span<const int32_t> tokens) {
  return context_->Digest(parent, tokens, {});
}

}  // namespace cleave
