// Every kernel but the integer products with AVX-512 F/BW/VL/DQ: the shared code of lane_*.h on zmm
// registers.
//
// No linkage but add_avx512 (x86_avx512vnni.cpp says why).
#include "kernels/levels.h"
#include "kernels/x86_avx512_lanes.h"
// After the vectors that they are written in.
#include "kernels/lane_attention.h"
#include "kernels/lane_matmul_f.h"
#include "kernels/lane_rows.h"

namespace culet::kernels {

void add_avx512(Kernels* table) {
  add_lane_rows(table);
  add_lane_attention(table);
  add_lane_matmul_f(table);
}

}  // namespace culet::kernels
