// Takes text; gives the words that WordPiece looks up, normalized as uncased BERT models expect.
//
// The steps are those of the published tokenizer (BertNormalizer and BertPreTokenizer): control
// characters go and white space separates; a CJK ideograph is a word of its own; characters are
// decomposed canonically and non-spacing marks dropped (strip_accents); letters become lower case;
// a punctuation character is a word of its own. Each step works on single characters, except that
// decomposition orders a run of marks by combining class: the run is held back until it ends.
// Marks are sorted here and not by the library, whose own ordering is quadratic in such a run.
#include "text/bert_words.h"

#include "base/utf8.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

namespace culet::text {
namespace {

constexpr char32_t kCapitalIWithDot = 0x130, kDotAbove = 0x307;

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_space(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return true;
  const utf8proc_category_t of = category(c);
  return of == UTF8PROC_CATEGORY_ZS || of == UTF8PROC_CATEGORY_ZL || of == UTF8PROC_CATEGORY_ZP;
}

// Unassigned code points stay: they may be letters of a newer Unicode.
bool is_dropped(char32_t c) {
  if (c == 0 || c == base::kReplacement) return true;
  const utf8proc_category_t of = category(c);
  return of == UTF8PROC_CATEGORY_CC || of == UTF8PROC_CATEGORY_CF || of == UTF8PROC_CATEGORY_CO;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) {
    return (c >= 0x21 && c <= 0x2f) || (c >= 0x3a && c <= 0x40) || (c >= 0x5b && c <= 0x60) ||
           (c >= 0x7b && c <= 0x7e);
  }
  const utf8proc_category_t of = category(c);
  return of >= UTF8PROC_CATEGORY_PC && of <= UTF8PROC_CATEGORY_PO;
}

// The blocks of the published tokenizer, its gap from U+2B820 to U+2B91F included.
bool is_ideograph(char32_t c) {
  constexpr struct {
    char32_t first, last;
  } kBlocks[] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},   {0x20000, 0x2a6df},
                 {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f}};
  return std::any_of(std::begin(kBlocks), std::end(kBlocks),
                     [c](const auto& block) { return c >= block.first && c <= block.last; });
}

class Cutter {
 public:
  Cutter(BertWordsOptions options, const std::function<void(std::string_view)>& use)
      : options_(options), use_(use) {}

  void add(char32_t c) {
    if (is_space(c)) return end_word();
    if (is_dropped(c)) return;
    const bool alone = is_ideograph(c);
    if (alone) end_word();
    if (options_.strip_accents) {
      decompose(c);
    } else {
      lower(c);
    }
    if (alone) end_word();
  }

  void end_word() {
    end_run();
    if (!word_.empty()) use_(word_);
    word_.clear();
  }

 private:
  struct Mark {
    int combining_class;
    size_t place;  // in the run: equals keep their order
    char32_t code;
  };

  void decompose(char32_t c) {
    utf8proc_int32_t parts[32];  // the longest canonical decomposition has 4
    int boundary = 0;
    const utf8proc_ssize_t n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 32,
                                                       UTF8PROC_DECOMPOSE, &boundary);
    if (n < 1 || n > 32) return lower(c);
    for (utf8proc_ssize_t i = 0; i < n; ++i) {
      const int combining_class = utf8proc_get_property(parts[i])->combining_class;
      const char32_t part = static_cast<char32_t>(parts[i]);
      if (combining_class != 0) {
        run_.push_back({combining_class, run_.size(), part});
        continue;
      }
      end_run();
      if (category(part) != UTF8PROC_CATEGORY_MN) lower(part);
    }
  }

  void end_run() {
    if (run_.empty()) return;
    std::sort(run_.begin(), run_.end(), [](const Mark& a, const Mark& b) {
      return std::tie(a.combining_class, a.place) < std::tie(b.combining_class, b.place);
    });
    for (const Mark& mark : run_) {
      if (category(mark.code) != UTF8PROC_CATEGORY_MN) lower(mark.code);
    }
    run_.clear();
  }

  void lower(char32_t c) {
    if (!options_.lowercase) return put(c);
    if (c == kCapitalIWithDot) {  // the one letter that two stand for
      put('i');
      return put(kDotAbove);
    }
    put(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }

  void put(char32_t c) {
    if (is_space(c) || is_punctuation(c)) {
      if (!word_.empty()) use_(word_);
      word_.clear();
      if (is_space(c)) return;  // decompositions of some spaces are others
      use_(base::utf8_encode(c));
    } else {
      base::utf8_append(c, &word_);
    }
  }

  BertWordsOptions options_;
  const std::function<void(std::string_view)>& use_;
  std::string word_;
  std::vector<Mark> run_;  // marks whose order is not settled yet
};

}  // namespace

void for_each_bert_word(std::string_view text, BertWordsOptions options,
                        const std::function<void(std::string_view)>& use) {
  Cutter cutter(options, use);
  for (size_t pos = 0; pos < text.size();) {
    const base::Utf8Step step = base::utf8_step(text, pos);
    cutter.add(step.code);
    pos += static_cast<size_t>(step.length);
  }
  cutter.end_word();
}

}  // namespace culet::text
