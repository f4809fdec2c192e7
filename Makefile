# make demo and make test are the README's two commands; both set up what they need.
.PHONY: help demo test check test-full bench build docs figures errata audit package release

ARGS ?=
PART ?= all
BIN := bin

# What there is to make.
help:
	@awk '/^# /{ said = said substr($$0, 2); next } /^[a-z-]+:/{ printf "%-10s%s\n", substr($$1, 1, length($$1) - 1), said } { said = "" }' Makefile

# Main job: real relays, a real verifier and real clients on loopback. Needs Go and make only.
demo:
	@mkdir -p $(BIN) && go build -trimpath -o $(BIN)/demo ./cmd/demo 1>&2
	@$(if $(findstring --headless,$(ARGS)),true,go run ./www/build) 1>&2
	@$(BIN)/demo $(ARGS)

# Vet, Go and Chromium, on a fresh Debian-like machine: installs Node packages and Chromium.
test:
	@./scripts/test.sh test

# What servers, engines and parsers are held to beside: the race detector, staticcheck, short fuzzing, GOOS=js, workerd,
# Firefox and the documentation site. Run it before you call an issue resolved.
check:
	@./scripts/test.sh check

# The long forms, for a release: one PART of those in docs/results.md, or all that this clone has not run yet.
test-full:
	@./scripts/test-full.sh $(PART)

# Every row beside its peer and limit; docs/benchmarks.md is written by ARGS="--full --write docs" on a quiet machine.
bench:
	@go run ./bench $(ARGS)

build:
	@mkdir -p $(BIN) && go build -trimpath -o $(BIN)/ ./cmd/relay ./cmd/issuer ./cmd/verifier ./cmd/doona ./cmd/demo
	@go run ./www/build

# The documentation site, build/docs; installs Node packages.
docs:
	@./scripts/docs.sh

# The papers' figures, and what is wrong in the papers: docs/figures, docs/reproduction.md, docs/errata.md.
# ARGS=--quick for a rough look, which must not be committed.
figures:
	@go -C lab run . figures --out ../docs $(ARGS)

# That printed claims do not hold, by examples: all, or those that ARGS names.
errata:
	@go -C lab run . errata $(ARGS)

# What an attacker finds who runs what is shipped: docs/audit.md, in half an hour.
audit:
	@go -C lab run . audit --out ../docs/audit.md $(ARGS)

# The npm packages, build/doona-VERSION.tgz and the program of `npx doona dev` for this platform; installs Node packages and Chromium as test does.
package:
	@./www/setup.sh >/dev/null && go run ./www/build && GOFLAGS=-trimpath ./www/pack.sh

# What a release has, in build/release: docs/release.md. Needs a clean clone; installs what test does.
release:
	@./scripts/release.sh
