// Takes a file's token array and kinds; gives lookups both ways.
//
// All texts lie in one string: a vocabulary has up to a quarter million entries, and one allocation
// each would make loading slow. The index is a table of ids, at most half full, compared against
// that string; the first id with a text wins, which is the rule for duplicates.
#include "text/token_table.h"

#include "text/hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

namespace culet::text {
namespace {

constexpr size_t kMaxTokens = size_t{1} << 28;

Result<void> check_kinds(const Vocabulary& vocabulary) {
  const size_t tokens = vocabulary.tokens.size(), kinds = vocabulary.kinds.size();
  if (kinds != 0 && kinds != tokens) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("the vocabulary has {} tokens but {} token types; the file is damaged "
                            "or badly converted, fetch it again",
                            tokens, kinds));
  }
  for (size_t i = 0; i < kinds; ++i) {
    const int kind = static_cast<int>(vocabulary.kinds[i]);
    if (kind < 1 || kind > 6) {
      return fail(ErrorCode::kCorrupt,
                  fmt::format("token {} has type {}, but types are 1 to 6; the file is damaged or "
                              "badly converted, fetch it again",
                              i, kind));
    }
  }
  return {};
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

Result<TokenTable> TokenTable::make(const Vocabulary& vocabulary) {
  const size_t n = vocabulary.tokens.size();
  if (n == 0 || n > kMaxTokens) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("the vocabulary has {} tokens; 1 to {} are possible, so the file is "
                            "damaged, fetch it again",
                            n, kMaxTokens));
  }
  CULET_TRY_VOID(check_kinds(vocabulary));

  TokenTable table;
  table.key_ = new_hash_key();
  table.kinds_ = vocabulary.kinds;
  size_t total = 0;
  for (const std::string_view text : vocabulary.tokens) total += text.size();
  table.bytes_.reserve(total);
  table.offsets_.reserve(n + 1);
  table.offsets_.push_back(0);
  table.slots_.assign(std::bit_ceil(n * 2), kNoToken);
  const size_t mask = table.slots_.size() - 1;
  for (size_t id = 0; id < n; ++id) {
    const std::string_view text = vocabulary.tokens[id];
    table.bytes_.append(text);
    table.offsets_.push_back(table.bytes_.size());
    table.longest_ = std::max(table.longest_, text.size());
    size_t slot = hash_bytes(text, table.key_) & mask;
    while (table.slots_[slot] != kNoToken && table.text(table.slots_[slot]) != text) {
      slot = (slot + 1) & mask;
    }
    if (table.slots_[slot] == kNoToken) table.slots_[slot] = static_cast<Token>(id);
  }
  return table;
}

Token TokenTable::find(std::string_view wanted) const {
  if (wanted.size() > longest_) return kNoToken;
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash_bytes(wanted, key_) & mask;; slot = (slot + 1) & mask) {
    const Token t = slots_[slot];
    if (t == kNoToken || text(t) == wanted) return t;
  }
}

std::optional<uint8_t> TokenTable::byte(Token t) const {
  const std::string_view s = text(t);
  if (s.size() != 6 || s.substr(0, 3) != "<0x" || s[5] != '>') return std::nullopt;
  const int high = hex_digit(s[3]), low = hex_digit(s[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<uint8_t>(high * 16 + low);
}

}  // namespace culet::text
