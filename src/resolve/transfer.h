// One file to its place in the cache folder: under a lock, into a part file that is continued, and
// to its name only when size and sha256 are right.
#pragma once

#include "culet/hub.h"
#include "culet/result.h"
#include "resolve/http.h"
#include "resolve/own_cache.h"
#include "resolve/places.h"

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

namespace culet::resolve {

// Turns ticks into progress: at most ten a second, with a smoothed speed.
class Meter {
 public:
  Meter(ProgressFn progress, std::string file)
      : progress_(std::move(progress)), file_(std::move(file)) {}
  void begin(std::string_view step);  // a literal
  bool tick(uint64_t done, uint64_t total);

 private:
  using Clock = std::chrono::steady_clock;
  ProgressFn progress_;
  std::string file_;
  std::string_view step_;
  Clock::time_point sampled_{}, shown_{};
  uint64_t sample_ = 0;
  bool fresh_ = true;
  double speed_ = 0;
};

// A lock between processes; held until it goes. A lock that nobody needs later removes its file.
class FileLock {
 public:
  // Waits while another has it; `waiting` is asked ten times a second, false: kCancelled.
  static Result<FileLock> take(const std::string& path, bool keep_file,
                               const std::function<bool()>& waiting);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  FileLock(int fd, std::string path, bool keep_file)
      : fd_(fd), path_(std::move(path)), keep_file_(keep_file) {}
  int fd_;
  std::string path_;
  bool keep_file_;
};

struct Wanted {
  std::string path;    // where it shall be
  std::string sha256;  // what it must be
  uint64_t bytes = 0;
  std::string lock;        // path of the lock file
  bool keep_lock = false;  // because another program uses it too
  Source source;
};

// Leaves Wanted::bytes bytes in the part file, or an error; they are verified afterwards.
// *continued: whether some of them were there before.
using FillPart =
    std::function<Result<void>(const std::string& part, Meter* meter, bool* continued)>;

// At once when the file is there and right. A part that turns out wrong is removed; when it had
// been continued, it is fetched once more from its start.
Result<void> fetch_file(const Places& places, const Wanted& wanted, Meter* meter,
                        const FillPart& fill);

// A part file and its notes.
void remove_part(const std::string& part);

// kExhausted: "needs X, you have Y".
Result<void> check_space(const std::string& folder, uint64_t needed);

}  // namespace culet::resolve
