# libFuzzer under ASan and UBSan. `make fuzz` runs each target FUZZ_SECONDS from its seeds: tests/fuzz/corpus/NAME, and
# for object files and BTF what the loader's fixtures compile to.
FUZZERS  := $(patsubst tests/fuzz/%_fuzz.cpp,%,$(wildcard tests/fuzz/*_fuzz.cpp))
FUZZFLAGS := -std=c++23 -g1 -O1 -Wall -Wextra -I. -isystem $(HTTPLIB) -DKITTY_VERSION='"$(VERSION)"' -MMD -MP
FUZZLIBS := $(patsubst %.cpp,$(B)/fuzz/%.o,$(filter base/% loader/% procfs/% http/exposition% http/page% http/routes% http/text_slot% \
  verdict/% cli/read_scrape% cli/report% cli/text%,$(SOURCES)))

fuzz-build: $(FUZZERS:%=$(B)/fuzz/%)

fuzz: fuzz-build fuzz-corpus-loader
	$(Q)for name in $(FUZZERS); do tests/fuzz/run $(B)/fuzz $$name $(FUZZ_SECONDS) || exit 1; done

$(B)/fuzz/%: $(B)/fuzz/tests/fuzz/%_fuzz.o $(FUZZLIBS)
	$(call say,LINK,$@)
	$(Q)clang++-19 -fsanitize=fuzzer,address,undefined -o $@ $^

$(B)/fuzz/%.o: %.cpp | $(HTTPLIB)/httplib.h
	$(call say,FUZZ,$<)
	$(Q)mkdir -p $(@D) && clang++-19 $(FUZZFLAGS) -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all \
	  -c -o $@ $<

.PHONY: fuzz fuzz-build
