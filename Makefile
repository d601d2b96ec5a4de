# cudackpt: libcudackpt.so (preloaded into a CUDA program) and cudackpt-ctl. `make help` lists the targets.

prefix  ?= /usr/local
bindir  ?= $(prefix)/bin
libdir  ?= $(prefix)/lib
mandir  ?= $(prefix)/share/man
BUILD   ?= build
VERSION := 0.1.0
ifeq ($(filter-out default undefined,$(origin CC)),)
CC := gcc
endif

CFLAGS  ?= -O2 -g
WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wwrite-strings -Wvla \
           -Wno-unused-parameter
BASE    := -std=gnu11 -fPIC -fvisibility=hidden -fno-strict-aliasing -pthread -D_GNU_SOURCE \
           -DCUDACKPT_VERSION='"$(VERSION)"' -Ishared -Ilibinterpose
# Sanitizers: of the library, the tool and the unit tests. The fake driver and the test programs stay plain.
SAN     ?=
PLAIN_CFLAGS := $(BASE) $(WARN) $(CFLAGS)
ALL_CFLAGS   := $(PLAIN_CFLAGS) $(SAN)
LDFLAGS ?=
# Static: the preloaded library must start where only libc and the driver are installed.
STATIC_LIBS := -Wl,-Bstatic -llz4 -lzstd -Wl,-Bdynamic

MAKEFLAGS += --no-builtin-rules --no-builtin-variables --no-print-directory
.DELETE_ON_ERROR:
.SUFFIXES:

ifeq ($(V),)
Q := @
say = @printf '  %-7s %s\n' $(1) $(2)
endif

# ---- what there is

