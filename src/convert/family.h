// Family files: how the tensors and the configuration of a published model become those of a GGUF
// file (docs/formats/family.md). One file a family, models/convert/NAME.family, built in.
#pragma once

#include "convert/expression.h"
#include "culet/result.h"

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace culet::convert {

// The line of a statement, for messages: "llama.family:12".
using LineName = std::string;

enum class MetaKind : uint8_t { kUint32, kFloat32, kBool, kString };

struct MetaRow {
  std::string key;  // without the architecture where it has no dot in front: see full_key()
  MetaKind kind;
  bool each;      // an array with an element for each layer
  bool optional;  // left out where the value is absent
  Expression value;
  std::optional<Expression> when;
  LineName location;
  int file;  // which of the files that are laid over each other
};

struct Transform {
  enum class Kind : uint8_t {
    kRotate,   // rotate(heads): rows of a head from halves to adjacent pairs
    kPlusOne,  // plus_one: every value and 1
    kPart,     // part(n, of): the n-th (from 0) of equal parts of the rows
    kSkip,     // skip(n): without the first n rows
    kSqueeze,  // squeeze: without dimensions of one
  };
  Kind kind;
  std::vector<Expression> operands;
};

struct TensorRow {
  std::string from, to;  // {i}: each layer; {e} in from: each expert, stacked
  bool optional;
  std::vector<Transform> transforms;
  std::optional<Expression> when;
  LineName location;
  int file;
};

// A tensor that follows from the configuration: `count` float32 values.
struct ValuesRow {
  std::string to;
  Expression count, value;  // value: with i = 0 .. count - 1
  std::optional<Expression> when;
  LineName location;
};

struct DropRow {
  std::string pattern;  // {i} and * stand for anything
  std::optional<Expression> when;
  LineName location;
};

struct Requirement {
  Expression condition;
  bool each;            // for every layer
  std::string message;  // {expression}: its value
  LineName location;
};

// What a member of a configuration is that no expression reads.
struct MemberRow {
  std::string name;  // "NAME" of config.json, "generation_config.NAME", ...; * stands for anything
  bool is_note;      // true: said in a note; false: changes nothing
  std::optional<Expression> when;  // with `it`, its value; a value it does not hold for is refused
  std::string reason;
  LineName location;
};

// The value of a member that the configuration does not have.
struct DefaultRow {
  std::string name;
  Expression value;
  std::optional<Expression> when;
  int file;
};

// The shape that a tensor of the file must have, outermost first.
struct ShapeRow {
  std::string tensor;
  std::vector<Expression> sizes;
  std::optional<Expression> when;
  LineName location;
  int file;
};

struct Rename {
  std::string from, to;  // how names begin
};

struct Family {
  std::string name;  // general.architecture of the files
  std::vector<std::string> models, includes;
  std::map<std::string, Expression, std::less<>> definitions;
  std::vector<MetaRow> metadata;
  std::vector<TensorRow> tensors;
  std::vector<ValuesRow> values;
  std::vector<DropRow> drops;
  std::vector<Requirement> requirements;
  std::vector<Rename> renames;
  std::vector<MemberRow> members;  // those of the including file first
  std::vector<DefaultRow> defaults;
  std::vector<std::pair<std::string, std::string>> aliases;
  std::vector<ShapeRow> shapes;
  std::string tokenizer;      // kind of a merging tokenizer with byte tokens; "": the usual one
  std::string pre_tokenizer;  // its name, where several have the same steps
  std::vector<std::string> visible;  // special tokens that a text shows
};

struct FamilyText {
  std::string_view name, text;
};
std::span<const FamilyText> builtin_families();

// Parses a file and lays it over what it includes: later definitions, metadata of the same key and
// tensors of the same name replace earlier ones. Errors: FILE:LINE: what is wrong.
Result<Family> parse_family(std::string_view name, std::string_view text,
                            std::span<const FamilyText> library);

// The family of the library that lists a model's class ("architectures" of config.json). Error:
// kUnsupported with the classes there are.
Result<Family> find_family(std::string_view model, std::span<const FamilyText> library);

}  // namespace culet::convert
