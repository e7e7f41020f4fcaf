#include "cli/events.h"

#include <nlohmann/json.hpp>

#include <array>
#include <type_traits>

namespace culet::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 4> kReasons{"stop", "length", "context", "cancelled"};
constexpr std::array<std::string_view, 8> kCodes{"invalid_argument", "not_found", "unsupported",
                                                 "corrupt",          "exhausted", "io",
                                                 "cancelled",        "numeric"};

std::string line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json to_json(const Started& started) {
  return {{"event", "started"}, {"prompt_tokens", started.prompt_tokens}};
}

Json to_json(const Progress& progress) {
  return {{"event", "progress"}, {"done", progress.done}, {"all", progress.all}};
}

Json to_json(const TextDelta& delta) {
  const Json id = delta.id < 0 ? Json() : Json(delta.id);
  return {{"event", "text"}, {"text", delta.text}, {"id", id}};
}

Json to_json(const Finished& finished) {
  return {{"event", "finished"},
          {"reason", reason_name(finished.reason)},
          {"usage",
           {{"prompt_tokens", finished.prompt_tokens},
            {"generated_tokens", finished.generated_tokens},
            {"prompt_seconds", finished.prompt_seconds},
            {"generate_seconds", finished.generate_seconds}}}};
}

}  // namespace

std::string event_line(const Event& event) {
  return std::visit([](const auto& e) { return line(to_json(e)); }, event);
}

std::string error_line(const Error& error) {
  return line({{"event", "error"},
               {"code", kCodes.at(static_cast<size_t>(error.code))},
               {"message", error.message}});
}

std::string_view reason_name(FinishReason reason) {
  return kReasons.at(static_cast<size_t>(reason));
}

}  // namespace culet::cli
