// Takes texts with their tokens; finds leftmost-longest matches.
//
// It is the automaton of Aho and Corasick over the reversed texts, run from the end of the input to
// its start. In that direction the state after byte i is the longest reversed prefix, so its output
// is the longest text that begins at i: one pass answers every position, and choosing from left to
// right is a second one. The usual direction would have to rescan after each match, which hostile
// token lists make quadratic.
#include "text/special_matcher.h"

#include <algorithm>
#include <numeric>

namespace culet::text {

SpecialMatcher::SpecialMatcher() : nodes_{{-1, 0, -1, -1, 0, 0}} { root_.fill(-1); }

int32_t SpecialMatcher::child(int32_t node, uint8_t byte) const {
  if (node == 0) return root_[byte];
  return children_.find(static_cast<uint64_t>(node) << 8 | byte);
}

int32_t SpecialMatcher::step(int32_t node, uint8_t byte) const {
  for (;;) {
    const int32_t next = child(node, byte);
    if (next >= 0) return next;
    if (node == 0) return 0;
    node = nodes_[static_cast<size_t>(node)].fail;
  }
}

void SpecialMatcher::add(std::string_view text, Token token) {
  if (text.empty()) return;
  int32_t node = 0;
  for (size_t i = text.size(); i-- > 0;) {
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_.push_back({node, 0, -1, -1, nodes_[static_cast<size_t>(node)].depth + 1, byte});
      if (node == 0) {
        root_[byte] = next;
      } else {
        children_.insert(static_cast<uint64_t>(node) << 8 | byte, next);
      }
    }
    node = next;
  }
  Token& end = nodes_[static_cast<size_t>(node)].token;
  if (end < 0) end = token;
}

void SpecialMatcher::build() {
  std::vector<int32_t> order(nodes_.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [this](int32_t a, int32_t b) {
    return nodes_[static_cast<size_t>(a)].depth < nodes_[static_cast<size_t>(b)].depth;
  });
  for (const int32_t i : order) {
    if (i == 0) continue;
    Node& node = nodes_[static_cast<size_t>(i)];
    node.fail =
        node.parent == 0 ? 0 : step(nodes_[static_cast<size_t>(node.parent)].fail, node.byte);
    node.output = node.token >= 0 ? i : nodes_[static_cast<size_t>(node.fail)].output;
  }
}

std::vector<SpecialMatcher::Match> SpecialMatcher::find(std::string_view text) const {
  std::vector<Match> found;
  if (empty()) return found;
  int32_t state = 0;
  for (size_t i = text.size(); i-- > 0;) {
    state = step(state, static_cast<uint8_t>(text[i]));
    const int32_t output = nodes_[static_cast<size_t>(state)].output;
    if (output < 0) continue;
    const Node& node = nodes_[static_cast<size_t>(output)];
    found.push_back({i, node.depth, node.token});
  }
  std::reverse(found.begin(), found.end());
  size_t kept = 0, free_from = 0;
  for (const Match& match : found) {
    if (match.begin < free_from) continue;
    free_from = match.begin + match.size;
    found[kept++] = match;
  }
  found.resize(kept);
  return found;
}

}  // namespace culet::text
