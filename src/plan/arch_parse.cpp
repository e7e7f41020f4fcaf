// Takes logical lines of one architecture file, gives an ArchFile. Recursive descent; expressions
// nest at most kMaxNesting deep. Knows the grammar only: which name is a fact, a value or a tensor
// is decided when a model is at hand (graph.cpp).
#include "plan/arch_parse.h"

#include "plan/arch_lex.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace culet::plan {
namespace {

constexpr int kMaxNesting = 60;     // of parentheses, conditionals and 'when'
constexpr int kMaxHeight = 200;     // of an expression tree, chains such as a + b + c included
constexpr size_t kMaxKids = 256;    // operands of one call, numbers of one shape, ...
constexpr size_t kMaxItems = 1000;  // lets, ignores, ... of one file

using Kind = Expr::Kind;

class Parser {
 public:
  Parser(const std::vector<SourceFile>& files, int file, std::vector<LexLine> lines)
      : files_(files), file_(file), lines_(std::move(lines)) {}

  Result<ArchFile> run(std::string* include) {
    CULET_TRY_VOID(header(include));
    while (more_lines()) CULET_TRY_VOID(top_level());
    return std::move(arch_);
  }

  Result<void> names_only() { return header(nullptr); }
  ArchFile take() { return std::move(arch_); }

 private:
  // ---- tokens
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
  void next_line() { ++line_, token_ = 0; }
  Place place() const { return {file_, peek().line, peek().column}; }

  tl::unexpected<Error> error(Place p, std::string_view message) const {
    return tl::unexpected<Error>(place_error(files_, p, ErrorCode::kInvalidArgument, message));
  }
  tl::unexpected<Error> expected(std::string_view what) const {
    return error(place(), fmt::format("expected {}, found '{}'", what, peek().text));
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
    const Place p = place();
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

  // ---- file level
  // Architecture names may hold '-' and digits, which the lexer splits; they are joined here.
  Result<std::string> architecture_name() {
    const Place p = place();
    std::string name;
    int end = peek().column;
    while (!at_end() && !is_symbol(",") && peek().column == end) {
      if (peek().kind == LexToken::Kind::kString) break;
      if (peek().kind == LexToken::Kind::kSymbol && !is_symbol("-")) break;
      const LexToken& t = take_token();
      name += t.text;
      end = t.column + static_cast<int>(t.text.size());
    }
    if (name.empty())
      return error(p, "expected an architecture name, as general.architecture spells it");
    return name;
  }

  Result<void> header(std::string* include) {
    if (!more_lines() || !is_word("arch"))
      return error({file_, 1, 1}, "an architecture file starts with the line 'arch-lang 1'");
    take_token();
    if (!accept_symbol("-") || !accept_word("lang"))
      return expected("'arch-lang 1' on the first line");
    if (peek().kind != LexToken::Kind::kNumber || peek().number != 1)
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
      arch_.include_place = place();
      CULET_TRY(*include, architecture_name());
      CULET_TRY_VOID(end_of_line());
    }
    return {};
  }
  Place here() const {
    if (more_lines()) return place();
    return {file_, lines_.empty() ? 1 : lines_.back().line, 1};
  }

  Result<void> top_level() {
    if (lines_[line_].indent != 0)
      return error(place(), "unexpected indentation; this line belongs to no block");
    using Handler = Result<void> (Parser::*)();
    static constexpr std::pair<std::string_view, Handler> kHandlers[] = {
        {"let", &Parser::let},     {"require", &Parser::require},      {"cache", &Parser::cache},
        {"state", &Parser::state}, {"extern", &Parser::extern_target}, {"ignore", &Parser::ignore},
        {"kind", &Parser::kind},   {"model", &Parser::block},          {"layer", &Parser::block},
    };
    for (const auto& [word, handler] : kHandlers)
      if (is_word(word)) return (this->*handler)();
    if (is_word("include"))
      return error(place(), "'include' stands on the line after 'arch', once");
    return expected("let, cache, state, require, ignore, extern, kind, model: or layer:");
  }

