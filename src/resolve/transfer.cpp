#include "resolve/transfer.h"

#include "base/os_error.h"
#include "base/sha256.h"
#include "resolve/disk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace culet::resolve {
namespace {

// Whether the path still names the file that is open.
bool is_same_file(int fd, const std::string& path) {
  struct stat opened{}, named{};
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

Result<std::string> digest(const std::string& path, Meter* meter) {
  meter->begin("verifying");
  return base::sha256_file(
      path, [meter](uint64_t done, uint64_t total) { return meter->tick(done, total); });
}

Result<bool> is_good(const Places& places, const Wanted& wanted, Meter* meter) {
  if (!is_file(wanted.path) || file_bytes(wanted.path) != wanted.bytes) return false;
  if (const auto known = known_digest(places, wanted.path)) return *known == wanted.sha256;
  CULET_TRY(const std::string sha256, digest(wanted.path, meter));
  if (sha256 != wanted.sha256) return false;
  remember_digest(places, wanted.path, sha256);
  return true;
}

// Notes which revisions led to the file, those of earlier pulls too.
Result<void> note_source(const Wanted& wanted) {
  Source source = wanted.source;
  if (const auto before = read_source(wanted.path); before && before->sha256 == source.sha256) {
    for (const std::string& asked : before->asked) {
      if (std::find(source.asked.begin(), source.asked.end(), asked) == source.asked.end()) {
        source.asked.push_back(asked);
      }
    }
  }
  return write_source(wanted.path, source);
}

Result<void> check_part(const std::string& part, const Wanted& wanted, Meter* meter) {
  if (file_bytes(part) != wanted.bytes) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("what was fetched for {} has {} bytes instead of {}, so it was thrown "
                            "away; use another source",
                            base_name(wanted.path), file_bytes(part), wanted.bytes));
  }
  CULET_TRY(const std::string sha256, digest(part, meter));
  if (sha256 == wanted.sha256) return {};
  return fail(
      ErrorCode::kCorrupt,
      fmt::format("what was fetched for {} has the sha256 {}... instead of {}..., so it was "
                  "thrown away; use another source",
                  base_name(wanted.path), sha256.substr(0, 12), wanted.sha256.substr(0, 12)));
}

}  // namespace

// ---------------------------------------------------------------- progress

void Meter::begin(std::string_view step) {
  step_ = step;
  fresh_ = true;
  speed_ = 0;
}

bool Meter::tick(uint64_t done, uint64_t total) {
  if (!progress_) return true;
  const auto now = Clock::now();
  if (fresh_ || done < sample_) {
    fresh_ = false;
    sampled_ = now;
    sample_ = done;
  } else if (now - shown_ < std::chrono::milliseconds(100)) {
    return true;
  }
  const double seconds = std::chrono::duration<double>(now - sampled_).count();
  if (seconds >= 0.5) {
    const double speed = double(done - sample_) / seconds;
    speed_ = speed_ > 0 ? 0.7 * speed_ + 0.3 * speed : speed;
    sampled_ = now;
    sample_ = done;
  }
  shown_ = now;
  return progress_({step_, done, total, file_, speed_});
}

// ---------------------------------------------------------------- the lock

Result<FileLock> FileLock::take(const std::string& path, bool keep_file,
                                const std::function<bool()>& waiting) {
  for (;;) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return tl::unexpected(base::os_error("create", path, errno));
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) {
      if (is_same_file(fd, path)) return FileLock(fd, path, keep_file);
    } else if (errno != EWOULDBLOCK && errno != EINTR) {
      const int failed = errno;
      ::close(fd);
      return tl::unexpected(base::os_error("lock", path, failed));
    }
    ::close(fd);
    if (!waiting()) return fail(ErrorCode::kCancelled, "the download was stopped");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

FileLock::FileLock(FileLock&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      keep_file_(other.keep_file_) {}

FileLock::~FileLock() {
  if (fd_ < 0) return;
  if (!keep_file_) ::unlink(path_.c_str());
  ::close(fd_);
}

// ---------------------------------------------------------------- the file

void remove_part(const std::string& part) {
  ::unlink(part.c_str());
  ::unlink((part + ".state").c_str());
}

Result<void> check_space(const std::string& folder, uint64_t needed) {
  const auto free = free_bytes(folder);
  if (!free || *free >= needed) return {};
  return fail(ErrorCode::kExhausted,
              fmt::format("this needs {} of disk space in {}, you have {}; make room, or name "
                          "another folder by CULET_CACHE",
                          in_words(needed), folder, in_words(*free)));
}

Result<void> fetch_file(const Places& places, const Wanted& wanted, Meter* meter,
                        const FillPart& fill) {
  CULET_TRY_VOID(make_folders(folder_of(wanted.path)));
  meter->begin("waiting");
  CULET_TRY(const FileLock lock,
            FileLock::take(wanted.lock, wanted.keep_lock, [meter] { return meter->tick(0, 0); }));
  CULET_TRY(const bool good, is_good(places, wanted, meter));
  if (good) return note_source(wanted);
  const std::string part = beside(wanted.path, "part");
  const uint64_t have = std::min(file_bytes(part), wanted.bytes);
  CULET_TRY_VOID(check_space(folder_of(wanted.path), wanted.bytes - have));
  bool continued = false;
  if (const Result<void> filled = fill(part, meter, &continued); !filled) {
    if (file_bytes(part) == 0) remove_part(part);
    return filled;
  }
  Result<void> right = check_part(part, wanted, meter);
  if (!right && right.error().code == ErrorCode::kCorrupt) remove_part(part);
  if (!right && right.error().code == ErrorCode::kCorrupt && continued) {
    CULET_TRY_VOID(fill(part, meter, &continued));
    right = check_part(part, wanted, meter);
    if (!right && right.error().code == ErrorCode::kCorrupt) remove_part(part);
  }
  if (!right) return right;
  CULET_TRY_VOID(publish(part, wanted.path));
  ::unlink((part + ".state").c_str());
  remember_digest(places, wanted.path, wanted.sha256);
  return note_source(wanted);
}

}  // namespace culet::resolve
