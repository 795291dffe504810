find_package(PkgConfig REQUIRED)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
cleave_library(NAME decoder
  SOURCES forward/attention_core.cc forward/attention_half.cc forward/context_attention.cc
          forward/decoder.cc forward/dense_ffn.cc forward/embedder.cc forward/ep_ffn.cc
          forward/ep_routes.cc forward/expert_block.cc forward/ffn.cc forward/head.cc
          forward/moe_ffn.cc forward/normed_rows.cc forward/partial_exchange.cc
          forward/result_route.cc forward/router.cc forward/row_share.cc forward/row_stages.cc
          forward/row_sum.cc inline_executor.cc kv_cache.cc measured_costs.cc model_bytes.cc
          model_weights.cc open_model.cc packed_identity.cc packed_region.cc packed_store.cc
          plan_message.cc rank_meter.cc rank_runner.cc sizing.cc split_executor.cc team_rows.cc
  DEPS cleave_base cleave_tensor cleave_kernels cleave_comm cleave_format cleave_host cleave_split
       PkgConfig::XXHASH spdlog::spdlog fmt::fmt)
cleave_test(NAME packed_store SOURCES packed_store_test.cc DEPS cleave_decoder)
cleave_test(SERIAL NAME sizing SOURCES sizing_test.cc DEPS cleave_decoder)
cleave_test(SERIAL NAME ep_routes SOURCES forward/ep_routes_test.cc team_rows_test.cc
            DEPS cleave_decoder)

add_library(cleave_greedy_batch STATIC greedy_batch.cc)
target_link_libraries(cleave_greedy_batch PUBLIC cleave_decoder)
cleave_test(NAME reference SOURCES reference_test.cc DEPS cleave_greedy_batch LABELS full)
if(TARGET reference_test)  # two threads of a rank want both cores
  set_tests_properties(reference PROPERTIES TIMEOUT 1500 RUN_SERIAL TRUE)
endif()
cleave_test(SERIAL NAME plan_message SOURCES plan_message_test.cc DEPS cleave_decoder)
