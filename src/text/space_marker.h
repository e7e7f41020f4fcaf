// U+2581, which SentencePiece's vocabularies write for a space.
#pragma once

#include <string>
#include <string_view>

namespace culet::text {

constexpr std::string_view kSpaceMarker = "\xe2\x96\x81";

// Appends the text with spaces for its markers.
inline void append_unmarked(std::string_view text, std::string* out) {
  for (;;) {
    const size_t marker = text.find(kSpaceMarker);
    out->append(text.substr(0, marker));
    if (marker == std::string_view::npos) return;
    out->push_back(' ');
    text.remove_prefix(marker + kSpaceMarker.size());
  }
}

}  // namespace culet::text
