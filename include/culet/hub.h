// Models by name: find, list, download and remove them (docs/models.md). The library is culet::hub.
//
// A name is a path, `name[:tag]` of the Ollama store, `org/repo[@revision][:quant]` of the Hugging
// Face cache, or a name of culet's catalogue. With `hf:` or `ollama:` before it, only that place is
// searched. Each call reads the places from the environment (docs/models.md has the variables). The
// stores of other programs are never changed. Only pull_model() uses the network.
//
// Threads: any number of calls may run at the same time, also in several processes. Callbacks are
// called on the calling thread and must not throw.
#pragma once

#include "culet/progress.h"
#include "culet/result.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace culet {

struct ModelRef {
  std::string path;      // of the GGUF file; the first one of a split model
  std::string origin;    // for people: "path", "ollama:smollm2:latest", "hf:org/repo@0123abcd:Q8_0"
  std::string sha256;    // 64 digits if known without reading the file, else empty
  std::string revision;  // commit of a Hugging Face repository, else empty
  std::vector<std::string> notes;  // files of the model that culet does not use, one sentence each
};

// Finds a model. A name that looks like a path (starts with /, ./, ../ or ~, has a backslash or a
// drive letter, ends in .gguf) is never searched for in a store. `~/` is the home folder. Errors:
// kNotFound (lists the places searched and the names that exist), kCorrupt (a store has the name,
// but its entry is damaged).
Result<ModelRef> find_model(std::string_view name);

// The sha256 of the model's file (of a split model: of the first part). If it is not known, it is
// computed and remembered in culet's cache folder for this inode, size and time. Progress: stage
// "hashing", in bytes.
Result<std::string> model_sha256(const ModelRef& model, const ProgressFn& progress = {});

struct FileDigest {
  std::string path;
  uint64_t bytes = 0;
  std::string sha256;
};
// The same of every file of the model, in order: one, or all parts of a split model. The progress
// counts the bytes of all files that have to be read.
Result<std::vector<FileDigest>> model_digests(const ModelRef& model,
                                              const ProgressFn& progress = {});

struct ModelEntry {
  std::string name;  // find_model() takes it
  std::string path, origin, sha256, revision;
  uint64_t bytes = 0;        // of all files of a split model
  std::string architecture;  // "" when the file cannot be read as GGUF
  std::string quantization;  // the type that most bytes have, "Q4_K"
  bool owned = false;        // in culet's cache folder: remove_model() may remove it
  std::string problem;       // why the file cannot be used; empty: nothing known
};

struct CatalogueEntry {
  std::string name, about, license;
  uint64_t bytes = 0;
  bool is_default = false;
};

struct ModelList {
  std::vector<ModelEntry> models;        // by place, then by name
  std::vector<CatalogueEntry> not_here;  // of the catalogue, not on this machine
  std::vector<std::string> problems;     // folders that could not be read
};
ModelList list_models();

// The names of list_models() alone. Opens no model file, so it is quick, and a name may turn out to
// be of a file that cannot be used.
struct ModelNames {
  std::vector<std::string> here;      // find_model() takes them
  std::vector<std::string> owned;     // those of them that remove_model() takes
  std::vector<std::string> not_here;  // of the catalogue
};
ModelNames list_model_names();

struct RemovedModel {
  std::vector<std::string> files;  // what is gone
  uint64_t bytes = 0;
};
// Removes a model that is in culet's own cache folder. Anything else is kUnsupported with a
// sentence that says whose it is.
Result<RemovedModel> remove_model(std::string_view name);

// Fetches `hf:org/repo[@revision][:quant]`, `ollama:name[:tag]` or a catalogue name into culet's
// cache folder; at once when it is there already. A file gets its name only when its size and
// sha256 are right. What was fetched before an error or a stop is kept, and continued next time.
// Progress in bytes, of one item after another; stages "waiting", "downloading", "unpacking",
// "verifying".
Result<ModelRef> pull_model(std::string_view name, const ProgressFn& progress = {});

}  // namespace culet
