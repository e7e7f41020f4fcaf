// The statements of the template language: the upper half of the parser.
//
// Takes the tokens, gives statements; expressions come from expression_parser.h, which bounds the
// nesting of both. Unknown filters and tests parse; using one is an error when it happens, since
// templates guard them with conditions.
#include "template/parser.h"

#include "template/expression_parser.h"
#include "template/lexer.h"

#include <utility>

namespace culet::chat {

const Name* NameTable::intern(std::string_view text) {
  const int id = static_cast<int>(names_.size());
  auto [at, fresh] = names_.try_emplace(std::string(text));
  if (fresh) at->second = std::make_unique<Name>(Name{std::string(text), id});
  return at->second.get();
}

const Name* NameTable::find(std::string_view text) const {
  const auto at = names_.find(std::string(text));
  return at == names_.end() ? nullptr : at->second.get();
}

namespace {

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Result<void> run() {
    CULET_TRY(out_.body, parse_body({}));
    return {};
  }

 private:
  using ExpressionParser::make;

  std::unique_ptr<Statement> make(StatementKind kind, Position at) {
    auto s = std::make_unique<Statement>();
    s->kind = kind;
    s->at = at;
    return s;
  }

  // Statements up to one of the tags in `end`, whose name is the current token afterwards.
  Result<Body> parse_body(Words end) {
    const Level level(depth_);
    if (depth_ > max_depth_) return too_deep();
    Body body;
    while (current().kind != TokenKind::kEnd) {
      Token& t = take();
      if (t.kind == TokenKind::kText) {
        body.push_back(make(StatementKind::kText, t.at));
        body.back()->text = constant_string(std::move(t.value));
      } else if (t.kind == TokenKind::kPrintBegin) {
        body.push_back(make(StatementKind::kPrint, t.at));
        CULET_TRY(body.back()->expression, parse_tuple({}, false));
        if (current().kind != TokenKind::kPrintEnd) return expected("'}}'");
        take();
      } else {
        for (const std::string_view word : end) {
          if (current().is_name(word)) return body;
        }
        CULET_TRY(std::unique_ptr<Statement> s, parse_statement(end));
        body.push_back(std::move(s));
        CULET_TRY_VOID(expect_block_end());
      }
    }
    if (end.size() != 0) return expected("'{% " + std::string(*(end.end() - 1)) + " %}'");
    return body;
  }

  // "%}" and the statements up to a tag in `end`.
  Result<Body> parse_block(Words end) {
    skip_op(":");
    CULET_TRY_VOID(expect_block_end());
    return parse_body(end);
  }

  // The same up to the one tag `end`, which is taken too.
  Result<Body> parse_whole_block(std::string_view end) {
    CULET_TRY(Body body, parse_block({end}));
    take();
    return body;
  }

  Result<std::unique_ptr<Statement>> parse_statement(Words end) {
    struct Tag {
      std::string_view name;
      Result<std::unique_ptr<Statement>> (Parser::*parse)(Position);
    };
    static constexpr Tag kTags[] = {
        {"if", &Parser::parse_if},
        {"for", &Parser::parse_for},
        {"set", &Parser::parse_set},
        {"with", &Parser::parse_with},
        {"macro", &Parser::parse_macro},
        {"call", &Parser::parse_call_block},
        {"print", &Parser::parse_print},
        {"filter", &Parser::parse_filter_block},
        {"break", &Parser::parse_break},
        {"generation", &Parser::parse_generation},
        {"continue", &Parser::parse_continue},
    };
    const Position at = current().at;
    if (current().kind != TokenKind::kName) return expected("the name of a tag");
    for (const Tag& tag : kTags) {
      if (skip_name(tag.name)) return (this->*tag.parse)(at);
    }
    std::string what = "the tag '" + current().value + "' is not known here";
    if (end.size() != 0) what += "; '" + std::string(*(end.end() - 1)) + "' is missing before it";
    return error(at, what);
  }

