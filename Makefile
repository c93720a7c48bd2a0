# kitty. `make run` installs what is missing, builds and runs the agent; `make test` does so and passes everything.
# V=1 shows the commands, WERROR=1 makes warnings errors. Variables worth setting: CACHE (what is fetched, outside the tree), HTTPLIB (a folder with
# cpp-httplib 0.18's httplib.h, where it cannot be fetched), KITTY_SYMBOL_KERNEL (a bzImage with tcp_rtt_estimator),
# ARCH (x86_64 or aarch64, where it is not this machine's: cross-built by Debian's toolchain into build/ARCH).
include version.mk

HOST    := $(shell uname -m)
ARCH    := $(HOST)
CROSS   := $(filter-out $(HOST),$(ARCH))
B       := build$(CROSS:%=/%)
CACHE   ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kitty
HTTPLIB ?= $(CACHE)/cpp-httplib
cxx      = $(patsubst %,%-linux-gnu-,$(filter-out $(HOST),$(1)))g++
CXX     := $(call cxx,$(ARCH))
CLANG   := clang-19
Q       := $(if $(V),,@)
say      = @printf '  %-7s %s\n' '$(1)' '$(2)'
export CACHE

PACKAGES_BUILD := g++ clang-19 llvm-19 linux-libc-dev dpkg-dev ca-certificates debian-archive-keyring
PACKAGES_TEST  := libgtest-dev libclang-rt-19-dev clang-format-19 clang-tidy-19 cppcheck shellcheck prometheus python3 python3-yaml \
  python3-torch libopenblas0-pthread iproute2 nftables qemu-system-x86 busybox-static cpio kmod xz-utils zstd file util-linux \
  procps git
PACKAGES_SLOW  := libbpf-dev libelf-dev zlib1g-dev chromium openmpi-bin libopenmpi-dev slowhttptest wrk buildah podman runc \
  systemd procps

PACKAGES_IMAGE := buildah
DISTS          := x86_64 aarch64
PACKAGES_DIST  := python3 $(foreach a,$(filter-out $(HOST),$(DISTS)),g++-$(subst _,-,$(a))-linux-gnu)

PACKAGES_LONG  := $(PACKAGES_DIST) qemu-user qemu-system-arm slurm-wlm munge tcpdump

# What a binary would say of where it was built: cpp-httplib's assertions, the BPF object's line table.
NOPATHS  := -ffile-prefix-map=$(HTTPLIB)/=
WARN     := -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor -Wold-style-cast $(if $(WERROR),-Werror)
CXXFLAGS := -std=c++23 $(WARN) -I. -isystem $(HTTPLIB) $(NOPATHS) -DKITTY_VERSION='"$(VERSION)"' \
  -DKITTY_BPF_OBJECT='"$(B)/kprobe.bpf.o"' -MMD -MP
RELEASE  := -Os -flto=auto -ffunction-sections -fdata-sections -fstack-protector-strong -D_FORTIFY_SOURCE=2
LDRELEASE := -static -flto=auto -Wl,--gc-sections -Wl,--build-id=none -Wl,-z,noexecstack -s
# Another architecture's C library: not the one that comes with the cross-compiler, which gets no security updates.
LIBC     := $(CROSS:%=$(CACHE)/libc-%)
LDRELEASE += $(LIBC:%=-B%/ -L%)
comma   := ,

# A kprobe's arguments are in registers, so the BPF object is one of its architecture.
BPF_ARCH_x86_64 := x86
BPF_ARCH_aarch64 := arm64
BPF_UAPI := -I/usr/include/$(ARCH)-linux-gnu $(CROSS:%=-I/usr/%-linux-gnu/include)
BPFFLAGS := -target bpf -mcpu=v3 -O2 -g -Wall -Wextra -Werror -I. $(BPF_UAPI) -fdebug-compilation-dir=.

