// Splits a template into tokens: literal text, and what stands inside {{ }} and {% %}.
//
// All whitespace control happens here (trim_blocks, lstrip_blocks, the signs - and +), so the
// parser sees only text that will be printed. Comments and raw markers are gone.
#pragma once

#include "culet/result.h"
#include "template/ast.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace culet::chat {

enum class TokenKind : uint8_t {
  kText,        // value: literal text
  kPrintBegin,  // {{
  kPrintEnd,    // }}
  kBlockBegin,  // {%
  kBlockEnd,    // %}
  kName,        // value
  kString,      // value, escapes resolved
  kInteger,     // integer
  kFloat,       // real
  kOperator,    // value: one of + - / // * % ** ~ [ ] ( ) { } == != > >= < <= = . : | , ;
  kEnd,
};

struct Token {
  TokenKind kind;
  Position at;
  std::string value;
  int64_t integer = 0;
  double real = 0;

  bool is_op(std::string_view op) const { return kind == TokenKind::kOperator && value == op; }
  bool is_name(std::string_view name) const { return kind == TokenKind::kName && value == name; }
};

// Line breaks as \n, without the last one: what positions refer to.
std::string normalize_source(std::string_view source);

// "line 3, column 7" of a position in a normalized source.
std::string describe_position(std::string_view source, Position at);

// Tokens of a normalized source, kEnd last. Errors: kInvalidArgument with line and column.
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace culet::chat
