list(APPEND CLEAVE_KERNEL_SOURCES isa.cc k_plan.cc)
cleave_test(NAME isa SOURCES isa_test.cc DEPS cleave_kernels)
cleave_test(NAME k_plan SOURCES k_plan_test.cc DEPS cleave_kernels)
