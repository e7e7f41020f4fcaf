// Events of the engine as JSON objects, one a line (culet run --jsonl).
#pragma once

#include "culet/culet.h"

#include <string>
#include <string_view>

namespace culet::cli {

// The double whose shortest decimal is that of the float: 0.8, not 0.800000011920929.
double shortest(float x);

// {"event": "started" | "progress" | "text" | "finished", ...} and a newline.
std::string event_line(const Event& event, const Model& model);  // the model that it came from
std::string error_line(const Error& error);  // {"event": "error", "code": ..., "message": ...}

std::string_view reason_name(FinishReason reason);  // "stop", "length", "context", "cancelled"

}  // namespace culet::cli
