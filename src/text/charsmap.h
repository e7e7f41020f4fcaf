// The table by which a SentencePiece vocabulary rewrites characters before it looks for tokens:
// tokenizer.ggml.precompiled_charsmap. Immutable.
//
// The bytes are a length (uint32, little-endian), a trie of that many bytes, and the texts that it
// leads to, each closed by a zero byte. The trie is a double array of uint32 units, as the library
// darts-clone writes it: a unit holds the byte that leads to it, whether a key ends there, and
// where its children are; the unit of an end holds the place of its text.
#pragma once

#include "culet/result.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace culet::text {

class Charsmap {
 public:
  Charsmap() = default;  // changes nothing
  // kCorrupt: sizes that do not fit, texts that are not closed or longer than any that Unicode has.
  static Result<Charsmap> make(std::string_view bytes);

  struct Found {
    size_t size = 0;        // bytes of the key; 0: no key begins here
    std::string_view text;  // what stands in its place
  };
  // The longest key that `text` begins with. Any bytes may be in the trie: bounded in time.
  Found find(std::string_view text) const;

 private:
  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace culet::text
