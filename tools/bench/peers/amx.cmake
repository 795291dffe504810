# CMake includes this at ggml's project(): see amx_config.h. Its many warnings there are not ours.
set(cleave_header ${CMAKE_CURRENT_LIST_DIR}/amx_config.h)
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-w -include ${cleave_header}>")
