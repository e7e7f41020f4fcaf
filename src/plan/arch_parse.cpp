// Takes logical lines of one architecture file, gives an ArchFile. Recursive descent; expressions
// are the business of expr/parser.cpp. Knows the grammar only: which name is a hyperparameter, a
// value or a tensor is decided when a model is at hand (graph.cpp).
#include "plan/arch_parse.h"

#include "expr/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace culet::plan {
namespace {

constexpr int kMaxNesting = 60;     // of 'when'
constexpr size_t kMaxNames = 256;   // of one statement
constexpr size_t kMaxItems = 1000;  // lets, ignores, ... of one file

class Parser : private expr::TokenReader {
 public:
  Parser(const std::vector<SourceFile>& files, int file, std::vector<expr::LexLine> lines)
      : TokenReader(files, file, std::move(lines)) {}

  Result<ArchFile> run(std::string* include) {
    CULET_TRY_VOID(header(include));
    while (more_lines()) CULET_TRY_VOID(top_level());
    return std::move(arch_);
  }

  Result<void> names_only() { return header(nullptr); }
  ArchFile take() { return std::move(arch_); }

 private:
  // ---- file level
  // Architecture names may hold '-' and digits, which the lexer splits; they are joined here.
  Result<std::string> architecture_name() {
    const SourceLocation p = location();
    std::string name;
    int end = peek().column;
    while (!at_end() && !is_symbol(",") && peek().column == end) {
      if (peek().kind == expr::LexToken::Kind::kString) break;
      if (peek().kind == expr::LexToken::Kind::kSymbol && !is_symbol("-")) break;
      const expr::LexToken& t = take_token();
      name += t.text;
      end = t.column + static_cast<int>(t.text.size());
    }
    if (name.empty())
      return error(p, "expected an architecture name, as general.architecture spells it");
    return name;
  }

  Result<void> header(std::string* include) {
    if (!more_lines() || !is_word("arch"))
      return error({file(), 1, 1}, "an architecture file starts with the line 'arch-lang 1'");
    take_token();
    if (!accept_symbol("-") || !accept_word("lang"))
      return expected("'arch-lang 1' on the first line");
    if (peek().kind != expr::LexToken::Kind::kNumber || peek().number != 1)
      return expected("language version 1, the only one this build knows");
    take_token();
    CULET_TRY_VOID(end_of_line());
    if (!more_lines() || !is_word("arch")) return error(here(), "the second line is 'arch NAME'");
    take_token();
    do {
      CULET_TRY(std::string name, architecture_name());
      arch_.architectures.push_back(std::move(name));
    } while (accept_symbol(","));
    CULET_TRY_VOID(end_of_line());
    if (include && more_lines() && is_word("include")) {
      take_token();
      arch_.include_location = location();
      CULET_TRY(*include, architecture_name());
      CULET_TRY_VOID(end_of_line());
    }
    return {};
  }

  Result<void> top_level() {
    if (line_indent() != 0)
      return error(location(), "unexpected indentation; this line belongs to no block");
    using Handler = Result<void> (Parser::*)();
    static constexpr std::pair<std::string_view, Handler> kHandlers[] = {
        {"let", &Parser::let},     {"require", &Parser::require},      {"cache", &Parser::cache},
        {"state", &Parser::state}, {"extern", &Parser::extern_target}, {"ignore", &Parser::ignore},
        {"kind", &Parser::kind},   {"model", &Parser::block},          {"layer", &Parser::block},
    };
    for (const auto& [word, handler] : kHandlers)
      if (is_word(word)) return (this->*handler)();
    if (is_word("include"))
      return error(location(), "'include' stands on the line after 'arch', once");
    return expected("let, cache, state, require, ignore, extern, kind, model: or layer:");
  }

  Result<void> kind() {
    const SourceLocation p = location();
    take_token();
    static constexpr std::string_view kKinds[] = {"decoder", "encoder", "draft"};
    for (std::string_view k : kKinds) {
      if (!accept_word(k)) continue;
      if (!arch_.kind.empty()) return error(p, "'kind' stands twice in this file");
      arch_.kind = k;
      return end_of_line();
    }
    return expected("decoder, encoder or draft");
  }

