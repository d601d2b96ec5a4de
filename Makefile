# cudackpt: libcudackpt.so (preloaded into a CUDA program) and cudackpt-ctl.
# Targets: all check check-gpu check-api check-san bench lint demo install setup clean. V=1 shows commands.

prefix ?= /usr/local
libdir ?= $(prefix)/lib
bindir ?= $(prefix)/bin
mandir ?= $(prefix)/share/man
BUILD  ?= build
CC     ?= gcc
VERSION := 0.1.0

CFLAGS  ?= -O2 -g
WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wwrite-strings -Wvla \
           -Wno-unused-parameter
BASE    := -std=gnu11 -fPIC -fvisibility=hidden -fno-strict-aliasing -pthread -D_GNU_SOURCE \
           -DCUDACKPT_VERSION='"$(VERSION)"' -Ishared -Ilibinterpose -I$(BUILD)
SAN     ?=
ALL_CFLAGS := $(BASE) $(WARN) $(CFLAGS) $(SAN)
LDFLAGS ?=
# Static: the preloaded library must start where only libc and the driver are installed.
STATIC_LIBS := -Wl,-Bstatic -llz4 -lzstd -Wl,-Bdynamic

ifeq ($(V),)
Q := @
say = @printf '  %-7s %s\n' $(1) $(2)
endif

# ---- objects

objects = $(patsubst %,$(BUILD)/obj/%.o,$(1))
SHARED_OBJ := $(call objects,$(wildcard shared/*.c))
LIB_OBJ    := $(call objects,$(wildcard libinterpose/*.c libinterpose/*.S))
CTL_OBJ    := $(call objects,$(wildcard ctl/*.c))
FAKE_OBJ   := $(call objects,$(wildcard test/fake_driver/*.c))

LIB      := $(BUILD)/libcudackpt.so
CTL      := $(BUILD)/cudackpt-ctl
ARCHIVE  := $(BUILD)/libinterpose.a
FAKE     := $(BUILD)/fake/libcuda.so.1
PROGRAMS := $(patsubst test/programs/%.c,$(BUILD)/programs/%,$(filter-out test/programs/program.c,$(wildcard test/programs/*.c)))
CHECKS   := $(patsubst test/%.c,$(BUILD)/test/%,$(wildcard test/check_*.c))
BENCHES  := $(patsubst test/bench/%.c,$(BUILD)/bench/%,$(wildcard test/bench/*.c))

.PHONY: all check unit clean FORCE
all: $(LIB) $(CTL)

# A change of flags rebuilds everything.
$(BUILD)/flags: FORCE
	@mkdir -p $(BUILD)
	@echo '$(CC) $(ALL_CFLAGS) $(LDFLAGS)' | cmp -s - $@ || echo '$(CC) $(ALL_CFLAGS) $(LDFLAGS)' >$@

$(BUILD)/obj/%.c.o: %.c $(BUILD)/flags
	@mkdir -p $(dir $@)
	$(call say,CC,$<)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c $< -o $@

$(BUILD)/obj/%.S.o: %.S $(BUILD)/flags
	@mkdir -p $(dir $@)
	$(call say,AS,$<)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c $< -o $@

$(LIB): $(LIB_OBJ) $(SHARED_OBJ) libinterpose/exports.map
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -static-libgcc -Wl,-soname,libcudackpt.so -Wl,--version-script,libinterpose/exports.map \
	    -Wl,-z,defs,-z,now,-z,relro -Wl,--exclude-libs,ALL -o $@ $(LIB_OBJ) $(SHARED_OBJ) $(STATIC_LIBS) -ldl

$(CTL): $(CTL_OBJ) $(SHARED_OBJ)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -Wl,-z,now,-z,relro -o $@ $^

# Unit tests take what they need from archives, so that no test has the exported cu* functions in it by accident.
$(ARCHIVE): $(LIB_OBJ) $(SHARED_OBJ)
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^

$(BUILD)/test/%: $(BUILD)/obj/test/%.c.o $(ARCHIVE)
	@mkdir -p $(dir $@)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $< $(ARCHIVE) -lcheck -lsubunit -lm -lrt $(STATIC_LIBS) -ldl

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)

clean:
	rm -rf $(BUILD)
