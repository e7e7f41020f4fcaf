// What each instruction-set file gives to dispatch.cpp: one function that fills table entries.
#pragma once

#include "kernels/kernels.h"

namespace culet::kernels {

void add_scalar(Kernels* table);         // every entry
void add_scalar_matmul(Kernels* table);  // called by add_scalar
void add_scalar_attention(Kernels* table);
void add_avx2(Kernels* table);
void add_avx512(Kernels* table);  // its integer products are avx2's
void add_avx512vnni(Kernels* table);
void add_neon(Kernels* table);
void add_dotprod(Kernels* table);
void add_i8mm(Kernels* table);

}  // namespace culet::kernels