  Result<std::unique_ptr<Statement>> parse_if(Position at) {
    auto s = make(StatementKind::kIf, at);
    while (true) {
      Branch branch;
      CULET_TRY(branch.condition, parse_tuple({}, false, false));
      CULET_TRY(branch.body, parse_block({"elif", "else", "endif"}));
      s->branches.push_back(std::move(branch));
      if (skip_name("elif")) continue;
      if (skip_name("else")) {
        CULET_TRY(s->body, parse_whole_block("endif"));
      } else {
        take();
      }
      return s;
    }
  }

  Result<std::unique_ptr<Statement>> parse_for(Position at) {
    auto s = make(StatementKind::kFor, at);
    CULET_TRY(s->target, parse_target("in", false));
    if (s->target.name != nullptr && s->target.name->text == "loop") {
      return error(s->target.at, "a loop cannot assign to 'loop'");
    }
    CULET_TRY_VOID(expect_word("in"));
    CULET_TRY(s->expression, parse_tuple({"recursive"}, false, false));
    if (skip_name("if")) {
      CULET_TRY(s->condition, parse_expression());
    }
    if (current().is_name("recursive")) {
      return error(current().at, "recursive loops are not supported; use a macro");
    }
    ++loops_;
    CULET_TRY(s->body, parse_block({"else", "endfor"}));
    --loops_;
    if (skip_name("else")) {
      CULET_TRY(s->orelse, parse_whole_block("endfor"));
    } else {
      take();
    }
    return s;
  }

  // Names, name.attribute, or either in parentheses, with commas; up to the word `end` if given.
  Result<Target> parse_target(std::string_view end, bool attributes) {
    const Level level(depth_);
    if (depth_ > max_depth_) return too_deep();
    Target tuple;
    tuple.at = current().at;
    bool comma = false;
    while (current().kind == TokenKind::kName || current().is_op("(")) {
      if (!end.empty() && current().is_name(end)) break;
      CULET_TRY(Target part, parse_single_target(attributes));
      tuple.parts.push_back(std::move(part));
      if (!skip_op(",")) break;
      comma = true;
    }
    if (tuple.parts.empty()) return expected("a name to assign to");
    if (comma) return tuple;
    Target only = std::move(tuple.parts[0]);
    return only;
  }

  Result<Target> parse_single_target(bool attributes) {
    Target target;
    target.at = current().at;
    if (skip_op("(")) {
      CULET_TRY(target, parse_target({}, attributes));
      CULET_TRY_VOID(expect_op(")"));
      return target;
    }
    for (const std::string_view word : {"true", "false", "none", "True", "False", "None"}) {
      if (current().is_name(word)) return expected("a name to assign to");
    }
    CULET_TRY(target.name, expect_name());
    if (attributes && skip_op(".")) {
      CULET_TRY(target.attribute, expect_name());
    }
    return target;
  }

  Result<std::unique_ptr<Statement>> parse_set(Position at) {
    auto s = make(StatementKind::kSet, at);
    CULET_TRY(s->target, parse_target({}, true));
    if (skip_op("=")) {
      CULET_TRY(s->expression, parse_tuple({}, false));
      return s;
    }
    s->kind = StatementKind::kSetBlock;
    while (current().is_op("|")) {
      CULET_TRY(s->expression, parse_filter(std::move(s->expression)));
    }
    CULET_TRY(s->body, parse_whole_block("endset"));
    return s;
  }

  Result<std::unique_ptr<Statement>> parse_with(Position at) {
    auto s = make(StatementKind::kWith, at);
    s->expression = make(ExpressionKind::kTuple, at);
    while (current().kind != TokenKind::kBlockEnd) {
      if (!s->targets.empty()) CULET_TRY_VOID(expect_op(","));
      CULET_TRY(Target target, parse_single_target(false));
      CULET_TRY_VOID(expect_op("="));
      CULET_TRY(ExpressionPtr value, parse_expression());
      s->targets.push_back(std::move(target));
      s->expression->operands.push_back(std::move(value));
    }
    CULET_TRY(s->body, parse_whole_block("endwith"));
    return s;
  }

