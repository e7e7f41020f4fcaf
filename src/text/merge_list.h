// Merging neighbours by priority: the loop that byte-level BPE and SentencePiece share.
//
// Symbols form a linked list; a heap holds one entry for every pair that can merge. The pair of
// lowest priority value merges first, the leftmost among equals. n symbols cost O(n log n) whatever
// they are: each merge removes a symbol and adds at most two heap entries.
#pragma once

#include "text/tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace culet::text {

class MergeList {
 public:
  static constexpr uint32_t kNever = UINT32_MAX;

  struct Merge {
    uint32_t priority;  // lower merges first; kNever: this pair does not merge
    Token token;        // what the two become
  };
  struct Symbol {
    uint32_t begin, size;  // bytes of the text that it covers
    Token token;           // kNoToken where the text is no token (yet)
    int32_t prev, next;    // -1: none
    uint32_t pair_priority;
    Token pair_token;  // with its right neighbour
  };

  void clear() { symbols_.clear(); }
  void add(uint32_t begin, uint32_t size, Token token) {
    const int32_t i = static_cast<int32_t>(symbols_.size());
    if (i > 0) symbols_.back().next = i;
    symbols_.push_back({begin, size, token, i - 1, -1, kNever, -1});
  }

  // lookup(const Symbol& left, const Symbol& right) -> Merge
  template <class Lookup>
  void run(const Lookup& lookup) {
    heap_.clear();
    for (size_t i = 0; i + 1 < symbols_.size(); ++i) find_pair(static_cast<int32_t>(i), lookup);
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    while (!heap_.empty()) {
      const uint64_t entry = heap_.front();
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      heap_.pop_back();
      const int32_t i = static_cast<int32_t>(entry & UINT32_MAX);
      // Stale: one side has merged since. An old entry whose pair has the same priority again
      // stands for the pair that is there now, which is due at this very moment.
      if (at(i).pair_priority != entry >> 32) continue;
      join(i);
      repair(i, lookup);
      if (at(i).prev >= 0) repair(at(i).prev, lookup);
    }
  }

  // fn(const Symbol&) for every symbol that is left, in order.
  template <class F>
  void for_each(F&& fn) const {
    if (symbols_.empty()) return;
    for (int32_t i = 0; i >= 0; i = symbols_[static_cast<size_t>(i)].next) {
      fn(symbols_[static_cast<size_t>(i)]);
    }
  }

 private:
  Symbol& at(int32_t i) { return symbols_[static_cast<size_t>(i)]; }

  template <class Lookup>
  bool find_pair(int32_t i, const Lookup& lookup) {
    Symbol& left = at(i);
    left.pair_priority = kNever;
    if (left.next < 0) return false;
    const Merge merge = lookup(left, at(left.next));
    left.pair_priority = merge.priority;
    left.pair_token = merge.token;
    if (merge.priority == kNever) return false;
    heap_.push_back(uint64_t{merge.priority} << 32 | static_cast<uint32_t>(i));
    return true;
  }

  template <class Lookup>
  void repair(int32_t i, const Lookup& lookup) {
    if (find_pair(i, lookup)) std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  void join(int32_t i) {
    Symbol& left = at(i);
    Symbol& right = at(left.next);
    left.size += right.size;
    left.token = left.pair_token;
    right.pair_priority = kNever;
    left.next = right.next;
    if (left.next >= 0) at(left.next).prev = i;
  }

  std::vector<Symbol> symbols_;
  std::vector<uint64_t> heap_;  // priority << 32 | index of the left symbol
};

}  // namespace culet::text
