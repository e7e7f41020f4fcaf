// Chooses the kernel table: scalar first, then every level up to the wanted one replaces the
// entries it speeds up. Levels are one table; a new instruction set is one row.
#include "kernels/cpu.h"
#include "kernels/kernels.h"
#include "kernels/levels.h"

#include <cstring>

namespace culet::kernels {
namespace {

struct Level {
  const char* name;
  bool (*usable)(const CpuFeatures&);
  void (*add)(Kernels*);
};

constexpr Level kLevels[] = {
    {"scalar", [](const CpuFeatures&) { return true; }, add_scalar},
#if defined(CULET_X86_KERNELS)
    {"avx2", [](const CpuFeatures& f) { return f.avx2; }, add_avx2},
    {"avx512", [](const CpuFeatures& f) { return f.avx512; }, add_avx512},
    {"avx512vnni", [](const CpuFeatures& f) { return f.avx512vnni; }, add_avx512vnni},
#elif defined(CULET_ARM_KERNELS)
    {"neon", [](const CpuFeatures& f) { return f.neon; }, add_neon},
    {"dotprod", [](const CpuFeatures& f) { return f.dotprod; }, add_dotprod},
    {"i8mm", [](const CpuFeatures& f) { return f.i8mm; }, add_i8mm},
#endif
};
constexpr int kLevelCount = sizeof(kLevels) / sizeof(kLevels[0]);

}  // namespace

const char* select_kernels(const char* isa, Kernels* out) {
  const CpuFeatures features = cpu_features();
  int wanted = -1;
  for (int i = 0; i < kLevelCount; i++) {
    const bool usable = kLevels[i].usable(features);
    if (isa && std::strcmp(isa, kLevels[i].name) != 0) continue;
    if (isa && !usable) return "is an instruction set that this CPU does not have";
    if (usable) wanted = i;
  }
  if (wanted < 0) return "is not an instruction set of this build";
  *out = {};
  for (int i = 0; i <= wanted; i++) {
    if (!kLevels[i].usable(features)) continue;
    kLevels[i].add(out);
    out->isa = kLevels[i].name;
  }
  return nullptr;
}

const IsaLevel* isa_levels() {
  struct Table {
    IsaLevel level[kLevelCount + 1];
    Table() {
      const CpuFeatures features = cpu_features();
      for (int i = 0; i < kLevelCount; i++)
        level[i] = {kLevels[i].name, kLevels[i].usable(features) ? 1 : 0};
      level[kLevelCount] = {nullptr, 0};
    }
  };
  static const Table kTable;
  return kTable.level;
}

}  // namespace culet::kernels
