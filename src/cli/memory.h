// What a command line says of a session's memory: context, types, stream, snapshots.
#pragma once

#include "cli/kv.h"
#include "culet/culet.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace culet::cli {

struct MemoryArguments {
  int64_t context = 0;  // 0: the engine's default
  KvTypes kv;
  bool stream = false, keep_prompt = false;
  std::optional<int64_t> sinks, window;
  std::string save, resume;  // files; "": none

  // prompt: tokens that --keep-prompt pins.
  SessionOptions options(int64_t prompt = 0) const;
};

// Takes up the session of --resume, if there is one. An error, too, where --save could not be
// written, or is one of the inputs ("-": standard input).
Result<void> resume(Session& session, const MemoryArguments& arguments,
                    const std::vector<std::string>& inputs, bool quiet);
// Writes the file of --save, if there is one. A session without tokens is not written, which is
// said.
Result<void> save(const Session& session, const MemoryArguments& arguments, bool quiet);

}  // namespace culet::cli
