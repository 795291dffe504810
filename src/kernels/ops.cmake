list(APPEND CLEAVE_KERNEL_SOURCES
     math.cc
     vector_ops.cc vector_ops_scalar.cc
     attention.cc attention_bins.cc attention_partial.cc attention_scalar.cc
     attention_store.cc
     logits.cc logits_scalar.cc
     moe.cc)
# Adding up the partials of a row is loops over plain counts, worth vectors.
set_source_files_properties(attention_partial.cc PROPERTIES COMPILE_OPTIONS -O3)
cleave_isa_sources(avx2 vector_ops_avx2.cc attention_avx2.cc logits_avx2.cc)
cleave_isa_sources(avx512 vector_ops_avx512.cc attention_avx512.cc logits_avx512.cc)

cleave_test(SERIAL NAME math SOURCES math_test.cc DEPS cleave_kernels)
cleave_test(SERIAL NAME vector_ops SOURCES vector_ops_test.cc DEPS cleave_kernels)
cleave_test(SERIAL NAME logits SOURCES logits_test.cc DEPS cleave_kernels)
cleave_test(SERIAL NAME moe SOURCES moe_test.cc moe_down_test.cc moe_fixture.cc
            DEPS cleave_kernels)
cleave_test(SERIAL NAME attention_bins SOURCES attention_bins_test.cc DEPS cleave_kernels)
cleave_test(SERIAL NAME attention SOURCES attention_test.cc attention_int8_test.cc
            attention_test_support.cc
            DEPS cleave_kernels)
cleave_test(SERIAL NAME attention_partial SOURCES attention_partial_test.cc
            attention_test_support.cc
            DEPS cleave_kernels)
cleave_test(SERIAL NAME exp2_sweep SOURCES exp2_sweep_test.cc DEPS cleave_kernels)
cleave_test(SERIAL NAME exp2_sweep_full SOURCES exp2_sweep_test.cc DEPS cleave_kernels
            LABELS full)
if(CLEAVE_BUILD_TESTS)
  target_compile_definitions(exp2_sweep_test PRIVATE CLEAVE_EXP2_STRIDE=257)
  target_compile_definitions(exp2_sweep_full_test PRIVATE CLEAVE_EXP2_STRIDE=5)
endif()
# Sanitizers add weak symbols of their own.
if(CLEAVE_BUILD_TESTS AND NOT CLEAVE_SANITIZE)
  add_test(NAME isa_symbols COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/isa_symbols_check.sh
                                    $<TARGET_FILE:cleave_kernels>)
  set_tests_properties(isa_symbols PROPERTIES LABELS quick)
endif()

cleave_bench(NAME attention SOURCES attention_bench.cc attention_test_support.cc
             DEPS cleave_kernels)
