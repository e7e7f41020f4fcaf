// Any text through every pre-tokenizer, and a long repetitive one made of it through one or all.
//
// Input: byte 0 chooses the row for the long text (0: all of them), byte 1 how often its unit
// repeats (a power of two), byte 2 the length of the unit; then the text, whose first bytes are the
// unit and whose rest ends the long text. What must hold: the words join to the text, without gaps
// or empty ones; no pattern reaches a limit; the time grows with the length, not with its square.
#include "base/utf8.h"
#include "text/pretokenizer.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace culet;
using text::Pretokenizer;
using text::PretokenizerRow;
using text::Span;

constexpr size_t kHead = 3;
constexpr size_t kLongest = 1 << 14;
// Processor time. A slow machine with the sanitizers needs a tenth of it, quadratic time ten times
// as much at this length.
constexpr double kSecondsAByte = 2e-6, kSecondsBefore = 0.05;

void require(bool holds, std::string_view row, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%.*s: does not hold: %s\n", static_cast<int>(row.size()), row.data(), what);
  std::abort();
}

// The words must be the same, and the time linear, with and without PCRE2's translation to machine
// code, which knows more shortcuts than its interpreter and is forbidden on some systems.
struct Splitter {
  std::string_view name;
  Pretokenizer translated, interpreted;
};

PretokenizerRow without_translation(PretokenizerRow row) {
  static std::deque<std::string> kept;
  for (std::string_view& pattern : row.patterns) {
    if (!pattern.empty()) pattern = kept.emplace_back("(*NO_JIT)" + std::string(pattern));
  }
  return row;
}

// One for each list of patterns; many rows share theirs.
const std::vector<Splitter>& splitters() {
  static const std::vector<Splitter> all = [] {
    std::vector<Splitter> made;
    std::vector<const PretokenizerRow*> seen;
    for (const PretokenizerRow& row : text::pretokenizer_rows()) {
      const auto same = [&](const PretokenizerRow* other) {
        return other->patterns == row.patterns;
      };
      if (std::any_of(seen.begin(), seen.end(), same)) continue;
      seen.push_back(&row);
      made.push_back({row.name, Pretokenizer(row), Pretokenizer(without_translation(row))});
    }
    return made;
  }();
  return all;
}

// split() is promised valid UTF-8; what is invalid becomes U+FFFD here.
std::string valid_text(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  std::string out;
  for (size_t at = 0; at < bytes.size();) {
    const base::Utf8Step step = base::utf8_step(bytes, at);
    base::utf8_append(step.code, &out);
    at += static_cast<size_t>(step.length);
  }
  return out;
}

std::vector<Span> checked_words(std::string_view name, const Pretokenizer& split,
                                std::string_view text) {
  auto words = split.split(text);
  require(words.has_value(), name, "no text reaches a limit");
  size_t end = 0;
  for (const Span& word : *words) {
    require(word.begin == end, name, "no gaps");
    require(word.begin < word.end, name, "no empty words");
    end = word.end;
  }
  require(end == text.size(), name, "the words join to the text");
  return std::move(*words);
}

void check_words(const Splitter& splitter, std::string_view text) {
  const std::vector<Span> words = checked_words(splitter.name, splitter.translated, text);
  for (const Span& word : words) {
    require(base::utf8_valid(text.substr(word.begin, word.end - word.begin)), splitter.name,
            "no code point is cut");
  }
  require(words == checked_words(splitter.name, splitter.interpreted, text), splitter.name,
          "translated and interpreted patterns agree");
}

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Another program may have emptied a cache meanwhile: the best of three counts.
void check_time(std::string_view name, const Pretokenizer& split, std::string_view text) {
  const double limit = kSecondsBefore + kSecondsAByte * static_cast<double>(text.size());
  for (int tries = 0; tries < 3; ++tries) {
    const double start = processor_seconds();
    checked_words(name, split, text);
    if (processor_seconds() - start < limit) return;
  }
  require(false, name, "time grows with the length");
}

std::string long_text(const std::string& unit, size_t repeats, const std::string& tail) {
  std::string out;
  for (size_t i = 0; i < repeats && out.size() + unit.size() <= kLongest; ++i) out += unit;
  return out + tail;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < kHead || size > kLongest) return 0;
  const size_t unit_size = std::min<size_t>(data[2], size - kHead);
  const std::string unit = valid_text(data + kHead, unit_size);
  const std::string tail = valid_text(data + kHead + unit_size, size - kHead - unit_size);
  for (const Splitter& splitter : splitters()) check_words(splitter, unit + tail);
  const size_t repeats = size_t{1} << (data[1] % 15);
  if (repeats > 1 && !unit.empty()) {
    const std::string text = long_text(unit, repeats, tail);
    for (size_t i = 0; i < splitters().size(); ++i) {
      if (data[0] != 0 && (data[0] - size_t{1}) % splitters().size() != i) continue;
      const Splitter& splitter = splitters()[i];
      check_time(splitter.name, splitter.translated, text);
      check_time(splitter.name, splitter.interpreted, text);
    }
  }
  return 0;
}
