// Texts that hold expressions, locations in them, and messages that name a location.
#pragma once

#include "culet/result.h"

#include <string>
#include <string_view>
#include <vector>

namespace culet::expr {

struct SourceFile {
  std::string name;  // shown in messages: "llama.arch" or a path
  std::string text;
  int first_line = 0;  // line of the flattened text before this file's line 1
};

struct SourceLocation {
  int file = 0;    // index into the list of files
  int line = 0;    // from 1
  int column = 0;  // from 1
};

// The line of text at a location, without indentation; what a message shows of it.
std::string source_text(const std::vector<SourceFile>& files, SourceLocation location);

// FILE:LINE:COLUMN: message, with the line of text behind it.
Error error_at(const std::vector<SourceFile>& files, SourceLocation location, ErrorCode code,
               std::string_view message);

}  // namespace culet::expr
