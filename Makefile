# The README names two commands: make demo and make test. Both install what they need.
.PHONY: help demo test check test-full bench build docs figures errata audit package release

ARGS ?=
PART ?= all
BIN := bin

# Lists the targets.
help:
	@awk '/^# /{ said = said substr($$0, 2); next } /^[a-z-]+:/{ printf "%-10s%s\n", substr($$1, 1, length($$1) - 1), said } { said = "" }' Makefile

# Runs the main job: real relays, a real verifier and real clients on loopback. Needs only Go and make.
demo:
	@mkdir -p $(BIN) && go build -trimpath -o $(BIN)/demo ./cmd/demo 1>&2
	@$(if $(findstring --headless,$(ARGS)),true,go run ./www/build) 1>&2
	@$(BIN)/demo $(ARGS)

# Runs vet and the tests in Go and Chromium, on a fresh Debian-like machine. Installs Node packages and Chromium.
test:
	@./scripts/test.sh test

# Runs further tests: the race detector, staticcheck, short fuzzing, a protocol added by a patch, GOOS=js, Node, workerd,
# Firefox and the documentation site. Run it before you close an issue.
check:
	@./scripts/test.sh check

# Runs the long tests for a release: one PART of docs/results.md, or all that this clone has not run yet.
test-full:
	@./scripts/test-full.sh $(PART)

# Runs every benchmark and compares it with its peer and its limit. To write docs/benchmarks.md, use ARGS="--full
# --write docs" on a quiet machine.
bench:
	@go run ./bench $(ARGS)

build:
	@mkdir -p $(BIN) && go build -trimpath -o $(BIN)/ ./cmd/relay ./cmd/issuer ./cmd/verifier ./cmd/doona ./cmd/demo
	@go run ./www/build

# Builds the documentation site, build/docs. Installs Node packages.
docs:
	@./scripts/docs.sh

# Draws the papers' figures and lists errors in papers: docs/figures, docs/reproduction.md, docs/errata.md. ARGS=--quick
# gives rough figures; do not commit these.
figures:
	@go -C lab run . figures --out ../docs $(ARGS)

# Shows by examples that claims printed in papers are wrong: all of them, or those that ARGS names.
errata:
	@go -C lab run . errata $(ARGS)

# Attacks the shipped programs and writes what the attacks find: docs/audit.md. Takes half an hour.
audit:
	@go -C lab run . audit --out ../docs/audit.md $(ARGS)

# Builds the npm packages: build/doona-VERSION.tgz, and the program of `npx doona dev` for this platform. Installs Node
# packages and Chromium, as test does.
package:
	@./www/setup.sh >/dev/null && go run ./www/build && GOFLAGS=-trimpath ./www/pack.sh

# Builds a release in build/release (docs/release.md). Needs a clean clone. Installs what test does.
release:
	@./scripts/release.sh
