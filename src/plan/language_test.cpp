// The language, rule by rule: what is accepted, and what every mistake is answered with. A message
// names file, line and column and says what to do.
#include "plan/arch_parse.h"
#include "plan/plan_test_support.h"
#include "plan/signature.h"

#include <ctime>

namespace culet::plan::test {
namespace {

constexpr const char* kHead = "arch-lang 1\narch toy\n";  // two lines
constexpr const char* kLets =
    "let layers = meta.block_count\nlet width = meta.embedding_length\nlet heads = meta.heads\n"
    "let eps = meta.eps\nignore meta.word, meta.yes, meta.list, meta.embedding_length, meta.heads, "
    "meta.eps, token_embd, norm, attn_q\n";
constexpr const char* kModel =
    "model:\n  x = embed(token_embd)\n  layers: layer\n  output logits = rms_norm(x, output_norm, "
    "eps)\n";
constexpr const char* kLayer =
    "layer:\n  h = rms_norm(x, norm, eps)\n  x = x + linear(h, attn_q)\n";

std::string toy(const std::string& lets = "", const std::string& layer = kLayer,
                const std::string& model = kModel) {
  return std::string(kHead) + kLets + lets + model + layer;
}

std::string message_of(const std::string& text, const ModelPtr& model = toy_header().model()) {
  auto c = compile_text_of(text, model->file);
  return c ? "" : c.error().message;
}
Plan plan_of(const std::string& text) {
  const ModelPtr model = toy_header().model();
  auto c = compile_text_of(text, model->file);
  EXPECT_TRUE(c) << c.error().message;
  if (!c) return {};
  check_plan(c->plan);
  return c->plan;
}

// The message has this place and this text, and is one line.
void expect_error(const std::string& text, const std::string& place, const std::string& part,
                  const ModelPtr& model = toy_header().model()) {
  const std::string m = message_of(text, model);
  EXPECT_NE(m, "") << "accepted:\n" << text;
  EXPECT_EQ(m.rfind("test.arch:" + place, 0), 0u) << m;
  EXPECT_NE(m.find(part), std::string::npos) << "no \"" << part << "\" in: " << m;
  EXPECT_EQ(m.find('\n'), std::string::npos) << m;
}
// An expression as a hyperparameter of its own line, line 8; what is wrong is at column 9 or later.
void expect_hparam_error(const std::string& hparam, const std::string& part) {
  expect_error(toy("let f = " + hparam + "\nrequire f == f, \"never\"\n"), "8:", part);
}
double hparam(const std::string& text) {
  // x * HPARAM as the only scalar of the plan.
  const Plan p = plan_of(toy("", "layer:\n  x = x * (" + text + ")\n"));
  const auto ops = ops_of(p, OpKind::arithmetic, 1);
  return ops.empty() ? -1e9 : ops[0]->attr.as<ArithmeticAttributes>().scalar;
}
void expect_layer_error(const std::string& line, const std::string& part) {
  expect_error(toy("", "layer:\n  " + line + "\n"), "13:", part);
}

ModelPtr deep_model(uint32_t layers, const std::vector<std::string>& names) {
  Header h("toy");
  h.number("toy.block_count", layers).number("toy.embedding_length", 8).number("toy.heads", 2);
  h.real("toy.eps", 1e-5f);
  h.tensor("token_embd.weight", {8, 16}).tensor("output_norm.weight", {8});
  for (uint32_t l = 0; l < layers; ++l)
    for (const std::string& n : names) h.tensor("blk." + std::to_string(l) + "." + n, {8});
  return h.model();
}

TEST(Language, TheSmallestFile) {
  const Plan p = plan_of(toy());
  EXPECT_EQ(p.n_layers, 2);
  EXPECT_EQ(count(p, OpKind::linear_add), 2);
  EXPECT_EQ(p.prologue, 2);  // embed; no row needs another, so select_rows is right behind it
}

TEST(Language, LayoutIsFree) {
  plan_of("# a comment\n\n" + toy() + "# the end, without a line break");
  plan_of(toy("let a = (1 +\n   2)   # goes on while a parenthesis is open\n"));
  std::string windows = toy();
  for (size_t at = 0; (at = windows.find('\n', at)) != std::string::npos; at += 2)
    windows.replace(at, 1, "\r\n");
  plan_of(windows);
}

// Requirement language.grammar "the language's grammar": docs/formats/arch.md. A file is refused
// for its first mistake, with file, line, column and what to write: in header, sections, blocks,
// operators and operands, for unknown names (with the nearest known one), values read before they
// are made, missing outputs.
TEST(Language, Lexer) {
  expect_error(toy("let a = 1\tlet\n"), "8:10:", "a tab");
  expect_error("\t" + toy(), "1:1:", "a tab");
  expect_error(toy("let a = (1 + 2\n"), "8:9:", "never closed");
  expect_error(toy("let a = 1)\n"), "8:10:", "without its opening partner");
  expect_error(toy("let a = 1 ; 2\n"), "8:11:", "';' has no meaning here");
  expect_error(toy("let a = \"word\n"), "8:9:", "no closing quote");
  expect_error(toy("let a = 12ab\n"), "8:11:", "letter right behind a number");
  expect_error(toy("let a = 1e999\n"), "8:9:", "too large");
  expect_error(toy(std::string("let a\0 = 1\n", 11)), "8:6:", "byte 0x00");
  expect_error(toy("let a = \xc3\xa4\n"), "8:9:", "byte 0xc3");
  expect_error(toy("let " + std::string(300, 'a') + " = 1\n"), "8:5:", "longer than 256 bytes");
  expect_error(toy("let a = \"" + std::string(300, 'a') + "\"\n"), "8:", "longer than 256 bytes");
  expect_error(toy(std::string(300, ' ') + "let a = 1\n"), "8:1:", "indentation is too deep");
  expect_error(toy(std::string(300000, '#')), "1:1:", "larger than 256 KiB");
}

// Verifies language.grammar.
TEST(Language, Header) {
  expect_error("", "1:1:", "starts with the line 'arch-lang 1'");
  expect_error("model:\n", "1:1:", "starts with the line 'arch-lang 1'");
  expect_error("arch-lang 2\narch toy\n", "1:11:", "language version 1");
  expect_error("arch-lang 1\nlet a = 1\n", "2:1:", "second line is 'arch NAME'");
  expect_error("arch-lang 1\narch\n", "2:", "architecture name");
  expect_error("arch-lang 1\narch a/b\n", "2:7:", "end of the line");
  expect_error(toy() + "include llama\n", "15:1:", "on the line after 'arch'");
  expect_error("arch-lang 1\narch toy\n\ninclude nobody\n",
               "4:9:", "no architecture file 'nobody.arch'");
  expect_error("arch-lang 1\narch toy\ninclude ../llama\n",
               "3:9:", "expected an architecture name");
  expect_error("arch-lang 1\narch toy\ninclude a/llama\n", "3:10:", "end of the line");
}

// Verifies language.grammar.
TEST(Language, TopLevel) {
  expect_error(toy("something else\n"), "8:1:", "expected let, cache, state");
  expect_error(toy("  let a = 1\n"), "8:3:", "unexpected indentation");
  expect_error(toy("let a = 1\nlet a = 2\n"), "9:1:", "'a' is defined twice");
  expect_error(toy("let kv = 1\ncache kv: keys 1 x 2\n"), "9:1:", "'kv' is defined twice");
  expect_error(toy("let i = 1\n"), "8:1:", "a word of the language");
  expect_error(toy("let a.b = 1\n"), "8:5:", "has a dot");
  expect_error(toy("let a 1\n"), "8:7:", "expected '='");
  expect_error(toy("let a = 1 2\n"), "8:11:", "expected the end of the line, found '2'");
  expect_error(toy("let a =\n"), "8:", "expected a name, a number or '('");
  expect_error(toy("let a = if yes then 1\n"), "8:23:", "'else'; a conditional has both sides");
  expect_error(toy("let a = if yes 1 else 2\n"), "8:16:", "expected 'then'");
  expect_error(toy("require yes\n"), "8:", "expected ','");
  expect_error(toy("require yes, no\n"), "8:14:", "a message in quotes");
  expect_error(toy("kind thing\n"), "8:6:", "decoder, encoder or draft");
  expect_error(toy("kind decoder\nkind decoder\n"), "9:1:", "stands twice");
  expect_error(toy("cache kv: size 4\n"), "8:11:", "policy, donor, keys or values");
  expect_error(toy("cache kv: keys 4\n"), "8:", "'x' between heads and width");
  expect_error(toy("cache kv: keys 1 x 2, keys 1 x 2\n"), "8:23:", "given twice");
  expect_error(toy("cache kv: keys 1 x 2\ncache kv: keys 1 x 2\n"), "9:1:", "defined twice");
  expect_error(toy("state s: rows 2\n"), "8:1:", "'rows N' and 'width N'");
  expect_error(toy("state s: depth 2\n"), "8:10:", "rows or width");
  expect_error(toy("extern other: x\n"), "8:8:", "'target'");
  expect_error(toy("ignore 12\n"), "8:8:", "a tensor's name");
  expect_error(toy("ignore norm == 2\n"), "8:8:", "only a metadata key has a value");
  expect_error(toy("model:\n  x = embed(token_embd)\n"), "10:1:", "stands twice");
}

// Verifies language.grammar.
TEST(Language, Blocks) {
  expect_error(toy("", "layer:\n a:\n  x = x * 2\n a:\n  x = x * 2\n"), "15:2:", "stands twice");
  expect_error(toy("", "layer:\n a:\n b:\n  x = x * 2\n"), "13:2:", "section 'a' is empty");
  expect_error(toy("", "layer:\n a:\n  x = x * 2\n x = x * 2\n"), "15:2:", "behind section 'a'");
  expect_error(toy("", "layer:\n  x = x * 2\n    x = x * 2\n"), "14:5:", "indented more");
  expect_error(toy("", "layer:\n  when yes:\n  x = x * 2\n"), "13:3:", "nothing is indented");
  expect_error(toy("", "layer:\n  when yes:\n    x = x * 2\n  else:\n  x = x\n"),
               "13:3:", "'else'");
  expect_error(toy("", "layer:\n  else:\n    x = x * 2\n"), "13:3:", "without a 'when'");
  expect_error(toy("", "layer:\n  x += 2\n"), "13:5:", "write x = x +");
  expect_error(toy("", "layer:\n  x\n"), "13:", "expected '='");
  expect_error(toy("", "layer:\n  append kv x\n"), "13:13:", "expected ':'");
  expect_error(std::string(kHead) + kLets + kLayer, "1:1:", "block 'model:' is missing");
  expect_error(toy("", ""), "10:3:", "block 'layer:' is missing");
  expect_error(toy("", kLayer, "model:\n  layers: other\n"), "9:11:", "expected 'layer'");
  expect_error(
      toy("", kLayer, "model:\n  x = embed(token_embd)\n  layers: layer\n  layers: layer\n"),
      "11:3:", "stands once");
  expect_error(toy("", kLayer, "model:\n  x = embed(token_embd)\n  layers: layer\n"),
               "8:1:", "needs the output 'logits'");
  expect_error(toy("kind encoder\n"), "9:1:", "needs the output 'hidden'");
  expect_error(toy("", "layer:\n  output logits = x\n"), "13:3:", "outputs belong into the model");
  expect_error(toy("", kLayer, std::string(kModel) + "  output logits = x\n"), "12:3:", "twice");
  expect_layer_error("layers: layer", "stands once");
}

TEST(Language, Depth) {
  const auto deep = [](const std::string& a, int n, const std::string& b) {
    std::string s;
    for (int k = 0; k < n; ++k) s += a;
    s += "1";
    for (int k = 0; k < n; ++k) s += b;
    return s;
  };
  EXPECT_EQ(message_of(toy("let a = " + deep("(", 50, ")") + "\n")), "");
  expect_error(toy("let a = " + deep("(", 1000, ")") + "\n"), "8:", "nested too deeply");
  expect_error(toy("let a = " + deep("-", 1000, "") + "\n"), "8:", "nested too deeply");
  expect_error(toy("let a = " + deep("not ", 1000, "") + "\n"), "8:", "nested too deeply");
  expect_error(toy("let a = " + deep("1 + ", 1000, "") + "\n"), "8:", "too long");
  expect_error(toy("let a = " + deep("", 1000, "?") + "\n"), "8:", "too long");
  expect_error(toy("let a = " + deep("", 1000, "[0]") + "\n"), "8:", "too long");
  expect_error(toy("let a = " + deep("1 | ", 1000, "") + "\n"), "8:", "too long");
  expect_error(toy("let a = max(" + deep("1, ", 1000, "") + ")\n"), "8:", "too long");
  // Chains inside the first link of chains: each is short, together they are deep.
  std::string nested = "1";
  for (int k = 0; k < 40; ++k) nested = "(" + nested + " + 1 + 1 + 1 + 1 + 1)";
  expect_error(toy("let a = " + nested + "\n"), "8:", "too long or nested");
  std::string when;
  for (int k = 0; k < 150; ++k)
    when += std::string(static_cast<size_t>(k) + 2, ' ') + "when yes:\n";
  expect_error(toy("", "layer:\n" + when + std::string(160, ' ') + "x = x\n"), "7",
               "nested too deeply");
  // A chain of hyperparameters.
  std::string lets = "let f0 = 1\n";
  for (int k = 1; k < 900; ++k)
    lets += "let f" + std::to_string(k) + " = f" + std::to_string(k - 1) + " + 1\n";
  EXPECT_NE(message_of(toy(lets + "require f899 > 0, \"no\"\n")).find("too deeply"),
            std::string::npos);
}

TEST(Language, FactsAreComputed) {
  EXPECT_EQ(hparam("1 + 2 * 3 - 4 / 2"), 5);
  EXPECT_EQ(hparam("-(7 mod 4) + 10"), 7);
  EXPECT_EQ(hparam("(0 - 1) mod 4"), 3);  // the sign of the divisor
  EXPECT_EQ(hparam("sqrt(16) + floor(2.7) + min(1, 2) + max(1, 2)"), 9);
  EXPECT_EQ(hparam("if 1 < 2 and not (2 >= 3) or no then 5 else 6"), 5);
  EXPECT_EQ(hparam("if \"a\" == \"a\" and \"a\" != \"b\" then 5 else 6"), 5);
  EXPECT_EQ(hparam("meta.absent default 3"), 3);
  EXPECT_EQ(hparam("meta.absent default meta.block_count"), 2);
  EXPECT_EQ(hparam("meta.list[i]"), 5);         // layer 1
  EXPECT_EQ(hparam("meta.block_count[i]"), 2);  // a scalar read by index
  EXPECT_EQ(hparam("meta.absent[i] default 7"), 7);
  EXPECT_EQ(hparam("last(j < 2 where meta.list[j] == 3) + 1"), 1);
  EXPECT_EQ(hparam("if has(norm) then 5 else 6"), 5);
  EXPECT_EQ(hparam("if has(nothing) or has(root.norm) then 5 else 6"), 6);
  EXPECT_EQ(hparam("if has(\"blk.{i}.norm.weight\") then 5 else 6"), 5);
  EXPECT_EQ(hparam("if has(meta.word) and not has(meta.absent) then 5 else 6"), 5);
  EXPECT_EQ(hparam("if meta.yes then 5 else 6"), 5);
  EXPECT_EQ(hparam("if meta.word == \"linear\" then 5 else 6"), 5);
  EXPECT_EQ(hparam("i + 1"), 2);
  const Plan p =
      plan_of(toy("let a = b[0] + b[1]\nlet b = i * 10\n", "layer:\n  x = x * (a + i)\n"));
  EXPECT_EQ(ops_of(p, OpKind::arithmetic, 1)[0]->attr.as<ArithmeticAttributes>().scalar, 11);
}

// Verifies language.grammar.
TEST(Language, FactErrors) {
  expect_hparam_error("1 / 0", "division of 1 by zero");
  expect_hparam_error("1 mod (2 - 2)", "by zero");
  expect_hparam_error("1e300 * 1e300", "no finite number");
  expect_hparam_error("sqrt(0 - 1)", "no finite number");
  expect_hparam_error("f", "'f' is defined by itself");
  expect_hparam_error("wdith", "did you mean 'width'?");
  expect_hparam_error("meta.absent", "no key toy.absent; write 'default ...'");
  expect_hparam_error("meta.list[7]", "toy.list has 2 elements, element 7");
  expect_hparam_error("meta.list[0 - 1]", "a whole number from 0");
  expect_hparam_error("meta.word + 1",
                      "a number is needed here, but this is a string (\"linear\")");
  expect_hparam_error("meta.list + 1", "but this is a list");
  expect_hparam_error("meta.list == meta.list", "cannot be compared");
  expect_hparam_error("1 == yes", "a number is compared with a flag");
  expect_hparam_error("if 1 then 2 else 3", "a condition (yes or no) is needed");
  expect_hparam_error("not 1", "a condition (yes or no) is needed");
  expect_hparam_error("width default 3", "'default' follows a metadata key");
  expect_hparam_error("width[0][0]", "indexed");
  expect_hparam_error("sqrt(1, 2)", "sqrt takes 1 argument");
  expect_hparam_error("log(2)", "there is no function 'log' (functions: has, window, band, sqrt");
  expect_hparam_error("last(j < 2 where j > 5)", "no layer j < 2 satisfies");
  expect_hparam_error("last(j < 2 j > 5)", "'where'");
  expect_hparam_error("target.width", "attach it to one");
  expect_hparam_error("(1, 2)", "tuples belong to values");
  expect_error(toy("let g = h\nlet h = g\nrequire g > 0, \"\"\n"), "8:", "defined by itself");
  // Used outside the layers.
  const std::string x = "  x = x * f\n";
  expect_error(toy("let f = i + 1\n", kLayer, "model:\n  x = embed(token_embd)\n" + x),
               "11:11:", "differs from layer to layer; use it inside a layer, or index it as f[0]");
  expect_error(toy("", kLayer, "model:\n  x = embed(token_embd) * i\n"),
               "9:27:", "no value outside the layers");
  expect_error(toy("let f = i\nlet layer_two = f[2]\nrequire layer_two > 0, \"\"\n"),
               "9:", "from 0 to 1");
  expect_error(toy("require width > 100, \"too narrow\"\n"), "8:1:", "too narrow");
  expect_error(toy("require i < 1, \"too many layers\"\n"), "8:1:", "too many layers");
  EXPECT_NE(message_of(toy("let layers = 2\n")).find("'layers' is defined twice"),
            std::string::npos);
}

// Verifies language.grammar.
TEST(Language, MistakesInFactsThatNothingUses) {
  expect_error(toy("let spare = wdith * 2\n"), "8:13:", "did you mean 'width'?");
  expect_error(toy("let spare = meta.word + 1\n"), "8:13:", "a number is needed here");
  expect_error(toy("let spare = 1 / 0\n"), "8:15:", "division of 1 by zero");
  expect_error(toy("let spare = if i == 1 then log(2) else 0\n"), "8:28:", "there is no function");
  expect_error(toy("let one = two\nlet two = one\n"), "9:1:", "defined by itself");
  expect_error(toy("let spare = other + 1\nlet other = yes + 1\n"), "9:13:", "a number is needed");
  // What this model lacks is nobody's trouble here; nor is what is right and not used.
  EXPECT_EQ(message_of(toy("let spare = meta.absent * 2\nlet more = meta.list[i + 5]\n")), "");
  EXPECT_EQ(message_of(toy("let spare = width * 2\nlet more = spare + i\n")), "");
  // Used, but not by this model: read only when its condition holds.
  EXPECT_EQ(message_of(toy("let gate = ffn_gate\n", std::string(kLayer) + "  when has(ffn_gate):\n"
                                                                          "    x = x * gate\n")),
            "");
}

// Verifies language.parameters-of-a-definition.
TEST(Language, MetadataThatDoesNotFit) {
  const auto with = [](Header h) { return h.model(); };
  Header text("toy"), none("toy"), zero("toy"), half("toy");
  text.text("toy.block_count", "two");
  zero.number("toy.block_count", 0);
  half.real("toy.block_count", 1.5f);
  expect_error(toy(), "3:1:", "the hyperparameter 'layers' is \"two\"", with(text));
  expect_error(toy(), "3:14:", "no key toy.block_count", with(none));
  expect_error(toy(), "3:1:", "from 1 to 4096", with(zero));
  expect_error(toy(), "3:1:", "from 1 to 4096", with(half));
  expect_error(std::string(kHead) + kModel, "1:1:", "the hyperparameter 'layers' is missing");
  Header huge("toy");
  huge.number("toy.block_count", 1u << 31);
  expect_error(toy(), "3:1:", "block_count", with(huge));
}

// Requirement language.missing-tensor "missing tensor": an error at load with line and name
// Verifies language.grammar.
TEST(Language, Statements) {
  expect_layer_error("y = z", "there is no value 'z' here");
  expect_layer_error("y = silv(x)", "no operation 'silv'; did you mean 'silu'?");
  expect_layer_error("y = silv(x) * x", "no operation 'silv'; did you mean 'silu'?");
  expect_layer_error("y = x * silv(x)", "no operation 'silv'; did you mean 'silu'?");
  expect_layer_error("y = x + floor(x)", "no operation 'floor'");
  expect_layer_error("y = sqrt(width)", "'width' is a hyperparameter, a value is needed");
  expect_layer_error("y = append(x)", "no operation 'append'");
  expect_layer_error("y = quantize(x)", "no operation 'quantize'");
  expect_layer_error("y = width", "'width' is a hyperparameter, a value is needed");
  expect_layer_error("y = width * 2", "this is a hyperparameter");
  expect_layer_error("width = x", "'width' is a hyperparameter; give the value another name");
  expect_layer_error("a, b = x", "2 names for 1 values");
  expect_layer_error("y = linear(x)",
                     "linear takes a value, a tensor, a tensor or none, this has 1");
  expect_layer_error("y = silu(x, x)", "one too many");
  expect_layer_error("y = linear(x, attn_k)", "tensor blk.0.attn_k.weight is missing");
  expect_layer_error("y = linear(x, attn_k | attn_v)", "none of these tensors");
  expect_layer_error("y = linear(x, none)", "cannot be left out");
  expect_layer_error("y = linear(x, width)", "a tensor is needed here, but 'width' is a number");
  expect_layer_error("y = rms_norm(x, norm, norm)", "a number is needed here");
  expect_layer_error("y = x == x", "'==' does not apply to values");
  expect_layer_error("y = norm - x", "a tensor stands on the right");
  expect_layer_error("y = x / 0", "by zero");
  expect_layer_error("y = x * 1e200", "fits a float");
  expect_layer_error("y = concat()", "at least one value");
  expect_layer_error("y = x default 3", "a value is needed here, this is a hyperparameter");
  expect_layer_error("y = silu(split(x, 2))", "one value is needed here, this makes 2");
}

// Nothing of a program is an operation: no file, no network, no loop, no jump, no call.
// Requirement language.list-of-operations "the list of operations": exactly the rows of
// `plan/ops.def`, all in the document; no word of a program (loop, call, file, network) is one
TEST(Language, WordsOfProgramsAreNoOperations) {
  for (const char* word :
       {"unless", "while", "loop",  "for",    "match", "goto",      "call",  "exec",
        "eval",   "shell", "run",   "import", "open",  "read_file", "write", "http",
        "fetch",  "env",   "print", "system", "sleep", "random",    "load",  "save"}) {
    expect_layer_error("x = " + std::string(word) + "(x)", "no operation '" + std::string(word));
    expect_error(toy(std::string(word) + " \"x\"\n"), "8:1:", "expected let, cache, state");
  }
  for (const char* word : {"if", "include", "require"})
    expect_error(toy("", "layer:\n  x = " + std::string(word) + "(x)\n"), "13:", "");
}

// Requirement language.alternative-tensor "alternative tensor": `A | B`: the first that the file
// has, any number of them; a tied embedding works
// Requirement language.i-in-names "`{i}` in names": layer 7 reads `blk.7`; outside the layers it is
// refused
TEST(Language, NamesOfTensorsFollowTheLayer) {
  const ModelPtr model = deep_model(8, {"a.weight"});
  for (const char* name :
       {"a", "a.weight", "\"blk.{i}.a.weight\"", "none_such | a", "\"none.{i}\" | none_such | a"}) {
    auto c = compile_text_of(toy("", "layer:\n  x = rms_norm(x, " + std::string(name) + ", eps)\n"),
                             model->file);
    ASSERT_TRUE(c) << c.error().message;
    const auto norms = ops_of(c->plan, OpKind::rms_norm, 7);
    ASSERT_EQ(norms.size(), 1u);
    EXPECT_EQ(model->file.tensors()[static_cast<size_t>(norms[0]->weights[0])].name,
              "blk.7.a.weight");
  }
  // Outside the layers there is no layer to put in.
  for (const char* name : {"\"blk.{i}.norm.weight\"", "attn_q"})
    expect_error(toy("", kLayer,
                     "model:\n  x = rms_norm(embed(token_embd), " + std::string(name) +
                         ", eps)\n  layers: layer\n  output logits = x\n"),
                 "9:", "missing");
}

// Verifies language.grammar.
TEST(Language, Attributes) {
  const std::string view = "q = linear(x, attn_q) as [heads, 4]\n  ";
  const auto rope_error = [&](const std::string& attributes, const std::string& part) {
    expect_error(toy("", "layer:\n  " + view + "q = rope(q, " + attributes + ")\n"), "14:", part);
  };
  rope_error("pairs=halves, dims=4", "rope needs 'base='");
  rope_error("pairs=halves, dims=4, base=1, bass=2", "rope has no 'bass=' (it has: pairs, dims");
  rope_error("pairs=halves, dims=4, base=1, base=2", "given twice");
  rope_error("pairs=halves, x", "operands stand before");
  rope_error("pairs=halves, dims=3, base=1", "an even number from 2 to 4");
  rope_error("pairs=halves, dims=6, base=1", "an even number from 2 to 4");
  rope_error("pairs=halves, dims=2.5, base=1", "a whole number");
  rope_error("pairs=halves, dims=4, base=0", "base is 0");
  rope_error("pairs=halves, dims=4, base=1, scale=0", "must be positive");
  rope_error("pairs=silu, dims=4, base=1", "it is one of: adjacent, halves");
  rope_error("pairs=3, dims=4, base=1", "is a word such as");
  rope_error("pairs=halves, dims=4, base=1, factors=norm", "has 8 factors, 2 are needed");
  expect_layer_error("y = embed(root.token_embd, by=colour)",
                     "it is one of: token, position, type");
  expect_layer_error("y = route(x, top=9)", "route picks 9 of 8");
}

// Verifies language.grammar.
TEST(Language, Shapes) {
  expect_layer_error("y = linear(x, root.token_embd) + x", "shapes [16] and [8] differ");
  expect_layer_error("y = linear(x as [2, 4], attn_q)", "write 'as [8]' behind it");
  expect_layer_error("y = linear(concat(x, x), attn_q)", "linear of a value of width 16 needs");
  expect_layer_error("y = rms_norm(x, attn_q, eps)", "a vector of 8 is needed");
  expect_layer_error("y = rms_norm(x as [2, 4], norm, eps)", "{4} is needed here");
  expect_layer_error("y = rms_norm(x, norm, 0)", "epsilon is 0");
  expect_layer_error("y = rms_norm(x, norm, 1e-60)", "epsilon");
  expect_layer_error("y = x as [3, 3]", "cannot be seen as [3, 3]: 8 numbers against 9");
  expect_layer_error("y = x as [268435456, 268435456, 268435456]", "cannot be seen as");
  expect_layer_error("y = x as [1, 2, 2, 2]", "one to three numbers");
  expect_layer_error("y = x as [0, 8]", "a whole number from 1");
  expect_layer_error("y = x[0]", "has no slices");
  expect_layer_error("y = (x as [2, 4])[2]", "a whole number from 0 to 1");
  expect_layer_error("a, b, c = split(x, 3)", "does not split into 3");
  expect_layer_error("a = split(x, 0)", "does not split into 0");
  expect_layer_error("y = slice(x, 4, 5)", "columns 4 to 9 are not inside");
  expect_layer_error("y = slice(x, 0.5, 2)", "are not inside");
  expect_layer_error("y = softcap(x, 0)", "the cap is 0");
  expect_layer_error("y = concat(x as [2, 4], x)", "concat joins plain vectors");
  expect_layer_error("y = experts(x, x, gate=attn_q, down=attn_q)", "gate= with up=, or gate_up=");
  expect_layer_error("y = experts(x, x, gate_up=attn_q, down=attn_q)", "what route() gives");
  expect_layer_error("y = matmul(x, x)", "matmul takes [m, n] and [n, k], these are [8] and [8]");
  expect_layer_error("y = matmul(x as [2, 4], x as [2, 4])", "these are [2, 4] and [2, 4]");
  expect_layer_error("y = matmul(x as [8, 1], x as [8, 1])", "these are [8, 1] and [8, 1]");
  expect_layer_error("y = x * (x as [2, 4])", "shapes [8] and [2, 4] differ; beside [8]");
  expect_layer_error("y = (x as [2, 4]) + slice(x, 0, 2)",
                     "beside [2, 4] the second value may also be [1], [2, 1] or [4]");
  expect_layer_error("y = row_mean(x) * x", "shapes [1] and [8] differ");
  const Plan p = plan_of(toy("", "layer:\n  y = (x as [2, 4])[1]\n  x = concat(y, y)\n"));
  EXPECT_EQ(ops_of(p, OpKind::view_layer, 0)[0]->attr.as<ColumnsAttributes>().first, 4);
}

TEST(Language, ASmallerValueStandsForManyNumbersOfTheFirst) {
  const std::string lines =
      "layer:\n  h = x as [2, 4]\n  h = (h - row_mean(h)) * slice(x, 0, 4)\n"
      "  x = (h as [8]) / sqrt(row_mean(x * x)) * sqrt(4)\n";
  const Plan p = plan_of(toy("", lines));
  const auto ops = ops_of(p, OpKind::arithmetic, 0);
  ASSERT_EQ(ops.size(), 5u);
  EXPECT_EQ(value(p, ops[0]->in[1]).dims, (std::array<int32_t, 3>{2, 1, 0}));
  EXPECT_EQ(value(p, ops[1]->in[1]).width, 4);
  EXPECT_EQ(value(p, ops[3]->in[1]).width, 1);
  EXPECT_EQ(ops[4]->attr.as<ArithmeticAttributes>().scalar,
            2);  // a number's root is a hyperparameter
  EXPECT_EQ(count(p, OpKind::sqrt), 2);
}

TEST(Language, GroupedLinearTakesOneVectorOrOneForEachMatrix) {
  const ModelPtr model = toy_header().tensor("three.weight", {8, 5, 3}).model();
  const auto with = [&](const std::string& x) {
    return message_of(toy("", kLayer,
                          "model:\n  x = embed(token_embd)\n  y = grouped_linear(" + x +
                              ", three)\n  layers: layer\n  output y = y as [5, 3]\n"
                              "  output logits = rms_norm(x, output_norm, eps)\n"),
                      model);
  };
  EXPECT_EQ(with("x"), "");
  EXPECT_EQ(with("concat(x, x, x) as [3, 8]"), "");
  EXPECT_NE(with("concat(x, x, x)").find("this value is [24]; grouped_linear takes [8] or [3, 8]"),
            std::string::npos);
  EXPECT_NE(with("concat(x, x) as [2, 8]").find("this value is [2, 8]"), std::string::npos);
  EXPECT_NE(with("x as [1, 8]").find("this value is [1, 8]"), std::string::npos);
  const ModelPtr many = toy_header().tensor("three.weight", {8, 1, 4097}).model();
  EXPECT_NE(message_of(toy("", kLayer,
                           "model:\n  x = embed(token_embd)\n  y = grouped_linear(x, three)\n"
                           "  layers: layer\n  output logits = x\n"),
                       many)
                .find("at most 4096 matrices"),
            std::string::npos);
}

TEST(Language, PoolMakesOneRowOfEachSequence) {
  const auto encoder = [](const std::string& lines) {
    return toy("kind encoder\nignore output_norm\n", kLayer,
               "model:\n  x = embed(token_embd)\n  layers: layer\n  output hidden = x\n" + lines);
  };
  const Plan p = plan_of(encoder(
      "  p = (pool(x, how=mean) as [2, 4])[1]\n  output pooled = -p / sqrt(row_mean(p * p))\n"));
  ASSERT_EQ(count(p, OpKind::pool), 1);
  EXPECT_EQ(value(p, p.output("hidden")).rows, TokenSet::kAll);
  EXPECT_EQ(value(p, p.output("pooled")).rows, TokenSet::kOutputs);
  EXPECT_EQ(value(p, p.output("pooled")).width, 4);
  const auto refused = [&](const std::string& line, const std::string& part) {
    expect_error(encoder("  " + line + "\n"), "14:", part);
  };
  refused("output pooled = x",
          "'pooled' is one plain vector of each sequence; make it with pool()");
  refused("output pooled = pool(x, how=mean) as [2, 4]", "'pooled' is one plain vector");
  refused("y = pool(pool(x, how=mean), how=mean)", "pool takes a row of each token");
  refused("y = pool(x, how=first) + x", "one operand has a row of each token");
  refused("y = x + pool(x, how=first)", "one operand has a row of each token");
  refused("y = rope(pool(x, how=first), pairs=halves, dims=8, base=2)", "rope takes a row of each");
  refused("y = pool(x)", "pool needs 'how='");
  refused("y = pool(x, how=silu)", "it is one of: mean, first");
  expect_error(toy("kind encoder\nignore output_norm\n", kLayer,
                   "model:\n  x = embed(token_embd)\n  layers: layer\n"
                   "  output hidden = pool(x, how=mean)\n"),
               "13:", "what pool makes is the output 'pooled'");
  expect_layer_error("y = pool(x, how=mean)", "only an encoder, which sees whole sequences");
}

TEST(Language, AViewDoesNotChangeWhatAnOpComputed) {
  const Plan p =
      plan_of(toy("", "layer:\n  h = rms_norm(x as [2, 4], none, eps) as [8]\n  x = h\n"));
  const Op& norm = *ops_of(p, OpKind::rms_norm, 0)[0];
  EXPECT_EQ(value(p, norm.in[0]).rank, 2);
  EXPECT_EQ(value(p, norm.out[0]).rank, 2);  // the view is a copy of it
}

// Requirement language.parameters-of-a-definition "parameters of a definition": there are none
// besides facts; a window of 0 or of 2.5 is refused at load
// Verifies language.grammar.
TEST(Language, Caches) {
  const std::string qkv =
      "  q = linear(x, attn_q) as [2, 4]\n  k = linear(x, attn_q) as [2, 4]\n";  // lines 14, 15
  const auto cache_error = [&](const std::string& decl, const std::string& lines,
                               const std::string& place, const std::string& part) {
    expect_error(toy(decl + "\n", "layer:\n" + qkv + lines), place, part);
  };
  const std::string use = "  append kv: k, k\n  x = x + attend(q, kv, scale=1)\n";
  const std::string good = "cache kv: keys 2 x 4";
  EXPECT_EQ(message_of(toy(good + "\n", "layer:\n" + qkv + use)), "");
  cache_error(good, "  x = attend(q, kv, scale=1)\n", "16:", "read before anything is appended");
  cache_error(good, "  append kv: k, k\n  append kv: k, k\n", "17:", "appended twice");
  cache_error(good, "  append other: k, k\n", "16:", "no cache 'other'");
  cache_error(good, "  x = attend(q, other, scale=1)\n", "16:", "a cache's name or (k, v)");
  cache_error(good, "  x = attend(q, (k, k), scale=1)\n", "16:", "a decoder attends over a cache");
  cache_error("cache kv: policy full", use, "8:", "needs 'keys HEADS x WIDTH'");
  cache_error("cache kv: keys 2 x 8", use, "16:", "the keys are [2, 4], cache kv holds [2, 8]");
  cache_error("cache kv: keys 2 x 4, values 2 x 8", use, "16:", "the values are [2, 4]");
  cache_error("cache kv: keys 2 x 4, values 1 x 8", use, "8:", "different numbers of heads");
  cache_error("cache kv: policy self, keys 2 x 4", use, "8:", "full, global or window(n)");
  cache_error("cache kv: policy window(0), keys 2 x 4", use, "8:", "window(n) with n >= 1");
  cache_error("cache kv: policy window(2.5), keys 2 x 4", use, "8:", "window(n)");
  cache_error("cache kv: donor full, keys 2 x 4", use, "8:", "a layer's index or self is needed");
  cache_error("cache kv: donor 1e30, keys 2 x 4", use, "8:", "a layer's index or self is needed");
  cache_error("cache kv: donor 1, keys 2 x 4", use,
              "17:", "would come from layer 1, which appends nothing");
  cache_error(good, "  append kv: k, k\n  x = attend(x, kv, scale=1)\n",
              "17:", "write 'as [heads, head_dim]'");
  cache_error("kind encoder\n" + good, use, "17:", "only a decoder appends");
  expect_error(toy(good + "\n", kLayer, "model:\n  x = embed(token_embd)\n  append kv: x, x\n"),
               "11:3:", "append belongs into the layer");
  expect_error(toy("state s: rows 2, width 8\n", "layer:\n  x = short_conv(x, norm, s)\n"),
               "14:", "{rows + 1, width} is needed");
  expect_layer_error("x = short_conv(x, norm, s)", "a state's name is needed");
}

TEST(Language, TensorsAndKeysThatNobodyReads) {
  const ModelPtr extra = toy_header().tensor("blk.1.new.weight", {8}).model();
  const std::string m = message_of(toy(), extra);
  EXPECT_NE(m.find("made.gguf: unused tensor blk.1.new.weight: test.arch does not read it"),
            std::string::npos)
      << m;
  EXPECT_EQ(message_of(toy("ignore new\n"), extra), "");
  EXPECT_EQ(message_of(toy("ignore \"blk.*.new.*\"\n"), extra), "");
  EXPECT_EQ(message_of(toy("ignore new when i == 1\n"), extra), "");
  EXPECT_NE(message_of(toy("ignore new when i == 0\n"), extra).find("unused tensor"),
            std::string::npos);
  EXPECT_NE(message_of(toy("ignore new when no\n"), extra).find("unused tensor"),
            std::string::npos);
  EXPECT_NE(message_of(toy("ignore \"blk.*\" when no\n"), extra).find("unused tensor"),
            std::string::npos);
  expect_error(toy("ignore \"blk.*\" when i == 1\n"), "8:", "cannot depend on the layer", extra);

  const ModelPtr rope = toy_header().real("toy.rope.freq_base", 10).model();
  const auto unread = [&](const std::string& lets) { return message_of(toy(lets), rope); };
  const std::string refused =
      "made.gguf: the model file sets toy.rope.freq_base = 10, which test.arch does not read";
  EXPECT_EQ(unread("").rfind(refused, 0), 0u) << unread("");
  EXPECT_EQ(unread("ignore meta.rope.freq_base\n"), "");
  EXPECT_EQ(unread("ignore \"meta.rope.*\"\n"), "");
  EXPECT_EQ(unread("let base = meta.rope.freq_base\nrequire base > 0, \"\"\n"), "");
  // A hyperparameter that nothing names reads nothing.
  EXPECT_EQ(unread("let base = meta.rope.freq_base\n").rfind(refused, 0), 0u);
  // A key that only an untaken branch names is not read, nor is one that is asked for by has().
  EXPECT_EQ(unread("let b = if width > 8 then meta.rope.freq_base else 1\n"
                   "require b > 0, \"\"\n")
                .rfind(refused, 0),
            0u);
  EXPECT_EQ(unread("require width == 8 or meta.rope.freq_base == 1, \"\"\n").rfind(refused, 0), 0u);
  EXPECT_EQ(unread("require has(meta.rope.freq_base), \"\"\n").rfind(refused, 0), 0u);
  EXPECT_EQ(unread("let b = if width == 8 then meta.rope.freq_base else 1\n"
                   "require b > 0, \"\"\n"),
            "");
  // Nor does a hyperparameter that nothing names hide that a named one reads the key, or not.
  EXPECT_EQ(unread("let a = b + 1\nlet b = meta.rope.freq_base\n").rfind(refused, 0), 0u);
  EXPECT_EQ(unread("let a = b + 1\nlet b = meta.rope.freq_base\nrequire b > 0, \"\"\n"), "");
  // Of one value, under a condition, or both.
  EXPECT_EQ(unread("ignore meta.rope.freq_base == 10\n"), "");
  EXPECT_EQ(unread("ignore meta.rope.freq_base == 1, meta.rope.freq_base == 10\n"), "");
  const std::string two = unread("ignore meta.rope.freq_base == 1, meta.rope.freq_base == 2\n");
  EXPECT_NE(two.find("(only 1 or 2 may stay unread)"), std::string::npos) << two;
  EXPECT_EQ(unread("ignore meta.rope.freq_base == \"10\"\n").rfind(refused, 0), 0u);
  EXPECT_EQ(unread("ignore meta.rope.freq_base == yes\n").rfind(refused, 0), 0u);
  EXPECT_EQ(unread("ignore \"meta.rope.*\" == 10 when width == 8\n"), "");
  EXPECT_EQ(unread("ignore \"meta.rope.*\" == 10 when width == 9\n").rfind(refused, 0), 0u);
  EXPECT_EQ(unread("ignore meta.rope.freq_base when meta.rope.freq_base == width + 2\n"), "");
  expect_error(toy("ignore meta.rope.freq_base when width\n"), "8:8:", "needs a condition", rope);
  // A condition about a key that is not there is not asked.
  EXPECT_EQ(message_of(toy("ignore meta.absent when meta.absent == 1\n")), "");
  const ModelPtr list = toy_header().numbers("toy.other", {4, 4}).model();
  EXPECT_EQ(message_of(toy("ignore meta.other == 4\n"), list), "");
  EXPECT_NE(message_of(toy("ignore meta.other == 3\n"), list).find("toy.other = a list of 2"),
            std::string::npos);
  const ModelPtr other = toy_header().text("toy.note", "a\nb").model();
  EXPECT_NE(message_of(toy(), other).find("toy.note = \"a"), std::string::npos);
  EXPECT_EQ(message_of(toy(), other).find('\n'), std::string::npos);
  auto c = compile_text_of(toy("ignore meta.note\n"), other->file);
  ASSERT_TRUE(c);
  EXPECT_EQ(c->warnings.size(), 2u);  // two hyperparameters of toy() that nothing reads
  EXPECT_EQ(c->unread_keys.back(), "toy.note");
  const ModelPtr another = toy_header().model();
  c = compile_text_of(toy("let brnch = meta.heads\n"), another->file);
  ASSERT_TRUE(c);
  EXPECT_EQ(std::count(c->warnings.begin(), c->warnings.end(),
                       "test.arch:8: nothing reads the hyperparameter 'brnch'"),
            1);
}

// A key of the wrong type is named, wherever its value is needed.
TEST(Language, KeysOfTheWrongType) {
  const auto expect = [](const std::string& lets, const std::string& part,
                         const ModelPtr& model = toy_header().model()) {
    const std::string m = message_of(toy(lets), model);
    EXPECT_NE(m.find(part), std::string::npos) << m;
  };
  const std::string from = ", from the key toy.word of the model file";
  expect("require meta.word > 0, \"\"\n", "this is a string (\"linear\")" + from);
  expect("let w = meta.word default 1\nrequire w > 0, \"\"\n", from);
  expect("let w = meta.absent default meta.word\nrequire w > 0, \"\"\n", from);
  expect("let w = if width == 8 then meta.word else 1\nlet v = w\nrequire v > 0, \"\"\n", from);
  expect("require meta.word, \"\"\n", from);
  expect("require meta.word == 1, \"\"\n", "a string" + from + " is compared with a number");
  expect("require meta.list > 0, \"\"\n", "a list (list of 2), from the key toy.list");
  expect("require meta.list == 3, \"\"\n",
         "a list, from the key toy.list of the model file cannot");
  expect("require meta.yes > 0, \"\"\n", "from the key toy.yes");
  expect("require meta.word + width > 0, \"\"\n", from);
  expect("", "toy.context_length is no whole number",
         toy_header().text("toy.context_length", "many").model());
  expect("", "toy.context_length is no whole number",
         toy_header().numbers("toy.context_length", {4, 4}).model());
}

// Verifies language.alternative-tensor.
TEST(Language, OptionalTensors) {
  const Plan p =
      plan_of(toy("", "layer:\n  x = linear(x, attn_q, attn_q.bias?) * gain? * (shift? | norm)\n"));
  EXPECT_EQ(ops_of(p, OpKind::linear, 0)[0]->weights[1], kNone);
  EXPECT_EQ(count(p, OpKind::arithmetic), 2);  // one a layer: by norm
}

// Requirement language.what-is-visible-where "what is visible where": what a layer makes ends with
// it; what `model` made before the layers stays
TEST(Language, ScopeOfALayer) {
  // What a layer makes ends with it; what it replaces stays.
  expect_error(toy("", "layer:\n  when i == 1:\n    x = x + y\n  y = x * 2\n  x = y\n"), "14:",
               "'y' is neither a value or hyperparameter here nor a tensor of the model file "
               "(blk.1.y.weight)");
  expect_error(
      toy("", "layer:\n  y = x * 2\n  x = y\n",
          "model:\n  x = embed(token_embd)\n  layers: layer\n  output logits = x + y\n"),
      "11:",
      "'y' is neither a value or hyperparameter here nor a tensor of the model file (y.weight)");
  const Plan p = plan_of(toy("", "layer:\n  x = x * 2\n"));
  EXPECT_EQ(ops_of(p, OpKind::arithmetic, 1)[0]->in[0],
            ops_of(p, OpKind::arithmetic, 0)[0]->out[0]);
}

TEST(Language, RowsMadeBehindTheLastAppendAreSelectedToo) {
  const Plan p = plan_of(toy("cache kv: keys 1 x 8\n",
                             "layer:\n  k = x as [1, 8]\n  append kv: k, k\n  x = x * 2\n",
                             "model:\n  x = embed(token_embd)\n  layers: layer\n"
                             "  x = x + embed(token_embd)\n"
                             "  output logits = rms_norm(x, output_norm, eps)\n"));
  const auto embeds = ops_of(p, OpKind::embed);
  ASSERT_EQ(embeds.size(), 2u);
  EXPECT_EQ(value(p, embeds[1]->out[0]).rows, TokenSet::kAll);
  EXPECT_EQ(count(p, OpKind::select_rows), 2);
  EXPECT_EQ(value(p, p.output("logits")).rows, TokenSet::kOutputs);
}

TEST(Language, LayersWithoutOps) {
  const Plan p = plan_of(toy("", "layer:\n  when i == 0:\n    x = x * 2\n"));
  EXPECT_EQ(p.layers[0].count, 1);
  EXPECT_EQ(p.layers[1].count, 0);
}

TEST(Language, ValuesThatNothingReads) {
  const std::string kWhat = "nothing reads the value 'y' that is made here";
  expect_error(toy("", "layer:\n  y = x * 2\n"), "13:3:", kWhat);
  expect_error(toy("", "layer:\n  y = x * 2\n  y = x * 3\n  x = y\n"), "13:3:", kWhat);
  expect_error(toy("", "layer:\n  when i == 1:\n    y = x * 2\n"), "14:5:", kWhat);
  expect_error(toy("", kLayer, std::string(kModel) + "  y = x * 2\n"), "12:3:", kWhat);
  EXPECT_EQ(message_of(toy("",
                           "layer:\n  y = x * 2\n  when i == 1:\n    x = y\n  else:\n    "
                           "x = y * 2\n"),
                       toy_header().model()),
            "");
}

TEST(Language, NamesThatAreNearlyThere) {
  expect_layer_error("x = rope(x as [2, 4], pairs=neox, dims=4, base=10000)",
                     "pairs= is 'neox'; it is one of: adjacent, halves");
  expect_error(toy("", kLayer, "model:\n  x = embed(token_embd)\n  output logits = x\n"),
               "8:1:", "has no line 'layers: layer'");
  expect_layer_error("x = rms_norm(x, nrm, eps)", "did you mean 'norm'?");
  expect_layer_error("x = x * wdith", "did you mean 'width'?");
  expect_hparam_error("meta.hads", "no key toy.hads; did you mean meta.heads? Otherwise write");
}

TEST(Language, MessagesArePrintable) {
  const std::string m = message_of(toy("let a = \"\x01\x7f\" + 1 \x02\n"));
  for (char c : m) EXPECT_TRUE(static_cast<unsigned char>(c) >= 32 && c != 127) << m;
}

TEST(Language, DeclarationsAreBounded) {
  std::string lets;
  for (int k = 0; k < 1100; ++k) lets += "let f" + std::to_string(k) + " = 1\n";
  EXPECT_NE(message_of(toy(lets)).find("more than 1000 definitions"), std::string::npos);
}

// Nothing that fits into a file takes long. Processor time, with room for sanitizers: what this
// catches is work that grows with a product of sizes, which would take minutes.
class Quick {
 public:
  ~Quick() { EXPECT_LT(static_cast<double>(std::clock() - start_) / CLOCKS_PER_SEC, 30); }

