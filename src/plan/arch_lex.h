// Lines and tokens of an architecture file.
#pragma once

#include "culet/result.h"
#include "plan/arch_ast.h"

#include <string>
#include <string_view>
#include <vector>

namespace culet::plan {

struct LexToken {
  enum class Kind { kName, kNumber, kString, kSymbol, kEnd };
  Kind kind;
  std::string text;  // name, symbol or the string's content
  double number = 0;
  int line = 0, column = 0;
};

// One logical line: a physical line, joined with the following ones while a parenthesis is open.
struct LexLine {
  int indent = 0;
  int line = 0;                  // of its first token
  std::vector<LexToken> tokens;  // ends with kEnd
};

// The line of text at a place, without indentation; what a message shows of it.
std::string source_text(const std::vector<SourceFile>& files, Place place);

// FILE:LINE:COLUMN: message, with the line of text behind it.
Error place_error(const std::vector<SourceFile>& files, Place place, ErrorCode code,
                  std::string_view message);

// Splits text into logical lines; comments and blank lines are gone. Errors name the place.
Result<std::vector<LexLine>> lex(const std::vector<SourceFile>& files, int file);

}  // namespace culet::plan