  Result<void> let() {
    Let l;
    l.location = location();
    take_token();
    CULET_TRY(l.name, want_plain_name("the hyperparameter's name"));
    static constexpr std::string_view kReserved[] = {
        "i",   "none", "meta",    "root", "target", "session", "self", "yes",
        "no",  "pi",   "if",      "then", "else",   "and",     "or",   "not",
        "mod", "as",   "default", "when", "where",  "has",     "last"};
    if (std::find(std::begin(kReserved), std::end(kReserved), l.name) != std::end(kReserved))
      return error(l.location,
                   fmt::format("'{}' is a word of the language; choose another name", l.name));
    CULET_TRY_VOID(claim(l.name, l.location));
    CULET_TRY_VOID(want_symbol("="));
    CULET_TRY(l.value, expression());
    arch_.lets.push_back(std::move(l));
    return end_of_line();
  }

  // Hyperparameters, caches and states share one name space.
  Result<void> claim(const std::string& name, SourceLocation p) {
    if (!names_.insert(name).second)
      return error(p, fmt::format("'{}' is defined twice in this file", name));
    if (names_.size() > kMaxItems)
      return error(p, fmt::format("more than {} definitions in one file", kMaxItems));
    return {};
  }

  Result<void> require() {
    Require r;
    r.location = location();
    if (arch_.requirements.size() >= kMaxItems)
      return error(r.location, fmt::format("more than {} 'require' lines in one file", kMaxItems));
    take_token();
    CULET_TRY(r.condition, expression());
    CULET_TRY_VOID(want_symbol(","));
    if (peek().kind != expr::LexToken::Kind::kString) return expected("a message in quotes");
    r.message = take_token().text;
    arch_.requirements.push_back(std::move(r));
    return end_of_line();
  }

  // cache NAME: item, item ...   or the items on indented lines
  Result<void> cache() {
    CacheDecl c;
    c.location = location();
    const int indent = line_indent();
    take_token();
    CULET_TRY(c.name, want_plain_name("the cache's name"));
    CULET_TRY_VOID(claim(c.name, c.location));
    CULET_TRY_VOID(want_symbol(":"));
    const auto item = [&]() -> Result<void> {
      if ((is_word("policy") && c.policy) || (is_word("donor") && c.donor) ||
          (is_word("keys") && c.key_heads) || (is_word("values") && c.value_heads))
        return error(location(), fmt::format("'{}' is given twice for this cache", peek().text));
      if (accept_word("policy")) {
        CULET_TRY(c.policy, expression());
      } else if (accept_word("donor")) {
        CULET_TRY(c.donor, expression());
      } else if (accept_word("keys")) {
        return shape(&c.key_heads, &c.key_dim);
      } else if (accept_word("values")) {
        return shape(&c.value_heads, &c.value_dim);
      } else {
        return expected("policy, donor, keys or values");
      }
      return {};
    };
    CULET_TRY_VOID(items(indent, item));
    arch_.caches.push_back(std::move(c));
    return {};
  }

  template <class Item>
  Result<void> items(int indent, const Item& item) {
    if (!at_end()) {
      do CULET_TRY_VOID(item());
      while (accept_symbol(","));
      return end_of_line();
    }
    next_line();
    while (more_lines() && line_indent() > indent) {
      do CULET_TRY_VOID(item());
      while (accept_symbol(","));
      CULET_TRY_VOID(end_of_line());
    }
    return {};
  }

  Result<void> shape(ExprPtr* heads, ExprPtr* dim) {
    CULET_TRY(*heads, expression());
    if (!accept_word("x"))
      return expected("'x' between heads and width, as in: keys kv_heads x head_dim");
    CULET_TRY(*dim, expression());
    return {};
  }

  Result<void> state() {
    StateDecl s;
    s.location = location();
    const int indent = line_indent();
    take_token();
    CULET_TRY(s.name, want_plain_name("the state's name"));
    CULET_TRY_VOID(claim(s.name, s.location));
    CULET_TRY_VOID(want_symbol(":"));
    const auto item = [&]() -> Result<void> {
      if ((is_word("rows") && s.rows) || (is_word("width") && s.width))
        return error(location(), fmt::format("'{}' is given twice for this state", peek().text));
      if (accept_word("rows")) {
        CULET_TRY(s.rows, expression());
      } else if (accept_word("width")) {
        CULET_TRY(s.width, expression());
      } else {
        return expected("rows or width");
      }
      return {};
    };
    CULET_TRY_VOID(items(indent, item));
    if (!s.rows || !s.width) return error(s.location, "a state has 'rows N' and 'width N'");
    arch_.states.push_back(std::move(s));
    return {};
  }

