// Takes an architecture file and the library, gives the file laid over the ones it includes.
//
// Every file of the chain is parsed with its own place in the list of files, innermost include
// first, so that a message names the file a line came from and Op::line counts in the flattened
// text.
#include "expr/lexer.h"
#include "plan/arch_parse.h"

#include <fmt/format.h>

#include <algorithm>

namespace culet::plan {
namespace {

constexpr size_t kMaxIncludes = 8;

template <class T>
void overlay(std::vector<T>* base, std::vector<T>* own) {
  for (T& item : *own) {
    const auto same =
        std::find_if(base->begin(), base->end(), [&](const T& b) { return b.name == item.name; });
    if (same == base->end())
      base->push_back(std::move(item));
    else
      *same = std::move(item);
  }
}

template <class T>
void extend(std::vector<T>* base, std::vector<T>* own) {
  for (T& item : *own) base->push_back(std::move(item));
}

void lay_over(ArchFile* base, ArchFile own) {
  base->architectures = std::move(own.architectures);
  if (!own.kind.empty()) base->kind = own.kind;
  overlay(&base->lets, &own.lets);
  overlay(&base->caches, &own.caches);
  overlay(&base->states, &own.states);
  extend(&base->requirements, &own.requirements);
  extend(&base->ignores, &own.ignores);
  extend(&base->externs, &own.externs);
  for (Block& b : own.blocks) {
    const auto same = std::find_if(base->blocks.begin(), base->blocks.end(),
                                   [&](const Block& x) { return x.name == b.name; });
    if (same == base->blocks.end())
      base->blocks.push_back(std::move(b));
    else
      overlay(&same->sections, &b.sections);
  }
}

int count_lines(std::string_view text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n')) +
         (text.empty() || text.back() == '\n' ? 0 : 1);
}

void add_file(std::vector<SourceFile>* files, std::string name, std::string text) {
  SourceFile f{std::move(name), std::move(text), 0};
  if (!files->empty()) f.first_line = files->back().first_line + count_lines(files->back().text);
  files->push_back(std::move(f));
}

std::string shown_name(const ArchText& arch) {
  return arch.origin == "built in" ? arch.name + ".arch" : arch.origin;
}

// The file that `by` includes: one of that name, or, when that is `by` itself, the built-in file it
// replaces.
const ArchText* included(const ArchLibrary& library, const ArchText& by, std::string_view name) {
  const ArchText* found = library.by_file_name(name);
  return found == &by ? library.replaced(name) : found;
}

}  // namespace

Result<std::vector<std::string>> parse_arch_names(const ArchText& arch) {
  // Cut behind the arch line, so that a mistake further down does not hide whose file this is.
  const std::string_view text = arch.text;
  size_t end = 0;
  for (std::string_view line; end < text.size();) {
    const size_t next = text.find('\n', end);
    line = text.substr(end, next - end);
    end = next == std::string_view::npos ? text.size() : next + 1;
    if (line.substr(0, 5) == "arch ") break;
  }
  std::vector<SourceFile> files;
  add_file(&files, shown_name(arch), std::string(text.substr(0, end)));
  return parse_file_names(files);
}

Result<ArchFile> parse_arch(const ArchLibrary& library, const ArchText& arch) {
  std::vector<const ArchText*> chain{&arch};  // the file itself first
  for (size_t k = 0; k < chain.size(); ++k) {
    std::vector<SourceFile> one;
    add_file(&one, shown_name(*chain[k]), chain[k]->text);
    std::string include;
    CULET_TRY(ArchFile file, parse_file(one, 0, &include));
    if (include.empty()) continue;
    const auto refuse = [&](ErrorCode code, std::string_view why) {
      return tl::unexpected<Error>(expr::error_at(one, file.include_location, code, why));
    };
    const ArchText* next = included(library, *chain[k], include);
    if (!next)
      return refuse(ErrorCode::kNotFound,
                    fmt::format("there is no architecture file '{}.arch' beside this one or built "
                                "in; include takes the bare name of one that is",
                                include));
    if (std::find(chain.begin(), chain.end(), next) != chain.end() || next->text == arch.text)
      return refuse(ErrorCode::kInvalidArgument,
                    fmt::format("including '{}' here goes round in a circle", include));
    if (chain.size() >= kMaxIncludes)
      return refuse(ErrorCode::kInvalidArgument,
                    fmt::format("more than {} files include each other", kMaxIncludes));
    chain.push_back(next);
  }
  std::vector<SourceFile> files;
  for (size_t k = chain.size(); k-- > 0;) add_file(&files, shown_name(*chain[k]), chain[k]->text);
  ArchFile whole;
  for (size_t k = 0; k < files.size(); ++k) {
    std::string include;
    CULET_TRY(ArchFile file, parse_file(files, static_cast<int>(k), &include));
    if (k == 0)
      whole = std::move(file);
    else
      lay_over(&whole, std::move(file));
  }
  whole.files = std::move(files);
  if (whole.kind.empty()) whole.kind = "decoder";
  return whole;
}

std::string flattened_text(const ArchFile& arch) {
  std::string out;
  for (const SourceFile& f : arch.files) {
    out += f.text;
    if (!out.empty() && out.back() != '\n') out += '\n';
  }
  return out;
}

}  // namespace culet::plan
