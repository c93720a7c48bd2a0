# The unit tests, in flavours with a folder each. SANITIZE=address,undefined, the default, and SANITIZE=thread compile
# everything with clang; the fuzzers and the oracle use the former's objects. SANITIZE=none links the tests with the very
# objects that the binary is made of. TESTS='Pattern*' runs some.
#
# SUBSET builds fewer tests, for where all of them are too many: `kernel`, those that a VM runs; `threads`, those that
# ThreadSanitizer is for.
SANITIZE ?= address,undefined
ASAN     := $(B)/check-address-undefined
T        := $(B)/check-$(subst $(comma),-,$(SANITIZE))

# A foreign C library comes without sanitizers, and clang without that machine's C++ library.
PLAIN    := $(filter none,$(SANITIZE))
CHECKER  := $(if $(PLAIN),$(CXX),clang++-19)
CHECK    := -g1 $(if $(PLAIN),,-O0 -fno-omit-frame-pointer -fno-sanitize-recover=all)
LINK     := $(CHECKER) $(if $(PLAIN),$(RELEASE),-fsanitize=$(SANITIZE))
# What the fuzzers are steered by costs the unit tests nothing. Tests are compiled without UBSan: half of what clang would
# do for them is its checks.
$(ASAN)/%.o: INSTRUMENT = -fsanitize=address,undefined,fuzzer-no-link
$(ASAN)/tests/unit/%.o: INSTRUMENT = -fsanitize=address
$(B)/check-thread/%.o: INSTRUMENT = -fsanitize=thread

UNIT_kernel  := link program map rtt_hook rtt_collector steady_tick time_collector exec_log hand_over iterator socket_rows privileges
UNIT_threads := text_slot server ticker scanner expendable stuck_scan
UNITS    := $(or $(UNIT_$(SUBSET)),$(patsubst tests/unit/%_test.cpp,%,$(wildcard tests/unit/*_test.cpp)))
# Allocations are counted by operators of the tests' own, which ThreadSanitizer has, too; what threads do is not in cli.
UNITOBJS := $(patsubst %,$(T)/tests/unit/%_test.o,$(UNITS)) $(if $(filter threads,$(SUBSET)),,$(T)/tests/unit/allocation_count.o)
USED     := $(filter-out $(if $(filter threads,$(SUBSET)),cli/% verdict/%),$(SOURCES))
LIBOBJS  := $(if $(PLAIN),$(RELEASED),$(patsubst %.cpp,$(T)/%.o,$(USED)))
UNIT     := $(T)/$(if $(SUBSET),$(SUBSET)_tests,unit_tests)

unit-build: $(UNIT)
unit: $(UNIT)
	$(Q)$(if $(CROSS),tests/dist/emulate $(CROSS)) $(if $(filter thread,$(SANITIZE)),setarch -R) $(UNIT) --gtest_brief=1 \
	  $(if $(TESTS),--gtest_filter='$(TESTS)')

# Debian's library is this machine's; for another one it is compiled from the sources that its package brings along.
GTEST_SOURCES := /usr/src/googletest/googletest
GTEST := $(if $(CROSS),$(T)/gtest-all.o $(T)/gtest_main.o -static -z muldefs $(LIBC:%=-B%/ -L%),-lgtest -lgtest_main) -lresolv
$(T)/gtest-all.o $(T)/gtest_main.o: $(T)/%.o: $(GTEST_SOURCES)/src/%.cc
	$(call say,CXX,$<)
	$(Q)mkdir -p $(@D) && $(CXX) -std=c++23 -g1 -w -I$(GTEST_SOURCES) -I$(GTEST_SOURCES)/include -c -o $@ $<

# The standard library's headers are a quarter of what the sources cost to compile: once a flavour, too.
PRELUDED := $(if $(PLAIN),,$(patsubst %.cpp,$(T)/%.o,$(SOURCES)))
STANDARD := algorithm array chrono cstdint cstring expected functional map memory mutex optional span string \
  string_view unordered_map vector
$(ASAN)/standard.h.gch: INSTRUMENT = -fsanitize=address,undefined,fuzzer-no-link
$(B)/check-thread/standard.h.gch: INSTRUMENT = -fsanitize=thread
$(T)/standard.h.gch: Makefile tests/unit/rules.mk
	$(Q)mkdir -p $(@D) && printf '#include <%s>\n' $(STANDARD) >$(T)/standard.h && \
	  $(CHECKER) $(filter-out -MMD -MP,$(CXXFLAGS)) $(CHECK) $(INSTRUMENT) -x c++-header -o $@ $(T)/standard.h
$(PRELUDED): PRELUDE = -include $(T)/standard.h
$(PRELUDED): $(T)/standard.h.gch

# Google Test's header costs more than most tests: compiled once a flavour.
$(T)/gtest.h.gch: Makefile tests/unit/rules.mk
	$(Q)mkdir -p $(@D) && echo '#include <gtest/gtest.h>' >$(T)/gtest.h && \
	  $(CHECKER) $(filter-out -MMD -MP,$(CXXFLAGS)) $(CHECK) $(if $(PLAIN),,-fsanitize=$(firstword $(subst $(comma), ,$(SANITIZE)))) \
	  -x c++-header -o $@ $(T)/gtest.h
$(UNITOBJS): PRELUDE = -include $(T)/gtest.h
$(UNITOBJS): $(T)/gtest.h.gch
$(T)/%.o: %.cpp | $(HTTPLIB)/httplib.h
	$(call say,CXX,$< $(SANITIZE))
	$(Q)mkdir -p $(@D) && $(CHECKER) $(CXXFLAGS) $(PRELUDE) $(CHECK) $(INSTRUMENT) -c -o $@ $<

$(UNIT): $(UNITOBJS) $(LIBOBJS) $(filter %.o,$(GTEST)) | $(LIBC:%=%/origin)
	$(call say,LINK,$@)
	$(Q)$(LINK) -o $@ $(UNITOBJS) $(LIBOBJS) $(GTEST)

.PHONY: unit unit-build
