// Snapshots: any bytes as a snapshot, and damage to a good one. The first byte chooses: 0 the rest
// is the snapshot; else the rest is (cut: uint32, then (offset: uint32, value: uint8) each) applied
// to a good one, whose sum is then made right again (1) or left wrong (2). What is accepted must
// run.
#include "base/sha256.h"
#include "culet/culet.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace {

using culet::Session;

constexpr size_t kSum = 64;

struct World {
  std::shared_ptr<const culet::Model> model;
  std::unique_ptr<Session> session, other;
  std::string good;

  World() {
    culet::ModelOptions options;
    options.threads = 1;
    auto loaded =
        culet::Model::load(CULET_TEST_DATA "/golden/tiny/gemma3/model-q8_0.gguf", options);
    if (!loaded) std::abort();
    model = *std::move(loaded);
    auto made = Session::make(model, {.stream = culet::StreamOptions{4, 40}});
    if (!made) std::abort();
    session = *std::move(made);
    other = session->fork();
    std::vector<culet::Token> tokens;
    for (int i = 0; i < 150; ++i) tokens.push_back(5 + i * 7 % 100);
    if (!session->append(tokens)) std::abort();
    const auto bytes = session->snapshot();
    if (!bytes) std::abort();
    good.assign(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  }
};

World& world() {
  static World one;
  return one;
}

void read(const std::string& snapshot) {
  Session& session = *world().other;
  session.clear();
  if (!session.restore(std::as_bytes(std::span(snapshot)))) {
    if (session.length() != 0) std::abort();
    return;
  }
  const std::vector<culet::Token> tokens(40, 7);
  (void)session.append(tokens);  // numbers in the snapshot may make it fail, no more
  if (!session.rewind(session.rewind_limit())) std::abort();
  (void)session.rewind(session.length() / 2);
}

template <class T>
bool take(const uint8_t** data, size_t* size, T* out) {
  if (*size < sizeof(T)) return false;
  std::memcpy(out, *data, sizeof(T));
  *data += sizeof(T), *size -= sizeof(T);
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint8_t mode = 0;
  if (!take(&data, &size, &mode)) return 0;
  if (mode % 3 == 0) {
    read(std::string(reinterpret_cast<const char*>(data), size));
    return 0;
  }
  std::string file = world().good.substr(0, world().good.size() - kSum);
  uint32_t cut = 0, offset = 0;
  uint8_t value = 0;
  if (take(&data, &size, &cut)) file.resize(file.size() - cut % file.size());
  while (take(&data, &size, &offset) && take(&data, &size, &value))
    file[offset % file.size()] = static_cast<char>(value);
  const std::string& summed = mode % 3 == 1 ? file : world().good;
  file += culet::base::sha256_hex(std::as_bytes(std::span(summed.data(), summed.size())));
  read(file);
  return 0;
}
