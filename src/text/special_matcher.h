// Finds the tokens that are matched in the text itself (control and user-defined ones), in time
// linear in the text, whatever the tokens are.
#pragma once

#include "text/hash.h"
#include "text/tokenizer.h"

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace culet::text {

class SpecialMatcher {
 public:
  struct Match {
    size_t begin, size;
    Token token;
  };

  SpecialMatcher();
  // All texts first, then build(), then find() from any thread. An empty text matches nothing; of
  // two equal texts the first stays.
  void add(std::string_view text, Token token);
  void build();

  bool empty() const { return nodes_.size() == 1; }
  // From left to right, at each position the longest text that begins there; never overlapping.
  std::vector<Match> find(std::string_view text) const;

 private:
  struct Node {
    int32_t parent, fail;
    int32_t output;  // this node or the nearest on its fail chain where a text ends, or -1
    Token token;     // of the text that ends here, or -1
    uint32_t depth;
    uint8_t byte;
  };
  int32_t child(int32_t node, uint8_t byte) const;
  int32_t step(int32_t node, uint8_t byte) const;

  std::vector<Node> nodes_;
  std::array<int32_t, 256> root_;  // children of the root, or -1
  NumberMap children_;             // of all others: node << 8 | byte
};

}  // namespace culet::text
