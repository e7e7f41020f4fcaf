#include "resolve/remote.h"

#include "base/json.h"
#include "resolve/disk.h"
#include "resolve/fields.h"
#include "resolve/http.h"

#include <fmt/format.h>

#include <algorithm>

namespace culet::resolve {
namespace {

constexpr int kDepth = 32;
constexpr uint64_t kMostFileBytes = uint64_t{1} << 46;

std::string hex_or_nothing(const std::string& text) {
  return is_hex(text, 64) ? text : std::string();
}

uint64_t bytes_or_nothing(uint64_t bytes) { return bytes <= kMostFileBytes ? bytes : 0; }

Result<std::vector<RemoteFile>> parse_json_page(std::string_view text, const std::string& url) {
  CULET_TRY(const Json json, base::parse_json(text, kDepth));
  std::vector<RemoteFile> out;
  for (const Json& from : array_of(json, "files")) {
    RemoteFile file;
    file.name = text_of(from, "filename").value_or("");
    file.url = join_url(url, text_of(from, "url").value_or(""));
    file.bytes = bytes_or_nothing(count_of(from, "size").value_or(0));
    if (const Json* hashes = member(from, "hashes")) {
      file.sha256 = hex_or_nothing(text_of(*hashes, "sha256").value_or(""));
    }
    if (!file.name.empty() && !file.url.empty()) out.push_back(std::move(file));
  }
  return out;
}

std::string without_entities(std::string text) {
  for (size_t at = text.find("&amp;"); at != text.npos; at = text.find("&amp;", at + 1)) {
    text.erase(at + 1, 4);
  }
  return text;
}

// The value of href="..." that starts at or after *at within one tag; moves *at behind it.
bool next_href(std::string_view text, size_t* at, std::string* value) {
  constexpr std::string_view kHref = "href=";
  for (;;) {
    const size_t found = text.find(kHref, *at);
    if (found == text.npos || found + kHref.size() >= text.size()) return false;
    *at = found + kHref.size();
    const char quote = text[*at];
    if (quote != '"' && quote != '\'') continue;
    const size_t end = text.find(quote, *at + 1);
    if (end == text.npos) return false;
    *value = without_entities(std::string(text.substr(*at + 1, end - *at - 1)));
    *at = end + 1;
    return true;
  }
}

std::vector<RemoteFile> parse_html_page(std::string_view text, const std::string& url) {
  constexpr size_t kLongestHref = 4000;
  std::vector<RemoteFile> out;
  std::string href;
  for (size_t at = 0; next_href(text, &at, &href);) {
    if (href.size() > kLongestHref) continue;
    RemoteFile file;
    const size_t hash = href.find('#');
    if (hash != href.npos && std::string_view(href).substr(hash).starts_with("#sha256=")) {
      file.sha256 = hex_or_nothing(href.substr(hash + 8));
    }
    file.name = base_name(href.substr(0, href.find_first_of("?#")));
    file.url = join_url(url, href);
    if (file.name.ends_with(".whl") && !file.url.empty()) out.push_back(std::move(file));
  }
  return out;
}

}  // namespace

Result<HubRevision> parse_hub_revision(std::string_view text) {
  CULET_TRY(const Json json, base::parse_json(text, kDepth));
  HubRevision out;
  out.commit = text_of(json, "sha").value_or("");
  if (!is_hex(out.commit, 40)) {
    return fail(ErrorCode::kCorrupt, "the hub's answer names no commit");
  }
  for (const Json& from : array_of(json, "siblings")) {
    RemoteFile file;
    file.name = text_of(from, "rfilename").value_or("");
    if (!lower(file.name).ends_with(".gguf") || !is_safe_relative(file.name)) continue;
    file.bytes = bytes_or_nothing(count_of(from, "size").value_or(0));
    if (const Json* lfs = member(from, "lfs")) {
      file.sha256 = hex_or_nothing(text_of(*lfs, "sha256").value_or(""));
      file.bytes = bytes_or_nothing(count_of(*lfs, "size").value_or(file.bytes));
    }
    out.files.push_back(std::move(file));
  }
  return out;
}

Result<std::vector<RemoteFile>> parse_package_page(std::string_view text, bool json,
                                                   const std::string& url) {
  if (json) return parse_json_page(text, url);
  return parse_html_page(text, url);
}

const RemoteFile* choose_wheel(const std::vector<RemoteFile>& files, const std::string& package,
                               const std::string& version) {
  const RemoteFile* best = nullptr;
  const auto rank = [](const RemoteFile& file) {
    return std::pair(!file.name.ends_with("-none-any.whl"), file.name);
  };
  for (const RemoteFile& file : files) {
    const size_t dash = file.name.find('-');
    const size_t end = dash == file.name.npos ? dash : file.name.find('-', dash + 1);
    if (end == file.name.npos || !file.name.ends_with(".whl")) continue;
    const bool same =
        normalized_package(file.name.substr(0, dash)) == normalized_package(package) &&
        lower(file.name.substr(dash + 1, end - dash - 1)) == lower(version);
    if (same && (!best || rank(file) < rank(*best))) best = &file;
  }
  return best;
}

std::string normalized_package(std::string_view name) {
  std::string out;
  for (const char c : lower(name)) {
    const bool separator = c == '-' || c == '_' || c == '.';
    if (separator && !out.empty() && out.back() == '-') continue;
    out += separator ? '-' : c;
  }
  return out;
}

}  // namespace culet::resolve