  // A macro's body: loops around it are not its own.
  Result<Body> parse_macro_body(MacroNode& macro, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    macros_.push_back(&macro);
    CULET_TRY(Body body, parse_whole_block(end));
    macros_.pop_back();
    loops_ = loops;
    return body;
  }

  Result<void> parse_parameters(MacroNode& macro) {
    CULET_TRY_VOID(expect_op("("));
    while (!current().is_op(")")) {
      if (!macro.parameters.empty()) CULET_TRY_VOID(expect_op(","));
      if (current().is_op(")")) break;
      MacroNode::Parameter p{nullptr, nullptr};
      CULET_TRY(p.name, expect_name());
      if (skip_op("=")) {
        CULET_TRY(p.fallback, parse_expression());
      } else if (!macro.parameters.empty() && macro.parameters.back().fallback) {
        return error(current().at, "a parameter without a default stands after one with a default");
      }
      macro.parameters.push_back(std::move(p));
    }
    take();
    return {};
  }

  Result<std::unique_ptr<Statement>> parse_macro(Position at) {
    auto s = make(StatementKind::kMacro, at);
    s->macro = std::make_unique<MacroNode>();
    CULET_TRY(s->macro->name, expect_name());
    CULET_TRY_VOID(parse_parameters(*s->macro));
    CULET_TRY(s->macro->body, parse_macro_body(*s->macro, "endmacro"));
    return s;
  }

  Result<std::unique_ptr<Statement>> parse_call_block(Position at) {
    auto s = make(StatementKind::kCall, at);
    s->macro = std::make_unique<MacroNode>();
    if (current().is_op("(")) CULET_TRY_VOID(parse_parameters(*s->macro));
    CULET_TRY(s->expression, parse_expression());
    if (s->expression->kind != ExpressionKind::kCall) {
      return error(at, "a call block needs a call, such as '{% call name() %}'");
    }
    CULET_TRY(s->macro->body, parse_macro_body(*s->macro, "endcall"));
    return s;
  }

  Result<std::unique_ptr<Statement>> parse_print(Position at) {
    auto s = make(StatementKind::kPrint, at);
    ExpressionPtr all = make(ExpressionKind::kConcat, at);
    do {
      CULET_TRY(ExpressionPtr e, parse_expression());
      all->operands.push_back(std::move(e));
    } while (skip_op(","));
    CULET_TRY(s->expression, finish(std::move(all)));
    return s;
  }

  Result<std::unique_ptr<Statement>> parse_filter_block(Position at) {
    auto s = make(StatementKind::kFilter, at);
    CULET_TRY(s->expression, parse_filter_name(nullptr));
    while (current().is_op("|")) {
      CULET_TRY(s->expression, parse_filter(std::move(s->expression)));
    }
    CULET_TRY(s->body, parse_whole_block("endfilter"));
    return s;
  }

  Result<std::unique_ptr<Statement>> parse_generation(Position at) {
    auto s = make(StatementKind::kScope, at);
    const int loops = std::exchange(loops_, 0);
    CULET_TRY(s->body, parse_whole_block("endgeneration"));
    loops_ = loops;
    return s;
  }

  Result<std::unique_ptr<Statement>> parse_break(Position at) {
    if (loops_ == 0) return error(at, "'break' stands outside a loop");
    return make(StatementKind::kBreak, at);
  }
  Result<std::unique_ptr<Statement>> parse_continue(Position at) {
    if (loops_ == 0) return error(at, "'continue' stands outside a loop");
    return make(StatementKind::kContinue, at);
  }

  int loops_ = 0;
};

}  // namespace

Result<std::unique_ptr<ParsedTemplate>> parse_template(std::string_view source, int depth) {
  auto parsed = std::make_unique<ParsedTemplate>();
  parsed->source = normalize_source(source);
  CULET_TRY(std::vector<Token> tokens, tokenize(parsed->source));
  CULET_TRY_VOID(Parser(*parsed, std::move(tokens), depth).run());
  return parsed;
}

}  // namespace culet::chat