  Result<void> kind() {
    const Place p = place();
    take_token();
    static constexpr std::string_view kKinds[] = {"decoder", "encoder", "drafter"};
    for (std::string_view k : kKinds) {
      if (!accept_word(k)) continue;
      if (!arch_.kind.empty()) return error(p, "'kind' stands twice in this file");
      arch_.kind = k;
      return end_of_line();
    }
    return expected("decoder, encoder or drafter");
  }

  Result<void> let() {
    Let l;
    l.place = place();
    take_token();
    CULET_TRY(l.name, want_plain_name("the fact's name"));
    static constexpr std::string_view kReserved[] = {
        "i",  "none",    "meta", "root",  "target", "session", "self", "yes",
        "no", "if",      "then", "else",  "and",    "or",      "not",  "mod",
        "as", "default", "when", "where", "has",    "last"};
    if (std::find(std::begin(kReserved), std::end(kReserved), l.name) != std::end(kReserved))
      return error(l.place,
                   fmt::format("'{}' is a word of the language; choose another name", l.name));
    CULET_TRY_VOID(claim(l.name, l.place));
    CULET_TRY_VOID(want_symbol("="));
    CULET_TRY(l.value, expression());
    arch_.lets.push_back(std::move(l));
    return end_of_line();
  }

  // Facts, caches and states share one name space.
  Result<void> claim(const std::string& name, Place p) {
    if (!names_.insert(name).second)
      return error(p, fmt::format("'{}' is defined twice in this file", name));
    if (names_.size() > kMaxItems)
      return error(p, fmt::format("more than {} definitions in one file", kMaxItems));
    return {};
  }

  Result<void> require() {
    Require r;
    r.place = place();
    if (arch_.requirements.size() >= kMaxItems)
      return error(r.place, fmt::format("more than {} 'require' lines in one file", kMaxItems));
    take_token();
    CULET_TRY(r.condition, expression());
    CULET_TRY_VOID(want_symbol(","));
    if (peek().kind != LexToken::Kind::kString) return expected("a message in quotes");
    r.message = take_token().text;
    arch_.requirements.push_back(std::move(r));
    return end_of_line();
  }

