// Takes a pattern once and texts often; gives the parts that a text splits into.
//
// Patterns are compiled with UTF and UCP and translated to machine code where the system allows it
// (a hardened kernel may not; then the interpreter runs, slower, with the same answers). Limits on
// backtracking and heap scale with the text, so that a pattern that explodes becomes an error. The
// caller has checked the UTF-8: checking again for each of many small spans would cost more than
// the matching.
#include "text/regex.h"

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

namespace culet::text {
namespace {

constexpr uint32_t kHeapKibibytes = 64 << 10;

struct FreeData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

std::string error_text(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

uint32_t match_limit(size_t bytes) {
  return static_cast<uint32_t>(std::min<uint64_t>(1'000'000 + 32 * uint64_t{bytes}, UINT32_MAX));
}

class Matcher {
 public:
  Matcher(const pcre2_code* code, size_t bytes)
      : code_(code),
        data_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {
    if (!ready()) return;
    pcre2_set_match_limit(context_.get(), match_limit(bytes));
    pcre2_set_heap_limit(context_.get(), kHeapKibibytes);
  }
  bool ready() const { return data_ && context_; }

  // PCRE2's return value; the match is in *match.
  int next(std::string_view text, size_t from, Span* match) {
    int rc = run(text, from, PCRE2_NO_UTF_CHECK);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = run(text, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);
    if (rc >= 0) {
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data_.get());
      *match = {ends[0], ends[1]};
    }
    return rc;
  }

 private:
  int run(std::string_view text, size_t from, uint32_t options) {
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, options,
                       data_.get(), context_.get());
  }

  const pcre2_code* code_;
  std::unique_ptr<pcre2_match_data, FreeData> data_;
  std::unique_ptr<pcre2_match_context, FreeContext> context_;
};

Result<void> split_span(Matcher* matcher, std::string_view text, Span span,
                        std::vector<Span>* parts) {
  const std::string_view part = text.substr(span.begin, span.end - span.begin);
  size_t done = 0;
  while (done < part.size()) {
    Span match{};
    const int rc = matcher->next(part, done, &match);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) {
      return fail(ErrorCode::kExhausted,
                  fmt::format("splitting a text of {} bytes into words failed ({}); split it up "
                              "and try again",
                              part.size(), error_text(rc)));
    }
    if (match.end <= match.begin) break;  // an empty match: no pattern of ours has one
    if (match.begin > done) parts->push_back({span.begin + done, span.begin + match.begin});
    parts->push_back({span.begin + match.begin, span.begin + match.end});
    done = match.end;
  }
  if (done < part.size()) parts->push_back({span.begin + done, span.end});
  return {};
}

}  // namespace

void Regex::Free::operator()(void* code) const { pcre2_code_free(static_cast<pcre2_code*>(code)); }

Result<Regex> Regex::compile(std::string_view pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (code == nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the regular expression `{}` is wrong at byte {}: {}", pattern, offset,
                            error_text(error)));
  }
  Regex regex;
  regex.code_.reset(code);
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // failing leaves the interpreter
  return regex;
}

Result<void> Regex::split(std::string_view text, std::vector<Span>* spans) const {
  Matcher matcher(static_cast<const pcre2_code*>(code_.get()), text.size());
  if (!matcher.ready()) {
    return fail(ErrorCode::kExhausted,
                "no memory to split a text into words; close other programs");
  }
  std::vector<Span> parts;
  parts.reserve(spans->size());
  for (const Span span : *spans) CULET_TRY_VOID(split_span(&matcher, text, span, &parts));
  *spans = std::move(parts);
  return {};
}

}  // namespace culet::text
