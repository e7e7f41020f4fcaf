// One member of a ZIP archive (a wheel), by its exact name. Nothing else of it is looked at.
//
// Stored and deflated members, no encryption, no ZIP64. Every offset and size is checked against
// the archive, the output against what the directory says and `limit`, the content by its CRC-32.
// Format: PKWARE APPNOTE.TXT 6.3, sections 4.3.7, 4.3.12 and 4.3.16.
#pragma once

#include "culet/result.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

namespace culet::resolve {

// Called with the member's bytes in order; an error ends the extraction.
using ZipSink = std::function<Result<void>(std::span<const std::byte>)>;

// kNotFound: no such member. kCorrupt: a broken rule, two members of this name, more bytes than
// `limit`. kUnsupported: ZIP64, encryption, another method.
Result<void> extract_member(std::span<const std::byte> archive, std::string_view name,
                            uint64_t limit, const ZipSink& sink);

}  // namespace culet::resolve