 private:
  std::clock_t start_ = std::clock();
};

// Verifies reports-loading.llama.cpp#19919.
TEST(Language, ManyLayersAreQuick) {
  const Quick quick;
  const ModelPtr model = deep_model(4096, {"a.weight", "b.weight", "c.weight"});
  std::string ignores;
  for (int k = 0; k < 40; ++k) ignores += "ignore n" + std::to_string(k) + "\n";
  EXPECT_EQ(
      message_of(toy(ignores + "ignore b, c when i >= 0\n", "layer:\n  x = rms_norm(x, a, eps)\n"),
                 model),
      "");
  // A huge count with a tiny file is refused at its first layer.
  EXPECT_NE(message_of(toy(), deep_model(4096, {})).find("missing"), std::string::npos);
}

TEST(Language, HostileTextIsQuick) {
  const Quick quick;
  const ModelPtr model = deep_model(4096, {});
  const auto lines = [](const std::string& line, size_t n) {
    std::string s;
    for (size_t k = 0; k < n; ++k) s += line;
    return s;
  };
  const std::string head = "layer:\n";
  EXPECT_NE(message_of(toy("", head + lines("  x = x\n", 20000)), model).find("too many steps"),
            std::string::npos);
  EXPECT_NE(message_of(toy("", head + lines("  x = x * 2\n", 10000)), model).find("too many"),
            std::string::npos);
  EXPECT_NE(message_of(toy("", head + lines("  when no:\n    y = x\n", 9000)), model).find("steps"),
            std::string::npos);
  EXPECT_NE(message_of(toy("", head + lines("  x = x * a?\n", 15000)), model).find("steps"),
            std::string::npos);
  EXPECT_NE(
      message_of(toy("let f = last(a < 4096 where last(b < 4096 where last(c < 4096 where no) > 0) "
                     "> 0)\nrequire f > 0, \"\"\n"),
                 model)
          .find("no layer"),
      std::string::npos);
  EXPECT_NE(message_of(toy("let f = last(a < 4096 where last(b < 4096 where b == 0) > 0)\n"
                           "require f > 0, \"\"\n"),
                       model)
                .find("steps"),
            std::string::npos);
  // Many values that all cross the border behind the last append.
  std::string many = "layer:\n  k = x as [1, 8]\n", reads;
  for (int k = 0; k < 5000; ++k) many += "  v" + std::to_string(k) + " = x * 2\n";
  many += "  append kv: k, k\n";
  for (int k = 0; k < 5000; ++k) many += "  x = x + v" + std::to_string(k) + "\n";
  const ModelPtr shallow = deep_model(2, {});
  EXPECT_EQ(message_of(toy("cache kv: keys 1 x 8\n", many), shallow), "");
}

// docs/formats/arch.md names every op and every attribute that a file can write.
// Verifies language.list-of-operations.
TEST(Language, TheDocumentListsEveryOperation) {
  const std::string doc = read_text(CULET_SOURCE_DIR "/docs/formats/arch.md");
  for (const Signature& s : signatures()) {
    if (!s.writable || s.kind == OpKind::arithmetic) continue;
    const std::string start =
        s.kind == OpKind::append ? "| `append " : "| `" + std::string(s.name) + "(";
    const size_t at = doc.find(start);
    ASSERT_NE(at, std::string::npos) << s.name << " has no row in docs/formats/arch.md";
    const std::string row = doc.substr(at, doc.find('\n', at) - at);
    for (const AttributeRule& a : s.attributes)
      EXPECT_NE(row.find(a.name + "="), std::string::npos)
          << s.name << " " << a.name << ": " << row;
  }
}

// Two layers with a state of two rows each.
Header conv_header() {
  Header h = toy_header();
  for (const char* l : {"blk.0.", "blk.1."}) h.tensor(l + std::string("conv.weight"), {3, 8});
  return h.numbers("toy.banned", {3, 7}).numbers("toy.outside", {3, 8});
}
constexpr const char* kState =
    "state past: rows 2, width width\nignore meta.banned, meta.outside\n";

TEST(Language, EveryLayerThatUsesAStateHasOne) {
  const ModelPtr model = conv_header().model();
  auto c = compile_text_of(toy(kState,
                               "layer:\n  when i == 1:\n    x = x + short_conv(x, conv, past)\n"
                               "  x = x * 2\n") +
                               "ignore conv when i == 0\n",
                           model->file);
  ASSERT_TRUE(c) << c.error().message;
  ASSERT_EQ(c->plan.states.size(), 1u);
  EXPECT_EQ(c->plan.states[0].layer, 1);
  EXPECT_EQ(c->plan.states[0].rows, 2);
  EXPECT_EQ(c->plan.states[0].width, 8);
  EXPECT_EQ(ops_of(c->plan, OpKind::short_conv)[0]->attr.as<ShortConvAttributes>().state, 0);
  EXPECT_NE(explain(c->plan, model->file, {}).find("state=past/1 rows=2"), std::string::npos);
}

TEST(Language, StateErrors) {
  const ModelPtr model = conv_header().model();
  const auto layer = [](const std::string& line) { return "layer:\n  " + line + "\n"; };
  expect_error(toy(kState, layer("x = short_conv(x, conv, other)")), "15:", "a state's name",
               model);
  expect_error(toy(kState, layer("x = short_conv(short_conv(x, conv, past), conv, past)")),
               "15:", "state 'past' is used twice in this layer", model);
  expect_error(toy("state past: rows 3, width width\n", layer("x = short_conv(x, conv, past)")),
               "14:", "{rows + 1, width} is needed", model);
  expect_error(toy(kState, kLayer,
                   "model:\n  x = embed(token_embd)\n  x = short_conv(x, \"blk.0.conv.weight\", "
                   "past)\n  layers: layer\n  output logits = x\n"),
               "12:", "use it in the layer block", model);
}

TEST(Language, SuppressTakesTokenIdsOfTheValue) {
  const ModelPtr model = conv_header().model();
  const auto with = [](const std::string& list) {
    return toy(std::string(kState) + "ignore conv, output_norm\n", kLayer,
               "model:\n  x = embed(token_embd)\n  layers: layer\n  output logits = suppress(x, " +
                   list + ")\n");
  };
  auto c = compile_text_of(with("meta.banned"), model->file);
  ASSERT_TRUE(c) << c.error().message;
  const Op& op = *ops_of(c->plan, OpKind::suppress)[0];
  EXPECT_EQ(c->plan.token_lists[static_cast<size_t>(op.attr.as<SuppressAttributes>().tokens)],
            (std::vector<int32_t>{3, 7}));
  EXPECT_EQ(message_of(with("none"), model), "");
  expect_error(with("meta.outside"), "14:", "element 1 of this list is 8; a token id from 0 to 7",
               model);
  expect_error(with("3"), "14:", "a metadata array of token ids or none", model);
}

TEST(Language, AStreamIsImpossibleWhenARopeFollowsTheContext) {
  const auto why = [](const std::string& lets, const std::string& layer) {
    return plan_of(toy(lets, "layer:\n" + layer)).no_stream;
  };
  const std::string rope = "  x = rope(x, pairs=halves, dims=8, base=";
  EXPECT_EQ(why("let far = session.context > 5\n", rope + "10)\n"), "");
  EXPECT_EQ(why("", rope + "10)\n  x = x * session.context\n"), "");
  EXPECT_EQ(why("let far = session.context > 5\nlet b = if far then 2 else 3\n", rope + "b)\n"),
            "the rotary factors depend on the length of the context (test.arch:8: let far = "
            "session.context > 5)");
  // The choice of the rope counts as well, taken or not.
  EXPECT_NE(why("", "  when session.context > 5:\n  " + rope + "2)\n"), "");
  EXPECT_NE(why("", "  when session.context < 5:\n    x = x * 2\n  else:\n  " + rope + "2)\n"), "");
  EXPECT_NE(why("",
                "  x = if session.context > 5 then x else rope(x, pairs=halves, dims=8, "
                "base=2)\n"),
            "");
}

}  // namespace
}  // namespace culet::plan::test
