// Takes tokens one at a time, gives text that is always whole UTF-8.
//
// A token may end in the middle of a character; those bytes (three at most) wait for the next one.
// Only the new bytes are looked at, so a long answer costs no more per token than a short one.
#include "base/utf8.h"
#include "text/tokenizer.h"

namespace culet::text {
namespace {

void append_valid(std::string_view bytes, std::string* out) {
  for (size_t pos = 0; pos < bytes.size();) {
    const base::Utf8Step step = base::utf8_step(bytes, pos);
    if (step.valid) {
      out->append(bytes.substr(pos, static_cast<size_t>(step.length)));
    } else {
      base::utf8_append(base::kReplacement, out);
    }
    pos += static_cast<size_t>(step.length);
  }
}

}  // namespace

void Detokenizer::push(Token t, std::string* out) {
  tokenizer_->append_piece(t, special_, &pending_);
  const size_t whole = pending_.size() - static_cast<size_t>(base::utf8_incomplete_tail(pending_));
  append_valid(std::string_view(pending_).substr(0, whole), out);
  pending_.erase(0, whole);
}

void Detokenizer::flush(std::string* out) {
  append_valid(pending_, out);
  pending_.clear();
}

}  // namespace culet::text
