// Takes logical lines, gives expressions: recursive descent over tokens. Which name is a number, a
// value or a tensor is for the reader of the tree to decide.
#pragma once

#include "culet/result.h"
#include "expr/ast.h"
#include "expr/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace culet::expr {

// A position in the lines of one file. Only at_end() and more_lines() may be asked behind the last.
class TokenReader {
 public:
  TokenReader(const std::vector<SourceFile>& files, int file, std::vector<LexLine> lines)
      : files_(files), file_(file), lines_(std::move(lines)) {}

  bool more_lines() const { return line_ < lines_.size(); }
  const LexToken& peek(size_t ahead = 0) const {
    const auto& t = lines_[line_].tokens;
    return t[std::min(token_ + ahead, t.size() - 1)];
  }
  const LexToken& take_token() {
    const auto& t = lines_[line_].tokens;
    const LexToken& r = t[token_];
    if (token_ + 1 < t.size()) ++token_;
    return r;
  }
  bool is_symbol(std::string_view s, size_t ahead = 0) const {
    return peek(ahead).kind == LexToken::Kind::kSymbol && peek(ahead).text == s;
  }
  bool is_word(std::string_view s, size_t ahead = 0) const {
    return peek(ahead).kind == LexToken::Kind::kName && peek(ahead).text == s;
  }
  bool accept_symbol(std::string_view s) { return is_symbol(s) && (take_token(), true); }
  bool accept_word(std::string_view s) { return is_word(s) && (take_token(), true); }
  bool at_end() const { return peek().kind == LexToken::Kind::kEnd; }
  int line_indent() const { return lines_[line_].indent; }
  int file() const { return file_; }
  void next_line() { ++line_, token_ = 0; }
  SourceLocation location() const { return {file_, peek().line, peek().column}; }

  tl::unexpected<Error> error(SourceLocation p, std::string_view message) const {
    return tl::unexpected<Error>(error_at(files_, p, ErrorCode::kInvalidArgument, message));
  }
  tl::unexpected<Error> expected(std::string_view what) const {
    return error(location(), fmt::format("expected {}, found '{}'", what, peek().text));
  }
  Result<void> want_symbol(std::string_view s) {
    if (!accept_symbol(s)) return expected(fmt::format("'{}'", s));
    return {};
  }
  Result<std::string> want_name(std::string_view what) {
    if (peek().kind != LexToken::Kind::kName) return expected(what);
    return take_token().text;
  }
  Result<std::string> want_plain_name(std::string_view what) {
    const SourceLocation p = location();
    CULET_TRY(std::string name, want_name(what));
    if (name.find('.') != std::string::npos)
      return error(p, fmt::format("'{}' has a dot; {} is a plain name", name, what));
    return name;
  }
  Result<void> end_of_line() {
    if (!at_end()) return expected("the end of the line");
    next_line();
    return {};
  }
  // Of the next token; behind the last line, of that line.
  SourceLocation here() const {
    if (more_lines()) return location();
    return {file_, lines_.empty() ? 1 : lines_.back().line, 1};
  }

 private:
  const std::vector<SourceFile>& files_;
  int file_;
  std::vector<LexLine> lines_;
  size_t line_ = 0, token_ = 0;
};

// An expression from the reader's token on; it ends where the grammar ends it.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenReader& tokens) : in_(tokens) {}

  Result<ExprPtr> expression();

 private:
  static ExprPtr node(Expr::Kind kind, SourceLocation p, std::string text = {});
  ExprPtr operator_node(Expr::Kind kind);
  Result<void> adopt(Expr* parent, ExprPtr kid);
  Result<void> kid(Expr* parent);  // adopts an expression
  Result<ExprPtr> loosest();
  Result<ExprPtr> conditional(SourceLocation p);
  Result<ExprPtr> binary(size_t level);
  Result<ExprPtr> unary();
  Result<ExprPtr> postfix();
  Result<ExprPtr> primary();
  Result<ExprPtr> parentheses(SourceLocation p);
  Result<ExprPtr> last(SourceLocation p, bool on_target);
  Result<ExprPtr> call(SourceLocation p, std::string name);

  TokenReader& in_;
  int depth_ = 0;
};

// The one expression that bytes [begin, end) of a file are.
Result<ExprPtr> parse_expression(const std::vector<SourceFile>& files, int file, size_t begin,
                                 size_t end);

}  // namespace culet::expr