objects = $(patsubst %,$(BUILD)/obj/%.o,$(sort $(1)))
SHARED_OBJ := $(call objects,$(wildcard shared/*.c))
LIB_OBJ    := $(call objects,$(wildcard libinterpose/*.c libinterpose/*.S))
CTL_OBJ    := $(call objects,$(wildcard ctl/*.c))
FAKE_SRC   := $(wildcard test/fake_driver/*.c)
FAKE_OBJ   := $(call objects,$(FAKE_SRC))
OLD_OBJ    := $(FAKE_OBJ:.o=.old.o)
SHARE_OBJ  := $(call objects,test/fake_driver/fake_share.c)

LIB      := $(BUILD)/libcudackpt.so
CTL      := $(BUILD)/cudackpt-ctl
ARCHIVE  := $(BUILD)/libinterpose.a
FAKE_CUDA := $(BUILD)/fake/libcuda.so.1
FAKE_ALL := $(FAKE_CUDA) $(addprefix $(BUILD)/fake,/libnvidia-ml.so.1 /fake-smi -old/libcuda.so.1 \
            -old/libnvidia-ml.so.1 -old/fake-smi)
PROGRAMS := $(patsubst test/programs/%.c,$(BUILD)/programs/%,$(filter-out %/program.c,$(wildcard test/programs/*.c)))
# The same programs beside a driver of 2021.
OLD_VIEW := $(BUILD)/with-old-driver
CHECKS   := $(patsubst test/%.c,$(BUILD)/test/%,$(wildcard test/check_*.c test/fuzz_*.c)) $(BUILD)/test/stress_gate
BENCHES  := $(patsubst test/bench/%.c,$(BUILD)/bench/%,$(wildcard test/bench/*.c))
DEMO     := $(BUILD)/demo/counter_server
NVCC     := $(firstword $(wildcard $(CUDA_HOME)/bin/nvcc /usr/local/cuda/bin/nvcc))

.PHONY: all help setup install uninstall clean fake programs check-build check test check-san check-api check-criu \
        check-gpu lint bench demo FORCE
all: $(LIB) $(CTL)

# After a setup in the same call nothing may begin before it has ended.
ifneq ($(filter setup,$(MAKECMDGOALS)),)
.NOTPARALLEL:
endif

# ---- objects

# What an output depends on beside files: a stamp is written anew when its text changes.
stamp = @mkdir -p $(@D); printf '%s\n' '$(subst ','\'',$(1))' | cmp -s - $@ || printf '%s\n' '$(subst ','\'',$(1))' >$@
$(BUILD)/flags: FORCE
	$(call stamp,$(CC) $(ALL_CFLAGS) $(LDFLAGS) $(STATIC_LIBS))
$(BUILD)/flags-plain: FORCE
	$(call stamp,$(CC) $(PLAIN_CFLAGS) $(LDFLAGS))
$(BUILD)/flags-libdir: FORCE
	$(call stamp,$(libdir))
# A source that is gone is gone from what is linked, too.
$(BUILD)/sources: FORCE
	$(call stamp,$(SHARED_OBJ) $(LIB_OBJ) $(CTL_OBJ) $(FAKE_OBJ))

compile = $(Q)mkdir -p $(@D) && $(CC) $(1) -MMD -MP -c $< -o $@
$(BUILD)/obj/%.c.o: %.c $(BUILD)/flags
	$(call say,CC,$<)
	$(call compile,$(ALL_CFLAGS))
# `cuda-checkpoint --launch-job` looks for the library there.
$(CTL_OBJ): $(BUILD)/obj/%.c.o: %.c $(BUILD)/flags $(BUILD)/flags-libdir
	$(call say,CC,$<)
	$(call compile,$(ALL_CFLAGS) -DCUDACKPT_LIBDIR='"$(libdir)"')
# A sanitizer's runtime calls our dlsym before it is ready itself: what answers then stays plain.
EARLY_OBJ := $(call objects,libinterpose/symbol_lookup.c libinterpose/lifecycle.c)
$(EARLY_OBJ): $(BUILD)/obj/%.c.o: %.c $(BUILD)/flags
	$(call say,CC,$<)
	$(call compile,$(PLAIN_CFLAGS))
$(BUILD)/obj/%.S.o: %.S $(BUILD)/flags
	$(call say,AS,$<)
	$(call compile,$(ALL_CFLAGS))
$(BUILD)/obj/test/fake_driver/%.c.o: test/fake_driver/%.c $(BUILD)/flags-plain
	$(call say,CC,$<)
	$(call compile,$(PLAIN_CFLAGS))
$(BUILD)/obj/test/fake_driver/%.c.old.o: test/fake_driver/%.c $(BUILD)/flags-plain
	$(call say,CC,'$< (old)')
	$(call compile,$(PLAIN_CFLAGS) -DFAKE_OLD)
$(BUILD)/obj/test/programs/%.c.o: test/programs/%.c $(BUILD)/flags-plain
	$(call say,CC,$<)
	$(call compile,$(PLAIN_CFLAGS))
$(BUILD)/obj/test/bench/%.c.o: test/bench/%.c $(BUILD)/flags-plain
	$(call say,CC,$<)
	$(call compile,$(PLAIN_CFLAGS) -Itest/programs)
$(BUILD)/obj/test/demo/%.c.o: test/demo/%.c $(BUILD)/flags-plain
	$(call say,CC,$<)
	$(call compile,$(PLAIN_CFLAGS) -Itest/programs)
.SECONDARY:

# ---- the library and the tool

link       = $(Q)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@
link_plain = $(Q)mkdir -p $(@D) && $(CC) $(PLAIN_CFLAGS) $(LDFLAGS) -o $@
HARDEN     = -Wl,-z,now,-z,relro
# A sanitizer's runtime is found when the program starts.
ifeq ($(SAN),)
DEFS := -Wl,-z,defs
endif

$(LIB): $(LIB_OBJ) $(SHARED_OBJ) libinterpose/exports.map $(BUILD)/sources
	$(call say,LD,$@)
	$(link) -shared -static-libgcc -Wl,-soname,$(@F) -Wl,--version-script,libinterpose/exports.map \
	    $(DEFS) $(HARDEN) -Wl,--exclude-libs,ALL $(filter %.o,$^) $(STATIC_LIBS) -ldl
$(CTL): $(CTL_OBJ) $(SHARED_OBJ) $(BUILD)/sources
	$(call say,LD,$@)
	$(link) $(HARDEN) $(filter %.o,$^)

# ---- the fake driver, and programs for it

fake: $(FAKE_ALL)
FAKE_SO = -shared -Wl,-soname,$(@F) -Wl,-Bsymbolic -Wl,-z,defs
$(FAKE_CUDA): $(FAKE_OBJ) $(BUILD)/sources
	$(call say,LD,$@)
	$(link_plain) $(FAKE_SO) -Wl,-z,nodelete $(filter %.o,$^)
$(BUILD)/fake-old/libcuda.so.1: $(OLD_OBJ) test/fake_driver/fake_old.map $(BUILD)/sources
	$(call say,LD,$@)
	$(link_plain) $(FAKE_SO) -Wl,-z,nodelete -Wl,--version-script,test/fake_driver/fake_old.map $(filter %.o,$^)
$(BUILD)/fake/libnvidia-ml.so.1: $(call objects,test/fake_driver/nvml/fake_nvml.c) $(SHARE_OBJ)
	$(call say,LD,$@)
	$(link_plain) $(FAKE_SO) $(filter %.o,$^)
$(BUILD)/fake/fake-smi: $(call objects,test/fake_driver/tools/fake_smi.c) $(SHARE_OBJ)
	$(call say,LD,$@)
	$(link_plain) $(filter %.o,$^)
$(BUILD)/fake-old/%: $(BUILD)/fake/%
	$(Q)mkdir -p $(@D) && cp $< $@

# Linked with the fake driver, run with whatever libcuda.so.1 is found first; those that only dlopen need none. Lazy: an
# older driver need not have every function.
WITH_CUDA = -L$(BUILD)/fake -Wl,-z,lazy -Wl,--as-needed -l:libcuda.so.1 -ldl
programs: $(PROGRAMS)
$(BUILD)/programs/%: $(BUILD)/obj/test/programs/%.c.o $(BUILD)/obj/test/programs/program.c.o $(FAKE_CUDA)
	$(call say,LD,$@)
	$(link_plain) $(filter %.o,$^) $(WITH_CUDA)
$(BUILD)/programs/runtime_static $(BUILD)/programs/runtime_shared: $(BUILD)/programs/runtime_%: \
    test/gpu/runtime.cu $(BUILD)/obj/test/programs/program.c.o
	$(call say,NVCC,$@)
	$(Q)mkdir -p $(@D) && $(NVCC) -cudart $* -o $@ $^ -lpthread
$(OLD_VIEW)/ready: $(FAKE_ALL) $(PROGRAMS) $(LIB) $(CTL)
	$(Q)mkdir -p $(@D) && ln -sfn ../programs ../libcudackpt.so ../cudackpt-ctl $(@D) && \
	    ln -sfn ../fake-old $(@D)/fake && touch $@
$(DEMO): $(call objects,test/demo/counter_server.c) $(FAKE_CUDA)
	$(call say,LD,$@)
	$(link_plain) $(filter %.o,$^) $(WITH_CUDA)

# ---- unit tests and benchmarks

# They take what they need from an archive, so that none has the exported cu* functions in it by accident.
$(ARCHIVE): $(LIB_OBJ) $(SHARED_OBJ) $(BUILD)/sources
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $(filter %.o,$^)
$(BUILD)/test/check_%: $(BUILD)/obj/test/check_%.c.o $(ARCHIVE)
	$(call say,LD,$@)
	$(link) $^ -lcheck -lsubunit -lm -lrt $(STATIC_LIBS) -ldl
# Not with the archive: its dlopen is ours, and the fake driver must be met as it is.
$(BUILD)/test/check_fake_driver: $(BUILD)/obj/test/check_fake_driver.c.o
	$(call say,LD,$@)
	$(link) $< -lcheck -lsubunit -lm -lrt -ldl
$(BUILD)/test/fuzz_%: $(BUILD)/obj/test/fuzz_%.c.o $(ARCHIVE)
	$(call say,LD,$@)
	$(link) $^ $(STATIC_LIBS) -ldl
GATE_OBJ := $(call objects,libinterpose/gate.c libinterpose/stack.c shared/error.c shared/log.c)
$(BUILD)/test/stress_gate: $(call objects,test/stress_gate.c) $(GATE_OBJ)
	$(call say,LD,$@)
	$(link) $^
$(BUILD)/bench/bench_gate: $(call objects,test/bench/bench_gate.c) $(ARCHIVE)
	$(call say,LD,$@)
	$(link) $^ $(STATIC_LIBS) -ldl
$(BUILD)/bench/%: $(BUILD)/obj/test/bench/%.c.o $(FAKE_CUDA)
	$(call say,LD,$@)
	$(link_plain) $(filter %.o,$^) $(WITH_CUDA)

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)

# ---- tests

check-build: all fake programs $(CHECKS) $(if $(SAN),,$(OLD_VIEW)/ready)
check test: check-build
	$(Q)BUILD='$(BUILD)' test/run_all

ASAN := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
check-san:
	$(Q)$(MAKE) BUILD='$(BUILD)-asan' SAN='$(ASAN)' check-build
	$(Q)$(MAKE) BUILD='$(BUILD)-tsan' SAN=-fsanitize=thread $(addprefix $(BUILD)-tsan/test/,stress_gate check_copy)
	$(Q)BUILD='$(BUILD)' PRELOAD_EXTRA="$$(readlink -f "$$($(CC) -print-file-name=libasan.so)")" test/run_all --sanitizers

check-api:
	$(Q)CC='$(CC)' test/api/check_api.sh "$${CUDA_HOME:-/usr/local/cuda}" $(BUILD)/api || [ $$? = 77 ]

check-criu: check-build
	$(Q)BUILD='$(BUILD)' CC='$(CC)' test/check_criu || [ $$? = 77 ]

check-gpu: check-build $(BENCHES) $(DEMO) $(if $(NVCC),$(BUILD)/programs/runtime_static $(BUILD)/programs/runtime_shared)
	$(Q)BUILD='$(BUILD)' test/run_all --gpu

lint:
	$(Q)BUILD='$(BUILD)' VERSION='$(VERSION)' CC='$(CC)' test/lint.sh $(BASE) $(WARN)

bench: all fake $(BENCHES)
	$(Q)BUILD='$(BUILD)' test/bench/run
demo: all fake $(DEMO)
	$(Q)BUILD='$(BUILD)' test/demo/demo.sh

# ---- installation

define PC_FILE
prefix=$(prefix)
libdir=$(libdir)
preload=$(libdir)/libcudackpt.so

Name: cudackpt
Description: Takes a running CUDA program off the GPU and puts it back; preload libcudackpt.so, nothing is linked
Version: $(VERSION)
endef
MAN1 := $(wildcard docs/man/*.1)
MAN7 := $(wildcard docs/man/*.7)
INSTALLED := $(libdir)/libcudackpt.so $(libdir)/pkgconfig/cudackpt.pc $(bindir)/cudackpt-ctl \
             $(addprefix $(mandir)/man1/,$(notdir $(MAN1))) $(addprefix $(mandir)/man7/,$(notdir $(MAN7)))

export PC_FILE
install: all
	$(Q)install -d $(addprefix '$(DESTDIR)',$(bindir) $(libdir)/pkgconfig $(mandir)/man1 $(mandir)/man7)
	$(Q)install -m 755 $(LIB) '$(DESTDIR)$(libdir)/libcudackpt.so'
	$(Q)install -m 755 $(CTL) '$(DESTDIR)$(bindir)/cudackpt-ctl'
	$(Q)printf '%s\n' "$$PC_FILE" >'$(DESTDIR)$(libdir)/pkgconfig/cudackpt.pc'
	$(Q)chmod 644 '$(DESTDIR)$(libdir)/pkgconfig/cudackpt.pc'
	$(Q)install -m 644 $(MAN1) '$(DESTDIR)$(mandir)/man1'
	$(Q)install -m 644 $(MAN7) '$(DESTDIR)$(mandir)/man7'
uninstall:
	$(Q)rm -f $(addprefix '$(DESTDIR)',$(INSTALLED))

setup:
	$(Q).ci/setup

clean:
	rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-tsan

define HELP
make                 $(LIB), $(CTL)
make setup           installs what building and testing need (apt-get; needs root or sudo)
make check           all tests that need no GPU; `make test` is the same
make check-san       unit tests, fuzzers and programs with the address and undefined-behaviour sanitizers, the
                     gate and the copies with the thread sanitizer
make check-api       compares our declarations with the headers of a toolkit in CUDA_HOME (/usr/local/cuda)
make check-criu      CRIU, and cuda-checkpoint's command line, on the fake driver (as root, with CRIU 4)
make check-gpu       the programs, the demo and the benchmarks on an NVIDIA GPU
make lint            static checks of sources and scripts
make bench           benchmarks, on a GPU if there is one, else on the fake driver
make demo            suspends and resumes a small server; likewise
make install         into DESTDIR, prefix, bindir, libdir, mandir; uninstall removes it
make clean           removes $(BUILD), $(BUILD)-asan, $(BUILD)-tsan
Variables: CC, CFLAGS, LDFLAGS, BUILD (build: where it is built), V=1 (shows commands), SAN (flags of sanitizers)
endef
export HELP
help:
	@printf '%s\n' "$$HELP"
