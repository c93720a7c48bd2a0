# libFuzzer under ASan and UBSan, on the objects of the unit tests' first flavour. `make fuzz` runs each target FUZZ_SECONDS
# from its seeds, `make fuzz-seeds` its seeds alone: tests/fuzz/corpus/NAME, and for object files and BTF what the loader's
# fixtures compile to.
FUZZERS      := $(patsubst tests/fuzz/%_fuzz.cpp,%,$(wildcard tests/fuzz/*_fuzz.cpp))
FUZZ_SECONDS ?= 60
FUZZ_JOBS    ?= $(shell nproc)

fuzz-build: $(FUZZERS:%=$(B)/fuzz/%)

fuzz fuzz-seeds: fuzz-build fuzz-corpus-loader
	$(Q)printf '%s\n' $(FUZZERS) | xargs -P $(FUZZ_JOBS) -I@ tests/fuzz/run $(B)/fuzz @ $(if $(filter fuzz-seeds,$@),0,$(FUZZ_SECONDS))

$(B)/fuzz/%: $(ASAN)/tests/fuzz/%_fuzz.o $(patsubst %.cpp,$(ASAN)/%.o,$(SOURCES))
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && clang++-19 -fsanitize=fuzzer,address,undefined -o $@ $^ -lresolv

.PHONY: fuzz fuzz-seeds fuzz-build