SOURCES  := $(wildcard base/*.cpp loader/*.cpp procfs/*.cpp collector/*.cpp http/*.cpp cli/*.cpp verdict/*.cpp privileges/*.cpp)
OBJECTS  := $(patsubst %.cpp,$(B)/release/%.o,main.cpp $(SOURCES))
RELEASED := $(filter-out %/main.o,$(OBJECTS))
FLAVOURS := release check-address-undefined check-thread

all: $(B)/kitty

run: packages-build
	$(Q)$(MAKE) --no-print-directory -j$(shell nproc) all
	$(B)/kitty

# The tests, by tiers (tests/all says which step is in which): `make test` tells within ten minutes, test-kernels and
# test-slow are the rest of what CI runs, test-long is for releases. Each installs what it needs.
test: packages-build packages-test
	$(Q)tests/all test

# Named together they are one run: what waits in one tier goes beside what waits in the other.
test-kernels test-slow: tiers
tiers: packages-build packages-test packages-slow
	$(Q)tests/all $(patsubst test-%,%,$(filter test-kernels test-slow,$(MAKECMDGOALS)))

test-long: packages-build packages-test packages-slow packages-long
	$(Q)tests/all test kernels slow long

lint:
	$(Q)tests/lint

# The image, built in a store of its own, and an archive of it that podman, docker and containerd load.
IMAGE   := localhost/kitty:$(VERSION)
BUILDAH := buildah --storage-driver vfs --root $(CURDIR)/$(B)/image/store --runroot $(CURDIR)/$(B)/image/run
image: packages-build packages-image $(B)/kitty
	$(call say,IMAGE,$(B)/kitty-image.tar)
	$(Q)$(BUILDAH) bud --isolation chroot --quiet --build-arg VERSION=$(VERSION) --tag $(IMAGE) . >/dev/null
	$(Q)rm -f $(B)/kitty-image.tar && $(BUILDAH) push --quiet $(IMAGE) docker-archive:$(B)/kitty-image.tar:$(IMAGE)
	$(Q)$(BUILDAH) images --format '{{.Name}}:{{.Tag}} {{.Size}}' $(IMAGE)

bench: packages-build $(B)/kitty $(B)/bench
	$(Q)bench/run $(B)/kitty $(B)/bench

vm-kernel:
	$(Q)tools/install-packages gcc make bc bison flex dwarves xz-utils libelf-dev libssl-dev dpkg-dev
	$(Q)tests/vm/build-kernel $(CACHE)

packages-build: ; $(Q)tools/install-packages $(PACKAGES_BUILD)
packages-test: ; $(Q)tools/install-packages $(PACKAGES_TEST)
packages-slow: ; $(Q)tools/install-packages $(PACKAGES_SLOW)
packages-image: ; $(Q)tools/install-packages $(PACKAGES_IMAGE)
packages-long: ; $(Q)tools/install-packages $(PACKAGES_LONG)
packages-dist: ; $(Q)tools/install-packages $(PACKAGES_DIST)

$(B)/kitty: $(OBJECTS) | $(LIBC:%=%/origin)
	$(call say,LINK,$@)
	$(Q)$(CXX) $(RELEASE) $(LDRELEASE) -o $@ $^ -lresolv

$(B)/release/%.o: %.cpp | $(HTTPLIB)/httplib.h
	$(call say,CXX,$<)
	$(Q)mkdir -p $(@D) && $(CXX) $(CXXFLAGS) $(RELEASE) -c -o $@ $<

# The parsers run on every row of every pass: speed for 5 kB.
$(B)/release/procfs/%.o: RELEASE += -O2
# Only cpp-httplib catches anything, and not what these would throw: exhausted memory ends the program with or without the
# tables for unwinding, which are 50 kB.
$(foreach d,loader procfs collector verdict privileges cli,$(B)/release/$(d)/%.o): \
  RELEASE += -fno-exceptions -fno-asynchronous-unwind-tables

$(HTTPLIB)/httplib.h:
	$(call say,FETCH,$@)
	$(Q)tools/fetch-httplib $(HTTPLIB)

$(B)/kprobe.bpf.o: kprobe.bpf.c kprobe.h
	$(call say,BPF,$<)
	$(Q)mkdir -p $(@D) && $(CLANG) $(BPFFLAGS) -D__TARGET_ARCH_$(BPF_ARCH_$(ARCH)) -c -o $@ $< && llvm-strip-19 -g -R .rel.BTF.ext -R .llvm_addrsig $@
$(FLAVOURS:%=$(B)/%/collector/embedded_object.o): $(B)/kprobe.bpf.o
$(FLAVOURS:%=$(B)/%/http/page.o): http/page.html

# A release: $(B)/dist, built from nothing, the same to the byte whenever and wherever Debian's packages are the same.
DIST := $(B)/dist
NAME := kitty-$(VERSION)
JOBS  = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))
dist: packages-build packages-dist $(HTTPLIB)/httplib.h.copyright
	$(Q)rm -rf $(DIST) $(DIST)-build && mkdir -p $(DIST)
	$(Q)$(foreach a,$(filter-out $(HOST),$(DISTS)),tools/fetch-libc $(a) $(CACHE)/libc-$(a) &&) true
	$(Q)$(foreach a,$(DISTS),$(MAKE) --no-print-directory $(JOBS) ARCH=$(a) B=$(DIST)-build/$(a) all &&) true
	$(Q)$(foreach a,$(DISTS),install -m 755 $(DIST)-build/$(a)/kitty $(DIST)/$(NAME)-linux-$(a) &&) rm -r $(DIST)-build
	$(call say,LIST,$(DIST))
	$(Q)umask 022 && tools/dist-contents $(VERSION) $(HTTPLIB) $(DIST) $(foreach a,$(DISTS),$(a)=$(call cxx,$(a))$(patsubst %,$(comma)$(CACHE)/libc-%,$(filter-out $(HOST),$(a))))
	$(Q)umask 022 && cd $(DIST) && sha256sum $(foreach a,$(DISTS),$(NAME)-linux-$(a) $(NAME)-linux-$(a).cdx.json) \
	  $(NAME)-LICENSES.txt >SHA256SUMS && cat SHA256SUMS

$(CACHE)/libc-%/origin:
	$(call say,FETCH,$(@D))
	$(Q)tools/fetch-libc $* $(@D)

# Only where the header was fetched: a folder of somebody else's is not written to, and must bring its LICENSE.
$(HTTPLIB)/httplib.h.copyright: | $(HTTPLIB)/httplib.h
	$(Q)[ ! -r $(HTTPLIB)/httplib.h.origin ] || tools/fetch-httplib $(HTTPLIB)

# The other architectures' objects are compiled so that they keep compiling; what the binary embeds is its own.
bpf-all: $(patsubst %,$(B)/kprobe.%.bpf.o,x86 arm64)
$(B)/kprobe.%.bpf.o: kprobe.bpf.c kprobe.h
	$(call say,BPF,$< $*)
	$(Q)mkdir -p $(@D) && $(CLANG) $(BPFFLAGS) -D__TARGET_ARCH_$* -c -o $@ $<

$(B)/exposition-check: $(B)/release/tests/exposition_check_main.o $(RELEASED)
	$(call say,LINK,$@)
	$(Q)$(CXX) $(RELEASE) -o $@ $^ -lresolv

$(B)/churn: $(B)/release/tests/native/churn.o
	$(call say,LINK,$@)
	$(Q)$(CXX) $(RELEASE) $(LDRELEASE) -o $@ $^ -lresolv

$(B)/bench: $(patsubst %.cpp,$(B)/release/%.o,$(wildcard bench/*.cpp) $(SOURCES))
	$(call say,LINK,$@)
	$(Q)$(CXX) $(RELEASE) $(LDRELEASE) -o $@ $^ -lresolv

include tests/unit/rules.mk
include tests/loader/rules.mk
include tests/fuzz/rules.mk

clean:
	rm -rf $(B)

-include $(wildcard $(B)/*/*.d $(B)/*/*/*.d $(B)/*/*/*/*.d)
.PHONY: all run test tiers test-kernels test-slow test-long lint image bench vm-kernel packages-build packages-test packages-slow packages-image packages-long \
  packages-dist dist bpf-all clean
.DELETE_ON_ERROR:
.SECONDARY:
