# The commands of a newcomer: make demo, make test. make help lists all.
GO      ?= go
BIN     := bin/procaas
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
SOURCES := $(shell find . -name '*.go' -o -name '*.sql' -o -name '*.yaml' -o -name '*.html' -o -name '*.css' -o -name '*.js' | grep -v '^./bin/')

# All that is built takes the same flags, so that nothing is compiled twice.
FLAGS   := -trimpath -buildvcs=false
# SQLite is C that was made Go: no races of ours are in it, and the detector makes it several times slower.
RACE    := -race -gcflags='modernc.org/sqlite/lib=-race=false' -gcflags='modernc.org/libc=-race=false'
# Tests that wait let others work meanwhile: twice as many at once as there are processors on a small machine. What vet says
# of each test has been said by make vet.
TOGETHER := -parallel 4 -timeout 20m -vet=off
GOTESTS := $(GO) run gotest.tools/gotestsum@v1.13.0 --format pkgname-and-test-fails --format-hide-empty-pkg
LINT    := $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
# A test that fails is run again alone, twice at most; more than five failures are no accident. One that passes then is a
# fault all the same: it is printed last, and bin/flaky.txt keeps why it failed.
AGAIN   := --rerun-fails=2 --rerun-fails-max-failures=5 --rerun-fails-report bin/again.txt --jsonfile bin/test.json
# Packages that start nothing beside anything else have no use for the race detector. The tests of SLOW take minutes under it:
# make test runs them without, and make race, a job of its own in CI, with it.
TESTED  := $(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...
BESIDE  := for p in $$($(TESTED)); do ! grep -qE '^[[:space:]]*go |[.]Go[(]' $$(echo $$p | sed 's/^procaas/./')/*.go || echo $$p; done
SLOW    := procaas/(cmd/procaas|cmd/procaas/internal/serve/playground|engine|engine/(cells|enginetest|postgres|sqlite)|handlers/sharding(/transfer)?|pipelines)
# The playground's process bounds its memory to some hundred MiB of addresses. The race detector alone reserves terabytes.
BOUNDED := procaas/cmd/procaas/internal/serve/playground

# The tests of the packages that the file $(1) lists, with the environment $(2) and the flags $(3).
define tests
	@rm -f bin/again.txt
	$(GO) run $(FLAGS) ./engine/enginetest/testdb -- env RAPID_SEED=$(RAPID_SEED) $(2) $(GOTESTS) $(AGAIN) --packages "$$(tr '\n' ' ' <$(1))" -- $(FLAGS) $(3) $(TOGETHER); \
	  code=$$?; sh engine/enginetest/flaky.sh bin/again.txt bin/test.json bin/flaky.txt; exit $$code
endef

# Property tests draw the same in each run, so that a change is judged by itself; make properties draws anew. Those of stores are
# in the first half of make test, and take half of rapid's 100 rounds there.
RAPID_SEED ?= 1

export CGO_ENABLED ?= 0

.PHONY: help demo demo-canary demo-balancer balance torture torture-transfers bench-shards bench-pauses bench-resolve demo-shards build test race test-long quick loops memory \
	properties pooler lint prose fmt vet bench bench-flows python editors fuzz golden tools-postgres tools-programs tools-console bench-inbox bench-queue cells clean judge

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

demo: $(BIN) ## a whole taxi company on this machine; Ctrl-C ends it
	@$(BIN) demo

demo-canary: $(BIN) ## the taxi company gets a bad version, which is rolled back by itself; Ctrl-C ends it
	@$(BIN) demo --incident bad-version --incident-after 10s

demo-balancer: $(BIN) ## eight real workers, a key that gets hot, and the balancer that evens the load out; Ctrl-C ends it
	@$(BIN) demo-balancer

balance: $(BIN) ## every policy of the balancer over the scenarios of the repository
	@$(BIN) simulate balancer $(patsubst %,--scenario %,$(wildcard testdata/balancer/*.yaml))

JUDGE ?= -from 264 -to 440

judge: ## v5 beside v4 in a cluster that v5 was not made for, over some hundred random scenarios: minutes; JUDGE="-from 0 -to 88 -only seesaw -trace" chooses others
	@$(GO) test -count 1 -timeout 60m -v -run '^TestJudge$$' ./handlers/balancer/judge $(JUDGE)

build: $(BIN) ## build bin/procaas

$(BIN): $(SOURCES) go.mod go.sum
	@mkdir -p bin
	$(GO) build $(FLAGS) -ldflags '-s -w -X procaas/engine/api/cli.stamp=$(VERSION)' -o $@ ./cmd/procaas

test: tools-postgres tools-programs tools-console fmt vet $(BIN) ## all tests, with a private PostgreSQL and a browser; what is quick also under the race detector
	$(BIN) validate pipelines
	$(BIN) fmt --check pipelines
	$(BIN) test pipelines --chaos --min-coverage 90
	@mkdir -p bin && $(BESIDE) | grep -vxE '$(SLOW)' >bin/raced.txt; $(TESTED) | grep -vxFf bin/raced.txt >bin/unraced.txt
	$(call tests,bin/unraced.txt,RAPID_CHECKS=50)
	$(call tests,bin/raced.txt,CGO_ENABLED=1,$(RACE))

race: tools-postgres tools-programs tools-console ## all tests of what works beside others, under the race detector: half an hour; CI runs it for each change
	@mkdir -p bin && $(BESIDE) | grep -vxF '$(BOUNDED)' >bin/raced.txt
	$(call tests,bin/raced.txt,CGO_ENABLED=1,$(RACE))

test-long: properties cells loops memory torture torture-transfers pooler judge fuzz ## what takes too long for each change: other random data, faults for minutes, fuzzing; CI runs it each night

quick: ## what a change of the language may break, in under a minute: dsl and the commands that show it
	$(GO) test $(FLAGS) ./dsl/... ./engine/flowtest
	$(GO) test $(FLAGS) ./cmd/procaas -run '^(TestScripts|TestReadmeExamplesLoad|TestPagesSayWhoseTheirFilesAre|TestFoldersImportOnlyToTheirLeft)$$'

properties: tools-postgres ## the property tests, with other random data each time and thirty times as much of it
	RAPID_CHECKS=3000 $(GO) run $(FLAGS) ./engine/enginetest/testdb -- $(GO) test -count 1 -timeout 60m $$(grep -rl pgregory.net/rapid --include='*_test.go' . | xargs -n1 dirname | sort -u)

memory: ## work that takes many times the memory of a node of 4 GiB: many minutes
	PROCAAS_TEST_MEMORY=4096MiB $(GO) test -count 1 -timeout 60m ./cmd/procaas -run '^TestNodesStayWithinTheirMemory$$'

cells: tools-postgres ## the whole contract of the store on an inbox over two databases, and kill -9 at each step of a move: many minutes
	CGO_ENABLED=1 $(GO) test $(RACE) -count 1 -timeout 15m -run '^TestConformance$$' ./engine/cells -whole
	$(GO) run $(FLAGS) ./engine/enginetest/testdb -- $(GO) test -count 1 -timeout 60m ./cmd/procaas -run '^TestInboxMoveSurvivesKill9$$' -every-step

loops: tools-postgres ## pipelines that emit themselves, on serving nodes, until they are bounded: minutes
	$(GO) run $(FLAGS) ./engine/enginetest/testdb -- $(GO) test -count 1 -timeout 15m ./cmd/procaas -run '^TestALoopOfServingNodesIsBounded$$' -loops

torture: tools-postgres cells ## nodes, workers of the queue and their PostgreSQL under faults, for three minutes each; the contract on cells
	$(GO) test -count 1 -timeout 15m -v -run '^TestTorture$$' ./cmd/procaas -torture 3m
	$(GO) test -count 1 -timeout 15m -v -run '^TestQueueTorture$$' ./cmd/procaas -torture 6m

torture-transfers: tools-postgres ## a transfer for each way to harm it at each of its points: the coordinator is killed, a shard is cut off; minutes
	cd handlers/sharding/transfer && $(GO) test -count 1 -timeout 30m -run '^TestTransferEndsAfterOneHarm$$' -every
	$(GO) run $(FLAGS) ./engine/enginetest/testdb -- $(GO) test -count 1 -timeout 30m ./handlers/sharding -run '^TestPartsOfKeysMoveUnderWrites$$' -scenarios 100

bench-shards: tools-postgres ## the read-only window of moving a key of a million rows, by both methods: minutes, on an idle machine
	@cd handlers/sharding/transfer && $(GO) test -count 1 -timeout 60m -run '^TestWindow$$' -rows 1000000 -rounds 3

bench-pauses: tools-postgres ## for how long clients cannot write to a key that moves to and fro: p50, p97, max; ten seconds, on an idle machine
	@cd handlers/sharding/transfer && $(GO) test -count 1 -timeout 10m -run '^TestWritePause$$' -span 10s

bench-resolve: ## resolving over HTTP beside a bare handler: requests a second, processor time, p97; idle machine
	@$(GO) test -count 1 ./handlers/sharding/shardmap -run '^$$' -bench '^BenchmarkHTTP$$' -benchtime 40x

demo-shards: tools-postgres ## a key moves between two PostgreSQL servers while it is written to
	@cd handlers/sharding/transfer && $(GO) test -count 1 -timeout 10m -run '^TestWindow$$' -rows 20000 -show

pooler: tools-postgres ## the store through PgBouncer in transaction mode, which is restarted under load
	@command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] || apt-get install -y --no-install-recommends pgbouncer
	$(GO) test -count 1 -timeout 10m -tags pooler -run '^TestPooler' ./engine/postgres ./cmd/procaas

fmt: ## fail when a file is not formatted
	@out=$$(gofmt -l $$(git ls-files '*.go' 2>/dev/null || find . -name '*.go')); if [ -n "$$out" ]; then echo "run gofmt -w on:"; echo "$$out"; exit 1; fi

vet: ## the compiler's own checks
	$(GO) vet $(FLAGS) ./...

lint: ## what the linters of .golangci.yml say; a job of its own in CI, since building them takes minutes
	GOFLAGS="$(FLAGS)" $(LINT) run ./...

prose: ## long sentences, and phrases that readers stumble over, in pages, help texts and descriptions
	$(GO) test -count 1 ./docs

golden: ## rewrite golden files and generated files; read the diff before you commit it
	$(GO) run $(FLAGS) ./engine/enginetest/testdb -- $(GO) test $$(grep -rl 'flag.Bool("update"' --include='*_test.go' . | xargs -n1 dirname | sort -u) -update
	$(GO) test $$(grep -rl cockroachdb/datadriven --include='*_test.go' . | xargs -n1 dirname | sort -u) -rewrite

bench: ## the Go benchmarks of the hot paths
	$(GO) run ./engine/enginetest/testdb -- $(GO) test -run '^$$' -bench . -benchmem ./...

bench-flows: $(BIN) ## what durability costs, beside programs written by hand: minutes, on an idle machine
	$(GO) run ./cmd/procaas-bench

bench-inbox: $(BIN) ## an inbox on 1, 2 and 4 PostgreSQL servers, and how long its keys stop while a million runs move: an hour, on an idle machine
	$(GO) run ./cmd/procaas-bench -rounds 3 -only inbox

bench-queue: $(BIN) ## the queue of tasks, beside loops written by hand: minutes, on an idle machine
	$(GO) run ./cmd/procaas-bench -rounds 3 -only queue-drain,queue-hindered,queue-put,queue-latency,queue-bloat

python: ## compare the expression language with the python3 of this machine, on 200,000 random expressions
	$(GO) test -count 1 ./dsl/expr -run '^TestPythonLive$$' -v -args -python 200000

editors: ## drive the YAML language server of editors with our schemas; npm installs it into the user's cache
	$(GO) test -count 1 -timeout 5m -tags editors -run '^TestEditors' ./cmd/procaas

fuzz: ## every fuzz target, half a minute each
	@for p in $$($(GO) list ./...); do for f in $$($(GO) test -list '^Fuzz' $$p | grep ^Fuzz); do \
	  echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime 30s -fuzzminimizetime 5x $$p || exit 1; done; done

# PostgreSQL is a part of the tests. As root on Debian it is installed; otherwise
# the message says what to do.
tools-postgres:
	@sh engine/enginetest/install-postgres.sh

# So are programs that operators run: sqlite3 beside a node, and the one that checks units of systemd.
tools-programs:
	@sh engine/enginetest/install-program.sh sqlite3 sqlite3
	@sh engine/enginetest/install-program.sh systemd-analyze systemd

# So are Chromium and Node.js, which the browser test of the console drives.
tools-console:
	@sh testdata/console/install.sh

clean: ## remove what was built
	rm -rf bin