  Result<void> extern_target() {
    ExternDecl e;
    e.location = location();
    if (!arch_.externs.empty())
      return error(e.location, "'extern target' stands twice in this file");
    take_token();
    if (!is_word("target"))
      return expected("'target', the model that a draft model is attached to");
    e.name = take_token().text;
    CULET_TRY_VOID(want_symbol(":"));
    bool hparams = false;
    do {
      if (accept_word("cache")) {
        CULET_TRY(std::string name, want_plain_name("a cache's name"));
        e.caches.push_back(std::move(name));
        continue;
      }
      if (accept_word("hyperparameters")) hparams = true;
      CULET_TRY(std::string name, want_plain_name("a name of the target"));
      (hparams ? e.hparams : e.values).push_back(std::move(name));
    } while (accept_symbol(","));
    arch_.externs.push_back(std::move(e));
    return end_of_line();
  }

  Result<void> ignore() {
    take_token();
    std::vector<IgnoreItem> found;
    do {
      IgnoreItem item;
      item.location = location();
      if (peek().kind == expr::LexToken::Kind::kString) {
        item.name = take_token().text;
        item.is_glob = true;
      } else {
        CULET_TRY(item.name, want_name("a tensor's name, \"a pattern\" or meta.KEY"));
      }
      if (item.name.rfind("meta.", 0) == 0) item.is_meta = true, item.name = item.name.substr(5);
      if (is_symbol("==")) {
        if (!item.is_meta)
          return error(item.location, "only a metadata key has a value: ignore meta.KEY == VALUE");
        take_token();
        CULET_TRY(ExprPtr value, expression());
        item.equals = std::move(value);
      }
      found.push_back(std::move(item));
      if (arch_.ignores.size() + found.size() > kMaxItems)
        return error(found.back().location, fmt::format("more than {} names to ignore", kMaxItems));
    } while (accept_symbol(","));
    if (accept_word("when")) {
      CULET_TRY(ExprPtr when, expression());
      const std::shared_ptr<Expr> shared = std::move(when);
      for (IgnoreItem& item : found) item.when = shared;
    }
    for (IgnoreItem& item : found) arch_.ignores.push_back(std::move(item));
    return end_of_line();
  }

  // ---- blocks
  bool is_header() const {  // NAME ':' end
    return peek().kind == expr::LexToken::Kind::kName && is_symbol(":", 1) &&
           peek(2).kind == expr::LexToken::Kind::kEnd && !is_word("else");
  }

  Result<void> block() {
    Block b;
    b.location = location();
    b.name = take_token().text;
    if (arch_.block(b.name))
      return error(b.location, fmt::format("block '{}' stands twice in this file", b.name));
    CULET_TRY_VOID(want_symbol(":"));
    CULET_TRY_VOID(end_of_line());
    while (more_lines() && line_indent() > 0) {
      const int indent = line_indent();
      if (is_header()) {
        Section s;
        const SourceLocation p = location();
        s.name = take_token().text;
        for (const Section& other : b.sections)
          if (other.name == s.name)
            return error(p, fmt::format("section '{}' stands twice in this block", s.name));
        next_line();
        CULET_TRY(s.statements, body(indent, 0));
        if (s.statements.empty()) return error(p, fmt::format("section '{}' is empty", s.name));
        b.sections.push_back(std::move(s));
        if (b.sections.size() > kMaxItems)
          return error(p, fmt::format("more than {} sections in one block", kMaxItems));
      } else {
        if (b.sections.empty()) b.sections.push_back({});
        if (!b.sections.back().name.empty())
          return error(location(),
                       fmt::format("this line stands behind section '{}' but not in it; "
                                   "indent it more, or give it a section of its own",
                                   b.sections.back().name));
        CULET_TRY_VOID(statements(indent, 0, true, &b.sections.back().statements));
      }
    }
    arch_.blocks.push_back(std::move(b));
    return {};
  }

  // The statements indented deeper than `outer`.
  Result<std::vector<Statement>> body(int outer, int depth) {
    std::vector<Statement> out;
    if (more_lines() && line_indent() > outer)
      CULET_TRY_VOID(statements(line_indent(), depth, false, &out));
    return out;
  }