  // cache NAME: item, item ...   or the items on indented lines
  Result<void> cache() {
    CacheDecl c;
    c.place = place();
    const int indent = lines_[line_].indent;
    take_token();
    CULET_TRY(c.name, want_plain_name("the cache's name"));
    CULET_TRY_VOID(claim(c.name, c.place));
    CULET_TRY_VOID(want_symbol(":"));
    const auto item = [&]() -> Result<void> {
      if ((is_word("policy") && c.policy) || (is_word("donor") && c.donor) ||
          (is_word("keys") && c.key_heads) || (is_word("values") && c.value_heads))
        return error(place(), fmt::format("'{}' is given twice for this cache", peek().text));
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
    while (more_lines() && lines_[line_].indent > indent) {
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
    s.place = place();
    const int indent = lines_[line_].indent;
    take_token();
    CULET_TRY(s.name, want_plain_name("the state's name"));
    CULET_TRY_VOID(claim(s.name, s.place));
    CULET_TRY_VOID(want_symbol(":"));
    const auto item = [&]() -> Result<void> {
      if ((is_word("rows") && s.rows) || (is_word("width") && s.width))
        return error(place(), fmt::format("'{}' is given twice for this state", peek().text));
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
    if (!s.rows || !s.width) return error(s.place, "a state has 'rows N' and 'width N'");
    arch_.states.push_back(std::move(s));
    return {};
  }

  Result<void> extern_target() {
    ExternDecl e;
    e.place = place();
    if (!arch_.externs.empty()) return error(e.place, "'extern target' stands twice in this file");
    take_token();
    if (!is_word("target")) return expected("'target', the model that a drafter is attached to");
    e.name = take_token().text;
    CULET_TRY_VOID(want_symbol(":"));
    bool facts = false;
    do {
      if (accept_word("cache")) {
        CULET_TRY(std::string name, want_plain_name("a cache's name"));
        e.caches.push_back(std::move(name));
        continue;
      }
      if (accept_word("facts")) facts = true;
      CULET_TRY(std::string name, want_plain_name("a name of the target"));
      (facts ? e.facts : e.values).push_back(std::move(name));
    } while (accept_symbol(","));
    arch_.externs.push_back(std::move(e));
    return end_of_line();
  }

  Result<void> ignore() {
    take_token();
    std::vector<IgnoreItem> found;
    do {
      IgnoreItem item;
      item.place = place();
      if (peek().kind == LexToken::Kind::kString) {
        item.name = take_token().text;
        item.is_glob = true;
      } else {
        CULET_TRY(item.name, want_name("a tensor's name, \"a pattern\" or meta.KEY"));
      }
      if (item.name.rfind("meta.", 0) == 0) item.is_meta = true, item.name = item.name.substr(5);
      found.push_back(std::move(item));
      if (arch_.ignores.size() + found.size() > kMaxItems)
        return error(found.back().place, fmt::format("more than {} names to ignore", kMaxItems));
    } while (accept_symbol(","));
    if (accept_word("when")) {
      CULET_TRY(ExprPtr when, expression());
      const std::shared_ptr<Expr> shared = std::move(when);
      for (IgnoreItem& item : found) {
        if (item.is_meta)
          return error(item.place,
                       "metadata keys are ignored always or never; leave the 'when' out");
        item.when = shared;
      }
    }
    for (IgnoreItem& item : found) arch_.ignores.push_back(std::move(item));
    return end_of_line();
  }

  // ---- blocks
  bool is_header() const {  // NAME ':' end
    return peek().kind == LexToken::Kind::kName && is_symbol(":", 1) &&
           peek(2).kind == LexToken::Kind::kEnd && !is_word("else");
  }

  Result<void> block() {
    Block b;
    b.place = place();
    b.name = take_token().text;
    if (arch_.block(b.name))
      return error(b.place, fmt::format("block '{}' stands twice in this file", b.name));
    CULET_TRY_VOID(want_symbol(":"));
    CULET_TRY_VOID(end_of_line());
    while (more_lines() && lines_[line_].indent > 0) {
      const int indent = lines_[line_].indent;
      if (is_header()) {
        Section s;
        const Place p = place();
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
          return error(place(), fmt::format("this line stands behind section '{}' but not in it; "
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
    if (more_lines() && lines_[line_].indent > outer)
      CULET_TRY_VOID(statements(lines_[line_].indent, depth, false, &out));
    return out;
  }

  Result<void> statements(int indent, int depth, bool until_header, std::vector<Statement>* out) {
    if (depth > kMaxNesting) return error(place(), "statements are nested too deeply");
    while (more_lines() && lines_[line_].indent >= indent) {
      if (lines_[line_].indent > indent)
        return error(place(), "this line is indented more than its neighbours");
      if (until_header && is_header()) break;
      CULET_TRY(Statement s, statement(indent, depth));
      out->push_back(std::move(s));
    }
    return {};
  }

  Result<Statement> statement(int indent, int depth) {
    Statement s;
    s.place = place();
    if (is_word("when")) return when(indent, depth);
    if (is_word("else"))
      return error(s.place, "'else:' without a 'when' right above it at the same indentation");
    if (is_word("append") && peek(1).kind == LexToken::Kind::kName) return append();
    if (is_word("layers") && is_symbol(":", 1)) {
      take_token(), take_token();
      s.kind = Statement::Kind::kLayers;
      if (!is_word("layer")) return expected("'layer', the block to run for each layer");
      s.names.push_back(take_token().text);
      CULET_TRY_VOID(end_of_line());
      return s;
    }
    s.kind = Statement::Kind::kAssign;
    if (is_word("output") && peek(1).kind == LexToken::Kind::kName) {
      take_token();
      s.kind = Statement::Kind::kOutput;
    }
    do {
      CULET_TRY(std::string name, want_plain_name("a value's name at the start of a statement"));
      s.names.push_back(std::move(name));
      if (s.names.size() > kMaxKids) return error(s.place, "too many names in one statement");
    } while (s.kind == Statement::Kind::kAssign && accept_symbol(","));
    for (std::string_view wrong : {"+", "-", "*", "/"})
      if (is_symbol(wrong) && is_symbol("=", 1))
        return error(place(), fmt::format("'{}=' does not exist here; write {} = {} {} ...", wrong,
                                          s.names[0], s.names[0], wrong));
    CULET_TRY_VOID(want_symbol("="));
    CULET_TRY(s.value, expression());
    CULET_TRY_VOID(end_of_line());
    return s;
  }

  Result<Statement> when(int indent, int depth) {
    Statement s;
    s.place = place();
    s.kind = Statement::Kind::kWhen;
    take_token();
    CULET_TRY(s.value, expression());
    CULET_TRY_VOID(want_symbol(":"));
    CULET_TRY_VOID(end_of_line());
    CULET_TRY(s.body, body(indent, depth + 1));
    if (s.body.empty()) return error(s.place, "nothing is indented under this 'when'");
    if (more_lines() && lines_[line_].indent == indent && is_word("else") && is_symbol(":", 1)) {
      take_token(), take_token();
      const Place p = s.place;
      CULET_TRY_VOID(end_of_line());
      CULET_TRY(s.otherwise, body(indent, depth + 1));
      if (s.otherwise.empty())
        return error(p, "nothing is indented under the 'else' of this 'when'");
    }
    return s;
  }

  Result<Statement> append() {
    Statement s;
    s.place = place();
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

  // ---- expressions, loosest first
  static ExprPtr node(Kind kind, Place p, std::string text = {}) {
    auto e = std::make_unique<Expr>();
    e->kind = kind;
    e->place = p;
    e->text = std::move(text);
    return e;
  }

  ExprPtr operator_node(Kind kind) {
    const Place p = place();
    return node(kind, p, take_token().text);
  }

  Result<void> adopt(Expr* parent, ExprPtr kid) {
    parent->height = std::max(parent->height, kid->height + 1);
    parent->kids.push_back(std::move(kid));
    if (parent->height > kMaxHeight || parent->kids.size() > kMaxKids)
      return error(parent->place, "this expression is too long or nested too deeply; split it");
    return {};
  }

  Result<ExprPtr> expression() {
    if (++depth_ > kMaxNesting) return error(place(), "this expression is nested too deeply");
    auto r = loosest();
    --depth_;
    return r;
  }

  // if-then-else | alternatives, then 'default', then 'as'
  Result<ExprPtr> loosest() {
    const Place p = place();
    ExprPtr e;
    if (accept_word("if")) {
      e = node(Kind::kIf, p);
      CULET_TRY(ExprPtr condition, expression());
      CULET_TRY_VOID(adopt(e.get(), std::move(condition)));
      if (!accept_word("then")) return expected("'then'");
      CULET_TRY(ExprPtr yes, expression());
      CULET_TRY_VOID(adopt(e.get(), std::move(yes)));
      if (!accept_word("else")) return expected("'else'; a conditional has both sides");
      CULET_TRY(ExprPtr no, expression());
      CULET_TRY_VOID(adopt(e.get(), std::move(no)));
      return e;
    }
    CULET_TRY(e, binary(0));
    if (is_symbol("|")) {
      ExprPtr all = node(Kind::kAlternative, p);
      CULET_TRY_VOID(adopt(all.get(), std::move(e)));
      while (accept_symbol("|")) {
        CULET_TRY(ExprPtr next, binary(0));
        CULET_TRY_VOID(adopt(all.get(), std::move(next)));
      }
      e = std::move(all);
    }
    if (accept_word("default")) {
      ExprPtr d = node(Kind::kDefault, p);
      CULET_TRY_VOID(adopt(d.get(), std::move(e)));
      CULET_TRY(ExprPtr other, expression());
      CULET_TRY_VOID(adopt(d.get(), std::move(other)));
      e = std::move(d);
    }
    if (accept_word("as")) {
      ExprPtr a = node(Kind::kAs, p);
      CULET_TRY_VOID(adopt(a.get(), std::move(e)));
      CULET_TRY_VOID(want_symbol("["));
      do {
        CULET_TRY(ExprPtr dim, expression());
        CULET_TRY_VOID(adopt(a.get(), std::move(dim)));
      } while (accept_symbol(","));
      CULET_TRY_VOID(want_symbol("]"));
      e = std::move(a);
    }
    return e;
  }

  struct Level {
    bool word;
    std::vector<std::string_view> operators;
  };
  static const std::vector<Level>& levels() {
    static const std::vector<Level> kLevels = {{true, {"or"}},
                                               {true, {"and"}},
                                               {false, {"==", "!=", "<=", ">=", "<", ">"}},
                                               {false, {"+", "-"}},
                                               {false, {"*", "/", "mod"}}};
    return kLevels;
  }

  Result<ExprPtr> binary(size_t level) {
    if (level == levels().size()) return unary();
    if (level == 2 && is_word("not")) {
      ExprPtr e = operator_node(Kind::kUnary);
      if (++depth_ > kMaxNesting) return error(place(), "this expression is nested too deeply");
      CULET_TRY(ExprPtr kid, binary(level));
      --depth_;
      CULET_TRY_VOID(adopt(e.get(), std::move(kid)));
      return e;
    }
    CULET_TRY(ExprPtr left, binary(level + 1));
    for (;;) {
      const auto& ops = levels()[level].operators;
      const bool word = peek().kind == LexToken::Kind::kName;
      if ((!word && peek().kind != LexToken::Kind::kSymbol) ||
          std::find(ops.begin(), ops.end(), peek().text) == ops.end())
        return left;
      ExprPtr e = operator_node(Kind::kBinary);
      CULET_TRY(ExprPtr right, binary(level + 1));
      CULET_TRY_VOID(adopt(e.get(), std::move(left)));
      CULET_TRY_VOID(adopt(e.get(), std::move(right)));
      left = std::move(e);
    }
  }

  Result<ExprPtr> unary() {
    if (!is_symbol("-")) return postfix();
    ExprPtr e = operator_node(Kind::kUnary);
    if (++depth_ > kMaxNesting) return error(place(), "this expression is nested too deeply");
    CULET_TRY(ExprPtr kid, unary());
    --depth_;
    CULET_TRY_VOID(adopt(e.get(), std::move(kid)));
    return e;
  }

  Result<ExprPtr> postfix() {
    CULET_TRY(ExprPtr e, primary());
    for (;;) {
      const Place p = place();
      if (accept_symbol("?")) {
        ExprPtr o = node(Kind::kOptional, p);
        CULET_TRY_VOID(adopt(o.get(), std::move(e)));
        e = std::move(o);
      } else if (accept_symbol("[")) {
        ExprPtr x = node(Kind::kIndex, p);
        CULET_TRY_VOID(adopt(x.get(), std::move(e)));
        CULET_TRY(ExprPtr index, expression());
        CULET_TRY_VOID(adopt(x.get(), std::move(index)));
        CULET_TRY_VOID(want_symbol("]"));
        e = std::move(x);
      } else {
        return e;
      }
    }
  }

  Result<ExprPtr> primary() {
    const Place p = place();
    if (accept_symbol("(")) {
      CULET_TRY(ExprPtr e, expression());
      if (!is_symbol(",")) {
        CULET_TRY_VOID(want_symbol(")"));
        return e;
      }
      ExprPtr t = node(Kind::kTuple, p);
      CULET_TRY_VOID(adopt(t.get(), std::move(e)));
      while (accept_symbol(",")) {
        CULET_TRY(ExprPtr next, expression());
        CULET_TRY_VOID(adopt(t.get(), std::move(next)));
      }
      CULET_TRY_VOID(want_symbol(")"));
      return t;
    }
    if (peek().kind == LexToken::Kind::kNumber) {
      ExprPtr e = node(Kind::kNumber, p, peek().text);
      e->number = take_token().number;
      return e;
    }
    if (peek().kind == LexToken::Kind::kString) return node(Kind::kString, p, take_token().text);
    if (peek().kind != LexToken::Kind::kName) return expected("a name, a number or '('");
    std::string name = take_token().text;
    if (!is_symbol("(")) return node(Kind::kName, p, std::move(name));
    if (name == "last" || name == "target.last") return last(p, name == "target.last");
    return call(p, std::move(name));
  }

  // last(j < n where condition)
  Result<ExprPtr> last(Place p, bool on_target) {
    take_token();
    ExprPtr e = node(Kind::kLast, p);
    e->on_target = on_target;
    CULET_TRY(e->text, want_plain_name("the layer variable, as in last(j < n where ...)"));
    CULET_TRY_VOID(want_symbol("<"));
    CULET_TRY(ExprPtr bound, binary(3));
    CULET_TRY_VOID(adopt(e.get(), std::move(bound)));
    if (!accept_word("where")) return expected("'where' and a condition");
    CULET_TRY(ExprPtr condition, expression());
    CULET_TRY_VOID(adopt(e.get(), std::move(condition)));
    CULET_TRY_VOID(want_symbol(")"));
    return e;
  }

  Result<ExprPtr> call(Place p, std::string name) {
    take_token();
    ExprPtr e = node(Kind::kCall, p, std::move(name));
    while (!is_symbol(")")) {
      if (peek().kind == LexToken::Kind::kName && is_symbol("=", 1)) {
        NamedArgument a;
        a.place = place();
        a.name = take_token().text;
        take_token();
        for (const NamedArgument& other : e->named)
          if (other.name == a.name)
            return error(a.place, fmt::format("'{}=' is given twice", a.name));
        CULET_TRY(a.value, expression());
        e->height = std::max(e->height, a.value->height + 1);
        e->named.push_back(std::move(a));
        if (e->height > kMaxHeight || e->named.size() > kMaxKids)
          return error(p, "this call is too long or nested too deeply");
      } else {
        if (!e->named.empty()) return error(place(), "operands stand before the named facts");
        CULET_TRY(ExprPtr arg, expression());
        CULET_TRY_VOID(adopt(e.get(), std::move(arg)));
      }
      if (!accept_symbol(",")) break;
      if (is_symbol(")")) return expected("another operand after ','");
    }
    CULET_TRY_VOID(want_symbol(")"));
    return e;
  }

  const std::vector<SourceFile>& files_;
  int file_;
  std::vector<LexLine> lines_;
  size_t line_ = 0, token_ = 0;
  int depth_ = 0;
  std::set<std::string> names_;
  ArchFile arch_;
};

}  // namespace

Result<ArchFile> parse_file(const std::vector<SourceFile>& files, int file, std::string* include) {
  CULET_TRY(auto lines, lex(files, file));
  return Parser(files, file, std::move(lines)).run(include);
}

Result<std::vector<std::string>> parse_file_names(const std::vector<SourceFile>& files) {
  CULET_TRY(auto lines, lex(files, 0));
  Parser parser(files, 0, std::move(lines));
  CULET_TRY_VOID(parser.names_only());
  return parser.take().architectures;
}

}  // namespace culet::plan
