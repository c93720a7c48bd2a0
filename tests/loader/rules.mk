# The loader's fixtures, the comparison with libbpf, and the fuzzers' seeds. Included by the Makefile.
FIXTURE_NAMES  := $(patsubst tests/loader/fixtures/%.bpf.c,%,$(wildcard tests/loader/fixtures/*.bpf.c))
FIXTURES       := $(foreach n,$(FIXTURE_NAMES),$(B)/fixtures/$(n).local.o $(B)/fixtures/$(n).target.o)
FIXTURE_FLAGS  := -target bpf -mcpu=v3 -O2 -g -Wall -Wextra -Wno-unused-parameter -Werror
ORACLE_OBJECTS := $(patsubst %.cpp,$(ASAN)/%.o,$(wildcard base/*.cpp) loader/elf.cpp loader/btf.cpp loader/core.cpp \
  loader/object.cpp tests/loader/oracle_test.cpp)

$(B)/fixtures/%.local.o: tests/loader/fixtures/%.bpf.c tests/loader/fixtures/fixture.h
	$(call say,BPF,$<)
	$(Q)mkdir -p $(@D) && $(CLANG) $(FIXTURE_FLAGS) -c -o $@ $<
$(B)/fixtures/%.target.o: tests/loader/fixtures/%.bpf.c tests/loader/fixtures/fixture.h
	$(call say,BPF,$< target)
	$(Q)mkdir -p $(@D) && $(CLANG) $(FIXTURE_FLAGS) -DTARGET -c -o $@ $<

$(ASAN)/oracle_tests: $(ORACLE_OBJECTS)
	$(call say,LINK,$@)
	$(Q)clang++-19 -fsanitize=address,undefined -o $@ $^ -lgtest -lgtest_main -lbpf -lelf -lz -lpthread

oracle: $(ASAN)/oracle_tests $(FIXTURES) $(B)/kprobe.bpf.o
	$(Q)KITTY_FIXTURES=$(B)/fixtures KITTY_OBJECT=$(B)/kprobe.bpf.o $< --gtest_brief=1

# Seeds: $(B)/fuzz/corpus/elf, $(B)/fuzz/corpus/btf.
fuzz-corpus-loader: $(FIXTURES)
	$(Q)mkdir -p $(B)/fuzz/corpus/elf $(B)/fuzz/corpus/btf && for f in $(FIXTURES); do n=$$(basename $$f .o) && \
	  llvm-objcopy-19 -g --dump-section .BTF=$(B)/fuzz/corpus/btf/$$n $$f $(B)/fuzz/corpus/elf/$$n || exit 1; done

-include $(ORACLE_OBJECTS:.o=.d)
.PHONY: oracle fuzz-corpus-loader
