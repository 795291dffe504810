# One target per folder, its dependencies named; tests and benchmarks stand beside the code.
#
#   cleave_library(NAME base SOURCES a.cc b.cc DEPS fmt::fmt cleave_tensor)
#   cleave_test(NAME base SOURCES a_test.cc DEPS cleave_base [LABELS full] [SERIAL | THREADS filter])
#     label quick unless said; SERIAL: no threads meet in it, so ThreadSanitizer has nothing to see;
#     THREADS: they meet in the tests of this GoogleTest filter only
#   cleave_bench(NAME kernels SOURCES matmul_bench.cc DEPS cleave_kernels)

find_package(Threads REQUIRED)

add_library(cleave_options INTERFACE)
target_compile_options(cleave_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror
  -ffp-contract=off  # one answer: a fused multiply-add stands only where the source says fma
  -fno-omit-frame-pointer)
target_include_directories(cleave_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(cleave_options INTERFACE Threads::Threads)
if(CLEAVE_SANITIZE)
  target_compile_options(cleave_options INTERFACE -fsanitize=${CLEAVE_SANITIZE}
                         -fno-sanitize-recover=all)
  target_link_options(cleave_options INTERFACE -fsanitize=${CLEAVE_SANITIZE})
endif()

function(cleave_library)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;DEPS" ${ARGN})
  add_library(cleave_${ARG_NAME} STATIC ${ARG_SOURCES})
  target_link_libraries(cleave_${ARG_NAME} PUBLIC cleave_options ${ARG_DEPS})
endfunction()

function(cleave_test)
  if(NOT CLEAVE_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "SERIAL" "NAME;THREADS" "SOURCES;DEPS;LABELS" ${ARGN})
  find_package(GTest REQUIRED)
  add_executable(${ARG_NAME}_test ${ARG_SOURCES})
  target_link_libraries(${ARG_NAME}_test PRIVATE cleave_options ${ARG_DEPS} GTest::gtest
                        GTest::gmock GTest::gtest_main)
  target_compile_definitions(${ARG_NAME}_test PRIVATE
                             CLEAVE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  if(NOT ARG_LABELS)
    set(ARG_LABELS quick)
  endif()
  if(ARG_SERIAL)
    list(APPEND ARG_LABELS serial)
  endif()
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME}_test)
  set_tests_properties(${ARG_NAME} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 600)
  if(NOT CLEAVE_SANITIZE)
    return()
  endif()
  if(CLEAVE_SANITIZE STREQUAL "thread" AND ARG_THREADS)
    set_tests_properties(${ARG_NAME} PROPERTIES ENVIRONMENT "GTEST_FILTER=${ARG_THREADS}")
  endif()
  # Sanitizers run the quick tests; what is not run is not built.
  if(full IN_LIST ARG_LABELS OR (CLEAVE_SANITIZE STREQUAL "thread" AND ARG_SERIAL))
    set_target_properties(${ARG_NAME}_test PROPERTIES EXCLUDE_FROM_ALL ON)
    set_tests_properties(${ARG_NAME} PROPERTIES DISABLED ON)
  endif()
endfunction()

function(cleave_bench)
  if(NOT CLEAVE_BUILD_BENCH)
    return()
  endif()
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;DEPS" ${ARGN})
  find_package(benchmark REQUIRED)
  add_executable(${ARG_NAME}_bench ${ARG_SOURCES})
  target_link_libraries(${ARG_NAME}_bench PRIVATE cleave_options ${ARG_DEPS} benchmark::benchmark
                        benchmark::benchmark_main)
endfunction()
