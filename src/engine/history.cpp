// Forgetting is done a chunk at a time, so that appending stays cheap and the digest can be
// computed again from the tokens alone.
#include "engine/history.h"

#include "base/sha256.h"

#include <algorithm>
#include <utility>

namespace culet::engine {
namespace {

std::string next_digest(const std::string& before, std::span<const Token> chunk) {
  base::Sha256 sum;
  sum.update(std::as_bytes(std::span(before.data(), before.size())));
  sum.update(std::as_bytes(chunk));
  return sum.hex();
}

}  // namespace

std::optional<History> History::restored(int64_t forgotten, std::string digest,
                                         std::vector<Token> kept) {
  const bool hex =
      digest.size() == 64 && digest.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (forgotten < 0 || forgotten % kChunk != 0 || (forgotten == 0 ? !digest.empty() : !hex))
    return std::nullopt;
  History history;
  history.forgotten_ = forgotten;
  history.digest_ = std::move(digest);
  history.kept_ = std::move(kept);
  return history;
}

void History::append(std::span<const Token> tokens) {
  kept_.insert(kept_.end(), tokens.begin(), tokens.end());
}

bool History::resize(int64_t length) {
  if (length == 0) {
    clear();
    return true;
  }
  if (length < forgotten_ || length > this->length()) return false;
  kept_.resize(static_cast<size_t>(length - forgotten_));
  return true;
}

void History::forget_all_but(int64_t last) {
  const int64_t chunks = (static_cast<int64_t>(kept_.size()) - last) / kChunk;
  if (chunks <= 0) return;
  for (int64_t i = 0; i < chunks; ++i) {
    digest_ = next_digest(digest_, std::span(kept_).subspan(static_cast<size_t>(i * kChunk),
                                                            static_cast<size_t>(kChunk)));
  }
  kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(chunks * kChunk));
  forgotten_ += chunks * kChunk;
}

// What is forgotten is known by its digest only, so both must have forgotten the same.
bool History::begins_with(const History& other) const {
  return forgotten_ == other.forgotten_ && digest_ == other.digest_ &&
         kept_.size() >= other.kept_.size() &&
         std::equal(other.kept_.begin(), other.kept_.end(), kept_.begin());
}

int64_t History::common_prefix(std::span<const Token> tokens) const {
  if (static_cast<int64_t>(tokens.size()) < forgotten_) return 0;
  std::string digest;
  for (int64_t i = 0; i < forgotten_; i += kChunk) {
    digest =
        next_digest(digest, tokens.subspan(static_cast<size_t>(i), static_cast<size_t>(kChunk)));
  }
  if (digest != digest_) return 0;
  const auto rest = tokens.subspan(static_cast<size_t>(forgotten_));
  const auto differ = std::mismatch(rest.begin(), rest.end(), kept_.begin(), kept_.end());
  return forgotten_ + (differ.first - rest.begin());
}

}  // namespace culet::engine