  Result<void> statements(int indent, int depth, bool until_header, std::vector<Statement>* out) {
    if (depth > kMaxNesting) return error(location(), "statements are nested too deeply");
    while (more_lines() && line_indent() >= indent) {
      if (line_indent() > indent)
        return error(location(), "this line is indented more than its neighbours");
      if (until_header && is_header()) break;
      CULET_TRY(Statement s, statement(indent, depth));
      out->push_back(std::move(s));
    }
    return {};
  }

  Result<Statement> statement(int indent, int depth) {
    Statement s;
    s.location = location();
    if (is_word("when")) return when(indent, depth);
    if (is_word("else"))
      return error(s.location, "'else:' without a 'when' right above it at the same indentation");
    if (is_word("append") && peek(1).kind == expr::LexToken::Kind::kName) return append();
    if (is_word("layers") && is_symbol(":", 1)) {
      take_token(), take_token();
      s.kind = Statement::Kind::kLayers;
      if (!is_word("layer")) return expected("'layer', the block to run for each layer");
      s.names.push_back(take_token().text);
      CULET_TRY_VOID(end_of_line());
      return s;
    }
    s.kind = Statement::Kind::kAssign;
    if (is_word("output") && peek(1).kind == expr::LexToken::Kind::kName) {
      take_token();
      s.kind = Statement::Kind::kOutput;
    }
    do {
      CULET_TRY(std::string name, want_plain_name("a value's name at the start of a statement"));
      s.names.push_back(std::move(name));
      if (s.names.size() > kMaxNames) return error(s.location, "too many names in one statement");
    } while (s.kind == Statement::Kind::kAssign && accept_symbol(","));
    for (std::string_view wrong : {"+", "-", "*", "/"})
      if (is_symbol(wrong) && is_symbol("=", 1))
        return error(location(), fmt::format("'{}=' does not exist here; write {} = {} {} ...",
                                             wrong, s.names[0], s.names[0], wrong));
    CULET_TRY_VOID(want_symbol("="));
    CULET_TRY(s.value, expression());
    CULET_TRY_VOID(end_of_line());
    return s;
  }

  Result<Statement> when(int indent, int depth) {
    Statement s;
    s.location = location();
    s.kind = Statement::Kind::kWhen;
    take_token();
    CULET_TRY(s.value, expression());
    CULET_TRY_VOID(want_symbol(":"));
    CULET_TRY_VOID(end_of_line());
    CULET_TRY(s.body, body(indent, depth + 1));
    if (s.body.empty()) return error(s.location, "nothing is indented under this 'when'");
    if (more_lines() && line_indent() == indent && is_word("else") && is_symbol(":", 1)) {
      take_token(), take_token();
      const SourceLocation p = s.location;
      CULET_TRY_VOID(end_of_line());
      CULET_TRY(s.otherwise, body(indent, depth + 1));
      if (s.otherwise.empty())
        return error(p, "nothing is indented under the 'else' of this 'when'");
    }
    return s;
  }

  Result<Statement> append() {
    Statement s;
    s.location = location();
    s.kind = Statement::Kind::kAppend;
    take_token();
    CULET_TRY(std::string cache, want_plain_name("the cache's name"));
    s.names.push_back(std::move(cache));
    CULET_TRY_VOID(want_symbol(":"));
    for (int k = 0; k < 2; ++k) {
      if (k == 1) CULET_TRY_VOID(want_symbol(","));
      CULET_TRY(ExprPtr e, expression());
      s.operands.push_back(std::move(e));
    }
    CULET_TRY_VOID(end_of_line());
    return s;
  }

  Result<ExprPtr> expression() { return expr::ExpressionParser(*this).expression(); }

  std::set<std::string> names_;
  ArchFile arch_;
};

}  // namespace

Result<ArchFile> parse_file(const std::vector<SourceFile>& files, int file, std::string* include) {
  CULET_TRY(auto lines, expr::lex(files, file));
  return Parser(files, file, std::move(lines)).run(include);
}

Result<std::vector<std::string>> parse_file_names(const std::vector<SourceFile>& files) {
  CULET_TRY(auto lines, expr::lex(files, 0));
  Parser parser(files, 0, std::move(lines));
  CULET_TRY_VOID(parser.names_only());
  return parser.take().architectures;
}

}  // namespace culet::plan
