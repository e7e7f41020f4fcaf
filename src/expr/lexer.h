// Lines and tokens of a text that holds expressions.
#pragma once

#include "culet/result.h"
#include "expr/source.h"

#include <string>
#include <string_view>
#include <vector>

namespace culet::expr {

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

// Splits a file into logical lines; comments and blank lines are gone. Errors name the location.
Result<std::vector<LexLine>> lex(const std::vector<SourceFile>& files, int file);
// The same of bytes [begin, end) of the file.
Result<std::vector<LexLine>> lex_part(const std::vector<SourceFile>& files, int file, size_t begin,
                                      size_t end);

}  // namespace culet::expr
