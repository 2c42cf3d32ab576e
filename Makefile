# make help lists the targets. What does not fit in a few lines here is a script.
GO      ?= go
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
SOURCES := $(shell find cmd dsl engine handlers pipelines schemas -name '*.go' -o -name '*.sql' -o -name '*.yaml' -o -name '*.html' -o -name '*.css' -o -name '*.js')

# All that is built takes the same flags, so that nothing is compiled twice, also by tests that build programs. Nobody debugs these programs,
# and compilers end before it pays to collect their garbage: without both, they take a third less time.
FLAGS   := -trimpath -buildvcs=false
export GOFLAGS := $(GOFLAGS) -gcflags=all=-dwarf=false '-toolexec=env GOGC=off GOMEMLIMIT=1GiB'
export CGO_ENABLED ?= 0

# Tests share a private PostgreSQL. They wait more than they compute, so more run at once than there are processors. What vet says of tests
# has been said before. Property tests draw the same data in each run, so that a change is judged by itself.
DB      := $(GO) run $(FLAGS) ./engine/enginetest/testdb -- env RAPID_SEED=1
TEST    := $(GO) test $(FLAGS) -vet=off -timeout 20m -p 2 -parallel 4
# The race detector needs C. SQLite is C that was made Go: no races of ours are in it, and the detector makes it several times slower.
RACE    := CGO_ENABLED=1 $(TEST) -race -gcflags='modernc.org/sqlite/lib=-race=false' -gcflags='modernc.org/libc=-race=false'

# The packages whose tests make test runs under the race detector: much is concurrent in them, and their tests are quick. make race
# runs all, except the playground: its process may use some hundred MiB of addresses, and the detector alone reserves terabytes.
RACED   := $(addprefix procaas/, engine/budget engine/guard engine/intake engine/node engine/outbound engine/watch engine/writes \
	handlers/balancer/handoff)
# The packages with tests, those that take longest first: what is left at the end then fits on all processors.
LONG    := $(addprefix procaas/, cmd/procaas handlers/inbox/cells handlers/sharding engine/postgres engine)
LIST     = $(LONG) $(filter-out $(LONG), $(shell $(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...))

.PHONY: help demo build quick test race test-long matrix bench figures release golden lint

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: bin/procaas ## a whole taxi company on this machine; Ctrl-C ends it. ARGS="--incident bad-version" and others change it
	@bin/procaas demo $(ARGS)

build: bin/procaas ## build bin/procaas

bin/procaas: $(SOURCES) go.mod go.sum
	$(GO) build $(FLAGS) -ldflags '-s -w -X procaas/engine/api/cli.stamp=$(VERSION)' -o $@ ./cmd/procaas

quick: ## what a change of the language may break, in under a minute: dsl and the commands that show it
	$(GO) test $(FLAGS) ./dsl/... ./engine/flowtest
	$(GO) test $(FLAGS) ./cmd/procaas -run '^(TestScripts|TestReadmeExamplesLoad|TestPagesSayWhoseTheirFilesAre|TestFoldersImportOnlyToTheirLeft)$$'

test: bin/procaas ## all tests, with a private PostgreSQL and a browser; some under the race detector
	@sh engine/enginetest/install.sh
	@unformatted=$$(gofmt -l */); test -z "$$unformatted" || { echo "run gofmt -w on:" $$unformatted; exit 1; }
	$(GO) vet $(FLAGS) ./...
	bin/procaas validate pipelines
	bin/procaas fmt --check pipelines
	bin/procaas test pipelines
	$(DB) RAPID_CHECKS=50 $(TEST) $(filter-out $(RACED),$(LIST))
	RAPID_SEED=1 $(RACE) $(RACED)

race: ## all tests under the race detector: half an hour; CI runs it for each change
	@sh engine/enginetest/install.sh
	$(DB) $(RACE) $(filter-out procaas/cmd/procaas/internal/serve/playground,$(LIST))

test-long: ## what takes too long for each change: other random data, faults for minutes, fuzzing. ONLY="torture cells" runs some of it
	@sh engine/enginetest/install.sh
	@sh engine/enginetest/long.sh $(ONLY)

matrix: ## what depends on PostgreSQL, on each version from 13 to 18. VERSIONS="13 18" chooses
	@sh engine/enginetest/long.sh matrix

bench: build ## the Go benchmarks of the hot paths, on an idle machine. ONLY="flows queue" measures whole programs
	@sh cmd/procaas-bench/bench.sh $(ONLY)

figures: build ## measure the figures of the pages on an idle machine, and write them. ONLY="flows queue" measures some
	@$(GO) run $(FLAGS) ./cmd/procaas-bench -figures "$(or $(ONLY),all)" $(ARGS)

release: ## archives, packages, image, SBOM and checksums for all platforms, in dist. ARGS="-platforms linux/amd64" builds less
	$(GO) -C deploy/tools run $(FLAGS) procaas/deploy/tools/release $(ARGS)

golden: ## rewrite golden files and generated files; read the diff before you commit it
	$(GO) run $(FLAGS) ./engine/enginetest/testdb -- $(GO) test $$(grep -rl 'flag.Bool("update"' --include='*_test.go' . | xargs -n1 dirname | sort -u) -update
	$(GO) test $$(grep -rl cockroachdb/datadriven --include='*_test.go' . | xargs -n1 dirname | sort -u) -rewrite

lint: ## what the linters of .golangci.yml say; a job of its own in CI, since building them takes minutes
	GOFLAGS="$(FLAGS)" $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 run ./...
