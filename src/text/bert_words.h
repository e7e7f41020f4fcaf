// Cutting text into words before WordPiece: the one place that knows the Unicode library
// (utf8proc).
#pragma once

#include <functional>
#include <string_view>

namespace culet::text {

struct BertWordsOptions {
  bool lowercase = true;
  bool strip_accents = true;
};

// Calls `use` with each normalized word, in order. Any bytes: what is not UTF-8 is left out, as are
// control characters. Time and memory are linear in the text but for sorting runs of marks.
void for_each_bert_word(std::string_view text, BertWordsOptions options,
                        const std::function<void(std::string_view)>& use);

}  // namespace culet::text
