# Penstock. `make help` lists the targets. Sources are found by folder; everything built lies in
# build/<variant>/, and build/penstock is the release program.

VARIANT ?= release
BUILD   ?= build
TARGET  ?=
SECONDS ?= 60
MINUTES ?= 10
PREFIX  ?= /usr/local

B := $(BUILD)/$(VARIANT)
O := $(B)/obj
Q := $(if $(V),,@)

# ---- flags ----------------------------------------------------------------------------------------------

WARN := -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2 -Wundef \
        -Wcast-qual -Wwrite-strings -Wimplicit-fallthrough $(if $(filter true,$(CI)),-Werror)
HARDEN := -D_FORTIFY_SOURCE=2 -fstack-protector-strong

# The uninitialised is zero in what users run and garbage in what tests run.
CC_release   := gcc
OPT_release  := -O2 $(HARDEN) -ftrivial-auto-var-init=zero
CC_clang     := clang-14
OPT_clang    := -O2 $(HARDEN) -ftrivial-auto-var-init=pattern
CC_asan      := gcc
SAN_asan     := -fsanitize=address,undefined -fno-sanitize-recover=all
OPT_asan     := -O1 -fno-omit-frame-pointer -ftrivial-auto-var-init=pattern
CC_tsan      := gcc
SAN_tsan     := -fsanitize=thread
OPT_tsan     := -O1 -fno-omit-frame-pointer
CC_fuzz      := clang-14
SAN_fuzz     := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
OPT_fuzz     := -O1 -fno-omit-frame-pointer

ifndef CC_$(VARIANT)
$(error unknown VARIANT=$(VARIANT): release, asan, tsan or clang)
endif

CC      = $(CC_$(VARIANT))
CFLAGS  = -std=gnu17 -g $(OPT_$(VARIANT)) $(SAN_$(VARIANT)) -fPIE -fno-common -D_GNU_SOURCE -I. $(WARN)
LDFLAGS = -pie -Wl,-z,relro,-z,now -Wl,--as-needed $(SAN_$(VARIANT))
LIBS    = -luring -laio -lxxhash -lssl -lcrypto -ljansson -lpthread

# ---- what there is --------------------------------------------------------------------------------------

FOLDERS   := proto storage mover tools tests
MAIN      := tools/main.c
SOURCES   := $(wildcard proto/*.c storage/*.c mover/*.c mover/plan/*.c tools/*.c tools/*/*.c)
OBJECTS   := $(patsubst %.c,$(O)/%.o,$(SOURCES))
PURE      := $(filter $(O)/proto/% $(O)/mover/plan/%,$(OBJECTS))
PRODUCT   := $(filter-out $(O)/$(MAIN:.c=.o),$(OBJECTS))
# The simulator puts its own system calls and engine in the place of these.
FAKED     := $(O)/storage/sys.o $(patsubst %.c,$(O)/%.o,$(wildcard mover/engine_*.c))
SIMULATED := $(filter-out $(FAKED),$(PRODUCT))
# Calls of the product that the simulator takes to itself.
WRAPPED   := $(shell grep -os '__wrap_[a-z_0-9]*' tests/sim/wraps.h)

