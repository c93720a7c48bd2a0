# kitty. `make run` installs what is missing, builds and runs the agent; `make test` does so and passes everything.
# V=1 shows the commands. Variables worth setting: CACHE (what is fetched, outside the tree), HTTPLIB (a folder with
# cpp-httplib 0.18's httplib.h, where it cannot be fetched), KITTY_SYMBOL_KERNEL (a bzImage with tcp_rtt_estimator).
include version.mk

B     := build
CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kitty
HTTPLIB ?= $(CACHE)/cpp-httplib
CLANG ?= clang-19
CXX   := g++
Q     := $(if $(V),,@)
say    = @printf '  %-7s %s\n' '$(1)' '$(2)'

PACKAGES_BUILD := g++ make clang-19 llvm-19 linux-libc-dev dpkg-dev ca-certificates
PACKAGES_TEST  := libgtest-dev libbpf-dev libelf-dev zlib1g-dev libclang-rt-19-dev clang-format-19 clang-tidy-19 cppcheck \
  prometheus python3 iproute2 qemu-system-x86 busybox-static cpio kmod curl file procps libcap2-bin util-linux

WARN     := -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor -Wold-style-cast -Werror
CXXFLAGS := -std=c++23 $(WARN) -I. -isystem $(HTTPLIB) -DKITTY_VERSION='"$(VERSION)"' -DKITTY_BPF_OBJECT='"$(B)/kprobe.bpf.o"' -MMD -MP
RELEASE  := -Os -flto=auto -ffunction-sections -fdata-sections -fno-plt -fstack-protector-strong -D_FORTIFY_SOURCE=2
LDRELEASE := -static -flto=auto -Wl,--gc-sections -Wl,-z,noexecstack -s
CHECK    := -O1 -g $(addprefix -fsanitize=,$(SANITIZE))
# SANITIZE=address,undefined or thread builds the tests into a folder of their own.
comma := ,
T := $(B)/check$(addprefix -,$(subst $(comma),-,$(SANITIZE)))

ARCH_x86_64 := x86
ARCH_aarch64 := arm64
BPF_ARCH := $(or $(ARCH_$(shell uname -m)),$(error kitty: no BPF argument registers known for $(shell uname -m)))
BPFFLAGS := -target bpf -mcpu=v3 -O2 -g -Wall -Wextra -Werror -I. -I/usr/include/$(shell uname -m)-linux-gnu

SOURCES  := $(wildcard base/*.cpp loader/*.cpp procfs/*.cpp collector/*.cpp http/*.cpp cli/*.cpp verdict/*.cpp)
OBJECTS  := $(patsubst %.cpp,$(B)/release/%.o,main.cpp $(SOURCES))
TESTOBJS := $(patsubst %.cpp,$(T)/%.o,$(SOURCES) $(wildcard tests/unit/*.cpp))

all: $(B)/kitty

$(B)/kitty: $(OBJECTS)
	$(call say,LINK,$@)
	$(Q)$(CXX) $(RELEASE) $(LDRELEASE) -o $@ $^

$(B)/release/%.o: %.cpp
	$(call say,CXX,$<)
	$(Q)mkdir -p $(@D) && $(CXX) $(CXXFLAGS) $(RELEASE) -c -o $@ $<

$(T)/%.o: %.cpp
	$(call say,CXX,$< $(SANITIZE))
	$(Q)mkdir -p $(@D) && $(CXX) $(CXXFLAGS) $(CHECK) -c -o $@ $<

$(B)/release/collector/embedded_object.o $(T)/collector/embedded_object.o: $(B)/kprobe.bpf.o
$(B)/kprobe.bpf.o: kprobe.bpf.c kprobe.h
	$(call say,BPF,$<)
	$(Q)mkdir -p $(@D) && $(CLANG) $(BPFFLAGS) -D__TARGET_ARCH_$(BPF_ARCH) -c -o $@ $< && llvm-strip-19 -g $@

$(B)/unit_tests: $(T)/unit_tests
	$(Q)ln -sf $(<:$(B)/%=%) $@
$(T)/unit_tests: $(TESTOBJS)
	$(call say,LINK,$@)
	$(Q)$(CXX) $(CHECK) -o $@ $^ -lgtest -lgtest_main -lpthread

unit: $(T)/unit_tests
	$(Q)$(T)/unit_tests --gtest_brief=1

clean:
	rm -rf $(B)

-include $(OBJECTS:.o=.d) $(TESTOBJS:.o=.d)
.PHONY: all unit clean
.DELETE_ON_ERROR:
