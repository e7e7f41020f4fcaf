// A main for fuzz targets in ordinary builds: replays every file of the folders given, and of each
// a fixed number of damaged copies, so that a build without libFuzzer still probes the parsers.
//
// The damage comes from a generator seeded by the file's index: a run is repeatable, and a failing
// input is named on the last line before the crash (kept in a file with --keep FOLDER). Inputs are
// handed over in a heap block of exactly their size, so that AddressSanitizer sees any read past
// it.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;
constexpr int kDamagedCopies = 50;    // of each file
constexpr int kDamagedTotal = 5'000;  // of all files together

class Random {  // xorshift64*
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1du;
  }
  size_t below(size_t n) { return static_cast<size_t>(next() % n); }

 private:
  uint64_t state_;
};

// One to four edits: another byte, a flipped bit, a boundary value, a cut, a copied run.
Bytes damage(Bytes bytes, Random& random) {
  constexpr uint8_t kBoundaries[] = {0x00, 0x01, 0x7f, 0x80, 0xff, '"', '{', '}', '\n'};
  for (size_t edits = 1 + random.below(4); edits > 0 && !bytes.empty(); --edits) {
    const size_t at = random.below(bytes.size());
    switch (random.below(5)) {
      case 0:
        bytes[at] = static_cast<uint8_t>(random.next());
        break;
      case 1:
        bytes[at] ^= static_cast<uint8_t>(1u << random.below(8));
        break;
      case 2:
        bytes[at] = kBoundaries[random.below(std::size(kBoundaries))];
        break;
      case 3:
        bytes.resize(at);
        break;
      default: {
        const Bytes run(bytes.begin() + static_cast<ptrdiff_t>(at),
                        bytes.begin() + static_cast<ptrdiff_t>(std::min(at + 16, bytes.size())));
        bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(random.below(bytes.size())),
                     run.begin(), run.end());
      }
    }
  }
  return bytes;
}

void hand_over(const Bytes& bytes) {
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[bytes.size()]);
  if (!bytes.empty()) std::memcpy(exact.get(), bytes.data(), bytes.size());
  LLVMFuzzerTestOneInput(exact.get(), bytes.size());
}

bool read_file(const std::filesystem::path& path, Bytes& bytes) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return false;
  bytes.assign(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  return !in.bad();
}

void keep_input(const std::string& folder, const Bytes& bytes) {
  if (folder.empty()) return;
  std::ofstream out(std::filesystem::path(folder) / "last-input", std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
}

}  // namespace

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  std::string keep;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--keep" && i + 1 < argc) {
      keep = argv[++i];
    } else if (fs::is_directory(argv[i])) {
      for (const auto& entry : fs::recursive_directory_iterator(argv[i])) {
        if (entry.is_regular_file()) files.push_back(entry.path());
      }
    } else if (fs::is_regular_file(argv[i])) {
      files.emplace_back(argv[i]);
    } else {
      std::fprintf(stderr, "%s: no such file or folder\n", argv[i]);
      return 1;
    }
  }
  if (files.empty()) {
    std::fprintf(stderr, "The corpus is empty; add at least one input file for this target.\n");
    return 1;
  }
  std::sort(files.begin(), files.end());

  const int copies = std::min(kDamagedCopies, kDamagedTotal / static_cast<int>(files.size()));
  for (size_t i = 0; i < files.size(); ++i) {
    Bytes bytes;
    if (!read_file(files[i], bytes)) {
      std::fprintf(stderr, "%s: cannot be read\n", files[i].c_str());
      return 1;
    }
    std::printf("%s\n", files[i].c_str());
    std::fflush(stdout);
    hand_over(bytes);
    Random random(i);
    for (int copy = 0; copy < copies; ++copy) {
      const Bytes damaged = damage(bytes, random);
      keep_input(keep, damaged);
      hand_over(damaged);
    }
  }
  std::printf("%zu files, %d damaged copies of each\n", files.size(), copies);
  return 0;
}