UNIT_OBJECTS := $(patsubst %.c,$(O)/%.o,$(wildcard tests/unit/*.c))
SIM_OBJECTS  := $(patsubst %.c,$(O)/%.o,$(wildcard tests/sim/*.c))
SUITES       := $(patsubst tests/unit/test_%.c,%,$(wildcard tests/unit/test_*.c))
LIMIT_OBJECTS := $(patsubst %.c,$(O)/%.o,$(wildcard tests/bench/*.c))
FUZZED       := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))

PROGRAM  := $(if $(wildcard $(MAIN)),$(B)/penstock)
UNIT     := $(if $(SUITES),$(B)/tests/unit)
SIM      := $(if $(wildcard tests/sim/main.c),$(B)/tests/sim)
FUZZERS  := $(FUZZED:%=$(B)/tests/fuzz_%)
LIMIT    := $(B)/bench/limit
PROGRAMS := $(PROGRAM) $(UNIT) $(SIM) $(FUZZERS) $(LIMIT)
FRONT    := $(if $(filter release,$(VARIANT)),$(PROGRAM:$(B)/%=$(BUILD)/%))

RUN      := tests/run --build $(B)

.SECONDARY:
.DELETE_ON_ERROR:
.PHONY: all install deps have-deps programs test check check-full soak lint format format-check fuzz fuzz-replay demo \
        protocol-tables bench bench-print bench-deps clean help FORCE

all: $(OBJECTS) $(B)/libpenstock.a $(PROGRAM) $(FRONT) ## Build the program: build/penstock (VARIANT=release|asan|tsan|clang, V=1)

# ---- building -------------------------------------------------------------------------------------------

# A file of words that is written anew only when the words change: what is made from a list or with flags
# depends on such a file.
define word_file
$(1): FORCE
	@mkdir -p $$(@D)
	@echo '$(2)' | cmp -s - $$@ || echo '$(2)' > $$@
endef
$(eval $(call word_file,$(B)/flags,$(CC) $(CFLAGS) $(LDFLAGS) $(LIBS)))
$(eval $(call word_file,$(B)/objects,$(OBJECTS)))
$(eval $(call word_file,$(B)/suites,$(SUITES)))

$(O)/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(CFLAGS) -MMD -MP -c $< -o $@

# Archives, so that a program takes only the objects that it uses.
define archive
	@rm -f $@
	@echo "  AR    $@"
	$(Q)ar rcs $@ $(1)
endef
$(B)/libpenstock.a: $(PRODUCT) $(B)/objects
	$(call archive,$(PRODUCT))
$(B)/libsimulated.a: $(SIMULATED) $(B)/objects
	$(call archive,$(SIMULATED))

define link
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(LDFLAGS) $(filter %.o,$^) $(filter %.a,$^) $(LIBS) $(1) -o $@
endef
$(B)/penstock: $(O)/$(MAIN:.c=.o) $(B)/libpenstock.a $(B)/flags
	$(call link)
$(BUILD)/penstock: $(BUILD)/release/penstock
	$(Q)ln -f $< $@

programs: all $(PROGRAMS)

$(B)/tests/unit: LDFLAGS += -Wl,--wrap=calloc -Wl,--wrap=sys_syncfs
$(B)/tests/unit: $(UNIT_OBJECTS) $(B)/libpenstock.a $(B)/flags
	$(call link,-lcunit)
$(B)/tests/sim: LDFLAGS += $(WRAPPED:__wrap_%=-Wl,--wrap=%)
$(B)/tests/sim: $(SIM_OBJECTS) $(B)/libsimulated.a $(B)/flags
	$(call link)
$(B)/tests/fuzz_%: $(O)/tests/fuzz/fuzz_%.o $(O)/tests/fuzz/replay.o $(B)/libpenstock.a $(B)/flags
	$(call link)
$(B)/tests/libfuzzer_%: $(O)/tests/fuzz/fuzz_%.o $(B)/libpenstock.a $(B)/flags
	$(call link,-fsanitize=fuzzer)

# Apart from the tests: it measures and says nothing of right or wrong.
$(LIMIT): $(LIMIT_OBJECTS) $(B)/flags
	$(call link)

# What the generated list or libFuzzer calls needs no header.
$(O)/tests/unit/%.o $(O)/tests/fuzz/%.o: CFLAGS += -Wno-missing-prototypes

$(O)/tests/unit/main.o: CFLAGS += -I$(B)/gen
$(O)/tests/unit/main.o: $(B)/gen/suites.h
$(B)/gen/suites.h: $(B)/suites
	@mkdir -p $(@D)
	@printf 'void suite_%s(void);\n' $(SUITES) > $@
	@echo '#define SUITES(X)' $(patsubst %,'X(%)',$(SUITES)) >> $@

-include $(patsubst %.o,%.d,$(OBJECTS) $(UNIT_OBJECTS) $(SIM_OBJECTS) $(LIMIT_OBJECTS) $(wildcard $(O)/tests/fuzz/*.o))

# ---- packages -------------------------------------------------------------------------------------------

deps: ## Install the Debian packages that building and testing need (as root)
	$(Q)packaging/deps

have-deps:
	$(Q)test -z "$$(packaging/deps --missing)" || $(MAKE) --no-print-directory deps

# These goals install what is missing before anything is compiled.
ifneq ($(filter test check check-full soak demo,$(MAKECMDGOALS)),)
$(B)/flags: | have-deps
endif

# ---- testing --------------------------------------------------------------------------------------------

test: programs ## Run the quick tests (T="PROGRAM..." runs only these)
	$(Q)$(RUN) --tier test $(T)

check: programs ## Run what a change must pass: the tests, the slower checks, a part under sanitizers and other compilers
	$(Q)for variant in clang asan; do $(MAKE) --no-print-directory VARIANT=$$variant programs || exit; done
	$(Q)$(MAKE) --no-print-directory VARIANT=tsan $(BUILD)/tsan/penstock
	$(Q)$(RUN) --build $(BUILD)/asan --sets --tier check

check-full: programs ## Run everything, ThreadSanitizer too
	$(Q)for variant in clang asan tsan; do $(MAKE) --no-print-directory VARIANT=$$variant programs || exit; done
	$(Q)$(RUN) --build $(BUILD)/asan --build $(BUILD)/tsan --sets --tier full

soak: programs ## Run everything over and over for MINUTES=n
	$(Q)$(RUN) --tier full --minutes $(MINUTES)

fuzz-replay: programs ## Replay the fuzz corpus and seeded mutations of it
	$(Q)$(RUN) $(or $(FUZZERS),$(error there is no tests/fuzz/fuzz_*.c))

fuzz: ## Fuzz one target with libFuzzer: TARGET=noun SECONDS=n
	$(if $(TARGET),,$(error which? TARGET=$(FUZZED)))
	$(Q)$(MAKE) --no-print-directory VARIANT=fuzz $(BUILD)/fuzz/tests/libfuzzer_$(TARGET)
	@mkdir -p $(BUILD)/fuzz/found/$(TARGET)
	$(Q)$(BUILD)/fuzz/tests/libfuzzer_$(TARGET) -max_total_time=$(SECONDS) -artifact_prefix=$(BUILD)/fuzz/ \
	    $(BUILD)/fuzz/found/$(TARGET) tests/fuzz/corpus/$(TARGET)

install: all ## Install the program and its manual pages: PREFIX=/usr/local, DESTDIR=
	install -D -m 755 $(BUILD)/penstock $(DESTDIR)$(PREFIX)/bin/penstock
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	$(Q)for command in copy bench serve key verify; do \
	    $(BUILD)/penstock $$command --man > $(DESTDIR)$(PREFIX)/share/man/man1/penstock-$$command.1 || exit; done

demo: all ## Show a copy between two local agents
	$(Q)tests/demo.sh

# ---- measuring ------------------------------------------------------------------------------------------

bench-deps:
	$(Q)test -z "$$(packaging/deps --missing bench)" || packaging/deps bench || echo "Measuring without them."

bench: all $(LIMIT) bench-deps ## Measure beside peers and the machine's limit: ROWS= TOOLS= ROUNDS= STREAMS= DEST= LIMIT_OPTIONS= QUICK=1
	$(Q)tests/bench/bench --build $(B) $(if $(ROWS),--rows '$(ROWS)') $(if $(TOOLS),--tools '$(TOOLS)') \
	    $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(STREAMS),--streams $(STREAMS)) $(if $(DEST),--dest '$(DEST)') \
	    $(if $(LIMIT_OPTIONS),--limit='$(LIMIT_OPTIONS)') $(if $(QUICK),--quick)

bench-print: ## Print the tables of records again: RECORDS="FILE..." (CSV=1)
	$(Q)tests/bench/bench --print $(or $(RECORDS),$(error which? RECORDS=build/bench/...jsonl)) $(if $(CSV),--csv)

# ---- house rules ----------------------------------------------------------------------------------------

lint: $(PURE) ## Check the house rules of the sources
	$(Q)$(RUN) tests/lint/rules.py

format: ## Rewrite the C files in the house format
	$(Q)find $(FOLDERS) -name '*.[ch]' | xargs -r clang-format -i

format-check: ## Check the format of the C files
	$(Q)$(RUN) 'tests/lint/format.sh $(FOLDERS)'

protocol-tables: ## Rewrite the tables of PROTOCOL.md that derive from the headers
	$(Q)tests/protocol/tables.py --write

# ---- the rest -------------------------------------------------------------------------------------------

clean: ## Remove everything built
	$(Q)rm -rf $(BUILD)

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 20
