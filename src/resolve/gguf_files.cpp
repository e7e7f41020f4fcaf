#include "resolve/gguf_files.h"

#include "resolve/disk.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace culet::resolve {
namespace {

constexpr size_t kShownCandidates = 12;

// Does text start with the name of a quantization? (lower case)
bool begins_quant(std::string_view text) {
  for (const std::string_view word :
       {"bf16", "f16", "f32", "fp16", "fp32", "mxfp4", "tq1", "tq2"}) {
    if (text.starts_with(word)) return true;
  }
  const size_t q = text.starts_with('i') ? 1 : 0;
  return text.size() > q + 1 && text[q] == 'q' && text[q + 1] >= '1' && text[q + 1] <= '8';
}

bool is_border(char c) { return c == '-' || c == '.'; }

std::string stem_of(std::string_view file) {
  std::string stem = lower(file.substr(file.rfind('/') + 1));
  if (stem.ends_with(".gguf")) stem.resize(stem.size() - 5);
  return stem;
}

struct Part {
  int number, count;
  size_t at;  // where "-0000K-of-0000N" starts in the stem
};

// A stem's end "-00001-of-00003".
std::optional<Part> part_of_stem(std::string_view stem) {
  constexpr size_t kLength = 15;
  if (stem.size() <= kLength) return std::nullopt;
  const std::string_view end = stem.substr(stem.size() - kLength);
  if (end[0] != '-' || end.substr(6, 4) != "-of-") return std::nullopt;
  const auto number = [](std::string_view digits, int* out) {
    *out = 0;
    for (const char c : digits) {
      if (c < '0' || c > '9') return false;
      *out = *out * 10 + (c - '0');
    }
    return true;
  };
  Part part{0, 0, stem.size() - kLength};
  if (!number(end.substr(1, 5), &part.number) || !number(end.substr(10, 5), &part.count)) {
    return std::nullopt;
  }
  return part;
}

// The stem without the number of the part.
std::string whole_stem(std::string_view file) {
  std::string stem = stem_of(file);
  if (const auto part = part_of_stem(stem)) stem.resize(part->at);
  return stem;
}

bool is_candidate(const std::string& file) {
  if (!lower(file).ends_with(".gguf")) return false;
  const std::string stem = stem_of(file);
  const auto part = part_of_stem(stem);
  return stem.find("mmproj") == stem.npos && stem.find("imatrix") == stem.npos &&
         (!part || part->number == 1);
}

std::string listed(const std::vector<std::string>& files) {
  std::string out;
  for (size_t i = 0; i < files.size() && i < kShownCandidates; ++i) {
    out += (i ? ", " : "") + files[i];
  }
  if (files.size() > kShownCandidates) {
    out += fmt::format(" and {} more", files.size() - kShownCandidates);
  }
  return out;
}

std::vector<std::string> with_quant(const std::vector<std::string>& files,
                                    const std::string& quant) {
  std::vector<std::string> out;
  std::copy_if(files.begin(), files.end(), std::back_inserter(out),
               [&quant](const std::string& file) { return has_quant(file, quant); });
  return out;
}

}  // namespace

bool has_quant(std::string_view file, std::string_view quant) {
  const std::string stem = whole_stem(file), wanted = lower(quant);
  if (wanted.empty()) return false;
  for (size_t at = stem.find(wanted); at != stem.npos; at = stem.find(wanted, at + 1)) {
    const size_t end = at + wanted.size();
    const bool left =
        at == 0 || is_border(stem[at - 1]) || (stem[at - 1] == '_' && begins_quant(wanted));
    if (left && (end == stem.size() || is_border(stem[end]))) return true;
  }
  return false;
}

std::string quant_in_name(std::string_view file) {
  const std::string stem = whole_stem(file);
  const std::string_view written = file.substr(file.rfind('/') + 1);
  for (size_t at = 0; at < stem.size(); ++at) {
    if (at != 0 && !is_border(stem[at - 1]) && stem[at - 1] != '_') continue;
    size_t end = at;
    while (end < stem.size() && !is_border(stem[end])) ++end;
    if (begins_quant(std::string_view(stem).substr(at))) {
      return std::string(written.substr(at, end - at));
    }
  }
  return "";
}

std::vector<std::string> parts_of(const std::string& first) {
  constexpr int kMostParts = 1000;
  const auto part = part_of_stem(stem_of(first));
  if (!part || part->count < 1) return {first};
  if (part->count > kMostParts) return {};
  const size_t folder = first.rfind('/') + 1;
  std::vector<std::string> out;
  for (int i = 1; i <= part->count; ++i) {
    std::string name = first;
    out.push_back(name.replace(folder + part->at + 1, 5, fmt::format("{:05}", i)));
  }
  return out;
}

Result<std::string> choose_gguf(const std::vector<std::string>& files, const std::string& quant,
                                const std::string& what) {
  std::vector<std::string> candidates;
  for (const std::string& file : files) {
    if (!is_candidate(file)) continue;
    if (file == quant || base_name(file) == quant) return file;
    candidates.push_back(file);
  }
  std::sort(candidates.begin(), candidates.end());
  if (candidates.empty()) {
    return fail(ErrorCode::kNotFound,
                fmt::format("{} has no GGUF file of a model; give another repository", what));
  }
  const std::vector<std::string> chosen = with_quant(candidates, quant.empty() ? "Q4_K_M" : quant);
  if (chosen.size() == 1) return chosen[0];
  if (quant.empty() && candidates.size() == 1) return candidates[0];
  if (chosen.empty() && !quant.empty()) {
    return fail(ErrorCode::kNotFound, fmt::format("{} has no file for ':{}'; it has {}", what,
                                                  quant, listed(candidates)));
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} has several files; choose one with {}: {}", what,
                          quant.empty() ? "':' and its quantization behind the name"
                                        : "more of its name than ':" + quant + "'",
                          listed(chosen.empty() ? candidates : chosen)));
}

}  // namespace culet::resolve
