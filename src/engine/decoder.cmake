cleave_library(NAME decoder
  SOURCES decoder.cc inline_executor.cc kv_cache.cc model_weights.cc open_model.cc sizing.cc
  DEPS cleave_base cleave_tensor cleave_kernels cleave_format cleave_host fmt::fmt)
cleave_test(NAME sizing SOURCES sizing_test.cc DEPS cleave_decoder)

add_library(cleave_greedy_batch STATIC greedy_batch.cc)
target_link_libraries(cleave_greedy_batch PUBLIC cleave_decoder)
cleave_test(NAME reference SOURCES reference_test.cc DEPS cleave_greedy_batch LABELS full)
if(TARGET reference_test)  # two threads of a rank want both cores
  set_tests_properties(reference PROPERTIES TIMEOUT 1500 RUN_SERIAL TRUE)
endif()
