list(APPEND CLEAVE_KERNEL_SOURCES act_wire.cc isa.cc k_plan.cc matmul.cc matmul_scalar.cc
     packed_matrix.cc peak.cc random_weights.cc read_stream.cc thread_pool.cc weight_block.cc)
cleave_isa_sources(avx2 matmul_avx2.cc peak_avx2.cc prepare_avx2.cc read_stream_avx2.cc)
cleave_isa_sources(avx512 matmul_avx512.cc peak_avx512.cc prepare_avx512.cc
                    read_stream_avx512.cc)
cleave_isa_sources(avx512bf16 matmul_avx512bf16.cc peak_avx512bf16.cc)
cleave_isa_sources(avx512amx matmul_avx512amx.cc peak_avx512amx.cc)
# Loops over plain arrays that only vectorise at this level; the arithmetic is spelled out.
set_source_files_properties(matmul.cc matmul_scalar.cc packed_matrix.cc read_stream.cc
                            weight_block.cc PROPERTIES COMPILE_OPTIONS "-O3")
cleave_test(SERIAL NAME act_wire SOURCES act_wire_test.cc DEPS cleave_kernels)
cleave_test(NAME isa SOURCES isa_test.cc DEPS cleave_kernels)
cleave_test(SERIAL NAME k_plan SOURCES k_plan_test.cc DEPS cleave_kernels)
cleave_test(SERIAL NAME peak SOURCES peak_test.cc DEPS cleave_kernels)
cleave_test(SERIAL NAME read_stream SOURCES read_stream_test.cc DEPS cleave_kernels)
cleave_test(NAME thread_pool SOURCES thread_pool_test.cc DEPS cleave_kernels)
cleave_test(SERIAL NAME matmul SOURCES matmul_test.cc matmul_row_test.cc matmul_terms_test.cc
                           packed_matrix_test.cc
            DEPS cleave_kernels)
cleave_bench(NAME matmul SOURCES matmul_bench.cc DEPS cleave_kernels)
if(CLEAVE_BUILD_TESTS AND NOT CLEAVE_SANITIZE)
  add_test(NAME kernel_spills COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/kernel_spills_check.sh
                                      $<TARGET_FILE:cleave_kernels>)
  set_tests_properties(kernel_spills PROPERTIES LABELS quick)
endif()
