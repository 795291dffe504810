# Each header compiles alone. Run by check_headers.sh; a stamp is made again when the header or
# anything it includes has changed.
OUT := build/checks/headers
HEADERS := $(shell find src -name '*.h' | sort)
FLAGS := -std=c++20 -fsyntax-only -Isrc -Itests -Wall -Wextra -Wpedantic -Wshadow -Wno-unused-function -Werror
AVX2 := -mavx2 -mfma -mf16c
AVX512 := $(AVX2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mavx512bf16

all: $(HEADERS:%=$(OUT)/%.ok)

$(OUT)/%.ok: %
	@mkdir -p $(@D)
	@echo '#include "$(<:src/%=%)"' | $(CXX) $(FLAGS) \
	  $(if $(findstring amx,$<),$(AVX512) -mamx-tile -mamx-int8) $(if $(findstring avx512,$<),$(AVX512)) $(if $(findstring avx2,$<),$(AVX2)) \
	  -x c++ -MMD -MP -MT $@ -MF $(OUT)/$*.d - || { echo "$<: does not compile alone"; exit 1; }
	@touch $@

-include $(HEADERS:%=$(OUT)/%.d)
