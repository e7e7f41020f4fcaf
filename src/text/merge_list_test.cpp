#include "text/merge_list.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

namespace culet::text {
namespace {

// Merges texts by a table (left, right) -> priority and shows where the symbols end up.
std::string merged(const std::string& text,
                   const std::map<std::pair<std::string, std::string>, uint32_t>& rules) {
  MergeList list;
  for (uint32_t i = 0; i < text.size(); ++i) list.add(i, 1, 0);
  list.run([&](const MergeList::Symbol& left, const MergeList::Symbol& right) {
    const auto rule =
        rules.find({text.substr(left.begin, left.size), text.substr(right.begin, right.size)});
    return rule == rules.end() ? MergeList::Merge{MergeList::kNever, -1}
                               : MergeList::Merge{rule->second, 0};
  });
  std::string out;
  list.for_each([&](const MergeList::Symbol& symbol) {
    if (!out.empty()) out += '|';
    out += text.substr(symbol.begin, symbol.size);
  });
  return out;
}

TEST(MergeList, LowestPriorityFirst) {
  EXPECT_EQ(merged("abc", {{{"a", "b"}, 2}, {{"b", "c"}, 1}}), "a|bc");
  EXPECT_EQ(merged("abc", {{{"a", "b"}, 1}, {{"b", "c"}, 2}}), "ab|c");
}

TEST(MergeList, LeftmostAmongEquals) {
  EXPECT_EQ(merged("aaaaa", {{{"a", "a"}, 1}}), "aa|aa|a");
  EXPECT_EQ(merged("abc", {{{"a", "b"}, 1}, {{"b", "c"}, 1}}), "ab|c");
}

TEST(MergeList, NewPairsMayOutrankOldOnes) {
  EXPECT_EQ(merged("abcd", {{{"a", "b"}, 5}, {{"ab", "c"}, 1}, {{"c", "d"}, 3}}), "ab|cd");
  EXPECT_EQ(merged("abcd", {{{"a", "b"}, 2}, {{"ab", "c"}, 1}, {{"c", "d"}, 3}}), "abc|d");
}

TEST(MergeList, StaleEntriesAreSkipped) {
  EXPECT_EQ(merged("aaaa", {{{"a", "a"}, 1}, {{"aa", "aa"}, 2}}), "aaaa");
  EXPECT_EQ(merged("aaa", {{{"a", "a"}, 1}, {{"aa", "a"}, 1}}), "aaa");
}

TEST(MergeList, EmptyAndSingle) {
  EXPECT_EQ(merged("", {}), "");
  EXPECT_EQ(merged("a", {{{"a", "a"}, 1}}), "a");
}

TEST(MergeList, ClearStartsAnew) {
  MergeList list;
  list.add(0, 1, 7);
  list.clear();
  list.add(3, 2, 8);
  int seen = 0;
  list.for_each([&](const MergeList::Symbol& symbol) {
    EXPECT_EQ(symbol.begin, 3u);
    EXPECT_EQ(symbol.prev, -1);
    ++seen;
  });
  EXPECT_EQ(seen, 1);
}

}  // namespace
}  // namespace culet::text
