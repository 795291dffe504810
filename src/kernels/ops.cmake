list(APPEND CLEAVE_KERNEL_SOURCES
     math.cc
     vector_ops.cc vector_ops_scalar.cc
     attention.cc attention_bins.cc attention_scalar.cc
     logits.cc logits_scalar.cc)
cleave_test(NAME math SOURCES math_test.cc DEPS cleave_kernels)
